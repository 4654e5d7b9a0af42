//! A process's place in the network: its memory, its listeners, its threads, and the engine between them.

use std::io;
use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tweed_proto::late::Limits;

use crate::connect::admission::listener::Listener;
use crate::connect::admission::pending::Pending;
use crate::connect::admission::{Admission, Keys, Refusals};
use crate::connect::descriptor::{boot_id, host_name, network_id, random_hex, PeerDescriptor, PROTOCOL};
use crate::connect::directory::Directory;
use crate::connect::process;
use crate::connect::tcp_handshake::Link;
use crate::engine::watcher::{Post, Watcher};
use crate::engine::{Engine, Inbox};
use crate::error::EngineError;
use crate::group::Group;
use crate::link::shared_memory::Arena;
use crate::link::wakeup::Wakeup;
use crate::ltp::endpoints::DatagramEndpoints;
use crate::operation::active::Home;
use crate::operation::config::GroupConfig;
use crate::operation::plans::{PlanRow, Plans};
use crate::secure::hex;

/// How a node is set up.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The address to listen on for ranks that share no memory with this one.
    pub host: IpAddr,
    /// TCP connections per pair.
    pub streams: u32,
    /// Congestion control of these connections; `None`: the system's.
    pub congestion: Option<String>,
    /// Never use shared memory.
    pub wire_only: bool,
    /// Write how each operation went to a file in this folder, to be replayed in the simulator.
    pub traces: Option<PathBuf>,
    /// How late a step may be; `None`: as late as the caller's timeout allows.
    pub deadline: Option<Duration>,
    /// What it lets in.
    pub admission: Admission,
}

impl NodeOptions {
    /// The timeouts of a call of which nothing is known, where the caller allows `most`.
    pub(crate) fn limits(&self, most: Duration) -> Limits {
        Limits::derive(self.deadline, None, most)
    }
}

/// What makes a group.
pub struct GroupSpec {
    /// For people.
    pub name: String,
    /// The same at all ranks, and of no other group.
    pub number: u32,
    /// This process's rank.
    pub rank: u32,
    /// The address cards of all ranks.
    pub cards: Vec<Vec<u8>>,
    /// Which schedule runs what.
    pub rows: Vec<PlanRow>,
    /// How long an operation may take unless it says otherwise.
    pub timeout: Duration,
    /// Who contributes, and what may be lost.
    pub terms: GroupConfig,
}

/// What the threads of a node have in common.
pub(crate) struct Inner {
    pub(crate) options: NodeOptions,
    pub(crate) card: PeerDescriptor,
    pub(crate) process: u32,
    pub(crate) arena: Arc<Arena>,
    pub(crate) bell: u64,
    pub(crate) engine: Mutex<Engine>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) endpoints: Arc<DatagramEndpoints>,
    pub(crate) watcher: Post,
    /// Held by the caller that drives while it waits.
    pub(crate) attendant: Mutex<()>,
    /// Held while a group is joined.
    pub(crate) joining: Mutex<()>,
    /// `None` without a secret.
    pub(crate) keys: Option<Keys>,
    /// `None` if it only dials out.
    pub(crate) listener: Option<Arc<Listener>>,
    /// Which processes it has met, by which calls.
    pub(crate) directory: Mutex<Directory>,
    /// How many calls it has made.
    pub(crate) attempts: AtomicU64,
    /// Who has called and was not named by a group yet.
    pub(crate) pending: Mutex<Pending<Link>>,
    /// A connection became pending, or a peer.
    pub(crate) met: Condvar,
    pub(crate) refusals: Refusals,
    pub(crate) stopping: AtomicBool,
}

/// A process's place in the network.
pub struct Node {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
}

impl Node {
    /// Opens the listeners and starts its threads.
    pub fn start(options: NodeOptions) -> Result<Node, EngineError> {
        options.admission.check(options.host)?;
        let listener = open_porch(&options)?;
        let keys = options.admission.keys()?;
        let (inner, watcher) = open(options, listener.clone(), keys)
            .map_err(|e| EngineError::setup("the engine cannot be started", e))?;
        let (one, other) = (Arc::clone(&inner), Arc::clone(&inner));
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.into()).spawn(run)
        };
        let mut threads = vec![
            spawn("tweed-watch", Box::new(move || watcher.run(&one))),
            spawn("tweed-drive", Box::new(move || other.drive_in_background())),
        ];
        if let Some(listener) = listener {
            let node = Arc::clone(&inner);
            threads.push(spawn("tweed-door", Box::new(move || listener.run(&node))));
        }
        let threads = threads.into_iter().collect::<io::Result<Vec<_>>>();
        let threads = threads.map_err(|e| EngineError::setup("the engine's threads cannot be started", e))?;
        Ok(Node { inner, threads })
    }

    /// The address card to give to the other ranks.
    pub fn card(&self) -> Vec<u8> {
        self.inner.current_card().encode()
    }

    /// How many callers were turned away, by reason.
    pub fn refused(&self) -> Vec<(&'static str, u64)> {
        self.inner.refusals.counts()
    }

    /// Meets the other ranks. All of them must call it.
    pub fn join(&self, spec: GroupSpec) -> Result<Group, EngineError> {
        self.join_unless(spec, &|| false)
    }

    /// As [`Node::join`], but ends as soon as `interrupted` holds, which is asked on this thread, some times a second.
    pub fn join_unless(&self, spec: GroupSpec, interrupted: &dyn Fn() -> bool) -> Result<Group, EngineError> {
        self.inner.check_process()?;
        if let Some(why) = spec.terms.objection(spec.cards.len() as u32) {
            return Err(EngineError::Usage(format!("group {:?}: {why}", spec.name)));
        }
        let plans = Plans::new(spec.rows.clone(), &spec.terms)?;
        let _one_at_a_time = self.inner.joining(interrupted)?;
        let members = Arc::new(self.inner.meet_all(&spec, interrupted)?);
        lock(&self.inner.engine).open_group(Arc::clone(&members))?;
        self.inner.ring();
        Ok(Group::new(Arc::clone(&self.inner), members, plans))
    }

    /// Shared memory that peers on this host read and write in place.
    pub fn alloc(&self, bytes: u64) -> Option<*mut u8> {
        self.inner.alloc(bytes)
    }

    /// Gives back what `alloc` returned.
    pub fn free(&self, address: *mut u8) {
        self.inner.free(address);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.inner.check_process().is_err() {
            // The threads are the parent's.
            return std::mem::forget(std::mem::take(&mut self.threads));
        }
        self.inner.send_bye();
        self.inner.endpoints.close();
        self.inner.stopping.store(true, Ordering::Release);
        if let Some(listener) = &self.inner.listener {
            listener.close();
        }
        self.inner.watcher.wake();
        self.inner.ring();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn open_porch(options: &NodeOptions) -> Result<Option<Arc<Listener>>, EngineError> {
    if options.admission.dial_only {
        return Ok(None);
    }
    let open = || {
        let listener = Listener::bind(options.host)?;
        // Strangers gain nothing there. Without a secret it opens when a group needs it.
        options.admission.secret.as_ref().map(|_| listener.listen()).transpose()?;
        Ok(listener)
    };
    let opened = open().map_err(|e| not_ours(options.host, &e));
    opened.map(|p| Some(Arc::new(p))).map_err(|e| EngineError::setup("the engine cannot be started", e))
}

fn open(
    options: NodeOptions,
    listener: Option<Arc<Listener>>,
    keys: Option<Keys>,
) -> io::Result<(Arc<Inner>, Watcher)> {
    // Every user of the host can list the names of local sockets, so it is none by which anything else is known.
    let local_name = format!("tweed-{}", random_hex()?);
    let local = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&local_name)?)?;
    let card = PeerDescriptor {
        protocol: PROTOCOL,
        key: keys.as_ref().map(|k| hex(&k.identity.public)),
        uid: random_hex()?,
        host: host_name(),
        pid: std::process::id(),
        started: process::own_start(),
        pids: process::pid_namespace(),
        boot: boot_id(),
        network: network_id(),
        local: local_name,
        nonce: random_hex()?,
        tcp: listener.as_ref().map(|p| p.address()).transpose()?,
        wire_only: options.wire_only,
        broken: Vec::new(),
    };
    let arena = Arc::new(Arena::new()?);
    let bell = arena.take(size_of::<Wakeup>() as u64).ok_or(io::ErrorKind::OutOfMemory)?;
    let (watcher, post) = Watcher::new(local)?;
    let inbox = Arc::new(Inbox::default());
    let endpoints = Arc::new(DatagramEndpoints::default());
    let home = Home {
        arena: Arc::clone(&arena),
        traces: options.traces.clone(),
        deadline: options.deadline,
        endpoints: Arc::clone(&endpoints),
    };
    let inner = Inner {
        options,
        card,
        process: std::process::id(),
        engine: Mutex::new(Engine::new(home, Arc::clone(&inbox))),
        arena,
        bell,
        inbox,
        endpoints,
        watcher: post,
        attendant: Mutex::default(),
        joining: Mutex::default(),
        keys,
        listener,
        directory: Mutex::default(),
        attempts: AtomicU64::new(0),
        pending: Mutex::default(),
        met: Condvar::new(),
        refusals: Refusals::default(),
        stopping: AtomicBool::new(false),
    };
    Ok((Arc::new(inner), watcher))
}

fn not_ours(host: IpAddr, error: &io::Error) -> io::Error {
    let advice = "TWEED_HOST must be an address of this machine, and `ip -brief address` lists them";
    io::Error::new(error.kind(), format!("it cannot listen on {host}: {error}. {advice}"))
}

/// A poisoned lock means that a thread panicked; what it guards is still whole enough to shut down.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
