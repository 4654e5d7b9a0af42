//! What the threads that make connections have in common.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use tweed_proto::engine::directory::Directory;
use tweed_proto::engine::EngineError;
use tweed_proto::late::Limits;

use crate::connect::admission::listener::{Admitting, Listener};
use crate::connect::admission::local_listener::LocalListener;
use crate::connect::admission::pending::Pending;
use crate::connect::admission::{Keys, Refusals};
use crate::connect::descriptor::{random_hex, PeerDescriptor};
use crate::connect::options::NodeOptions;
use crate::connect::tcp_handshake::Link;
use crate::engine::driver::Driver;
use crate::engine::watcher::Watcher;
use crate::framing::Refusal;
use crate::relay::Relay;
use crate::secure::{hex, Key};
use crate::sync::{Condvar, LockRank, Mutex};
use crate::system_error::in_words;

pub(crate) struct Connector {
    pub(crate) options: NodeOptions,
    /// This process's own, as it was at the start.
    pub(crate) descriptor: PeerDescriptor,
    pub(crate) driver: Arc<Driver>,
    /// Held while a group is joined.
    pub(super) joining: Mutex<()>,
    /// `None` without a secret.
    pub(super) keys: Option<Keys>,
    /// `None` if it only dials out.
    pub(crate) listener: Option<Arc<Listener>>,
    pub(crate) local_listener: Arc<LocalListener>,
    /// Which processes it has met, by which calls.
    pub(super) directory: Mutex<Directory<Key>>,
    /// How many calls it has made.
    attempts: AtomicU64,
    /// Who has called and was not named by a group yet.
    pub(super) pending: Mutex<Pending<Link>>,
    /// A connection became pending, or a peer.
    pub(super) met: Condvar,
    pub(crate) refusals: Refusals,
    /// This process between two others.
    pub(crate) relay: Arc<Relay>,
}

impl Connector {
    /// Opens the sockets on which others call. No thread runs yet.
    pub(crate) fn open(options: NodeOptions) -> Result<(Arc<Connector>, Watcher), EngineError> {
        options.admission.check_bind(options.host)?;
        let failed = |e: io::Error| EngineError::setup("the engine cannot be started", in_words(&e));
        let listener = open_listener(&options).map_err(|e| {
            let advice = match e.kind() {
                io::ErrorKind::AddrInUse => ". Give TWEED_PORTS more of them",
                io::ErrorKind::PermissionDenied => ". Ports below 1024 are root's",
                io::ErrorKind::AddrNotAvailable => {
                    ". TWEED_HOST must be an address of this machine, and `ip -brief address` lists them: ::1 where all \
                     are of IPv6, and no other host takes part"
                }
                _ => "",
            };
            let text = format!("it cannot listen on {}: {}{advice}", options.host, in_words(&e));
            failed(io::Error::new(e.kind(), text))
        })?;
        let keys = options.admission.keys()?;
        Connector::start(options, listener, keys).map_err(failed)
    }

    fn start(
        options: NodeOptions,
        listener: Option<Arc<Listener>>,
        keys: Option<Keys>,
    ) -> io::Result<(Arc<Connector>, Watcher)> {
        // Every user of the host can list the names of local sockets, so it is none by which anything else is known.
        let local_name = format!("tweed-{}", random_hex()?);
        let local_listener = Arc::new(LocalListener::bind(&local_name)?);
        let key = keys.as_ref().map(|k| hex(&k.identity.public));
        let tcp = listener.as_ref().map(|p| p.address()).transpose()?;
        let descriptor = PeerDescriptor {
            local: local_name,
            wire_only: options.wire_only,
            ..PeerDescriptor::new(key, tcp)?
        };
        let (driver, watcher) = Driver::open(options.deadline, options.traces.clone())?;
        let connector = Connector {
            options,
            descriptor,
            driver,
            joining: Mutex::new(LockRank::Joining, ()),
            keys,
            listener,
            local_listener,
            directory: Mutex::new(LockRank::Directory, Directory::default()),
            attempts: AtomicU64::new(0),
            pending: Mutex::new(LockRank::Pending, Pending::default()),
            met: Condvar::default(),
            refusals: Refusals::default(),
            relay: Arc::default(),
        };
        Ok((Arc::new(connector), watcher))
    }

    /// How long introductions and silent wires may take.
    pub(crate) fn limits(&self) -> Limits {
        self.options.limits(Duration::MAX)
    }

    pub(crate) fn wire_settings(&self) -> String {
        let system =
            || std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap_or_default();
        let congestion = self.options.congestion.clone().unwrap_or_else(system);
        let sealed = if self.keys.is_some() { "sealed" } else { "not sealed" };
        let streams = self.options.streams;
        format!("{streams} TCP streams per pair, {sealed}, congestion control {}", congestion.trim())
    }

    /// The descriptor as it is now: with the links that have broken meanwhile.
    pub(crate) fn current_descriptor(&self) -> PeerDescriptor {
        let lost: Vec<bool> = {
            let engine = self.driver.engine.lock();
            (0..engine.peers.len()).map(|peer| engine.peers.is_lost(peer)).collect()
        };
        let broken = self.directory.lock().broken(|peer| lost.get(peer).is_some_and(|&lost| lost));
        PeerDescriptor { broken, ..self.descriptor.clone() }
    }

    /// The number of the next call: greater than those of all calls before.
    pub(super) fn next_attempt(&self) -> u64 {
        self.attempts.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A link was made by that call, of either end: a later one has a greater number at both.
    pub(super) fn note_attempt(&self, attempt: u64) {
        self.attempts.fetch_max(attempt.min(u64::MAX / 2), Ordering::Relaxed);
    }

    /// Wakes who waits in a meeting.
    pub(super) fn notify_met(&self) {
        drop(self.pending.lock());
        self.met.notify_all();
    }
}

impl Admitting for Connector {
    fn patience(&self) -> Duration {
        self.limits().greet
    }

    fn admit(&self, socket: Arc<TcpStream>, proven: impl FnOnce()) -> Result<(), Refusal> {
        self.admit_wire(socket, proven)
    }

    fn refuse(&self, who: &str, refusal: &Refusal) {
        if !self.driver.is_stopping() {
            self.refusals.tell(who, refusal);
        }
    }
}

fn open_listener(options: &NodeOptions) -> io::Result<Option<Arc<Listener>>> {
    if options.admission.dial_only {
        return Ok(None);
    }
    let chosen = !options.ports.is_any();
    let open = |port| {
        let listener = Listener::bind(SocketAddr::new(options.host, port), chosen)?;
        // Strangers gain nothing there. Without a secret it opens when a group needs it; but one of a few ports is only
        // taken once it listens.
        if chosen || options.admission.secret.is_some() {
            listener.listen()?;
        }
        Ok(listener)
    };
    Ok(Some(Arc::new(options.ports.first_free(open)?)))
}
