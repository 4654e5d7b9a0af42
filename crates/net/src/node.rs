//! A process's place in the network: its memory, its listeners, its threads, and the engine between them.

use std::io;
use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tweed_proto::late::Limits;

use crate::connect::admission::listener::Listener;
use crate::connect::admission::pending::Pending;
use crate::connect::admission::{Admission, Keys, Refusals};
use crate::connect::descriptor::{boot_id, host_name, network_id, random_uid, PeerDescriptor, PROTOCOL};
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
    /// Who has called and was not named by a group yet.
    pub(crate) pending: Mutex<Pending<Link>>,
    /// A connection became pending, or a peer.
    pub(crate) met: Condvar,
    pub(crate) refusals: Refusals,
    pub(crate) stopping: AtomicBool,
}

/// A process's place in the network.
pub struct Node {
    pub(crate) inner: Arc<Inner>,
    /// Empty once it has left.
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
    /// The numbers of all groups that it has joined.
    pub(crate) joined: Mutex<Vec<u32>>,
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
        Ok(Node { inner, threads: Mutex::new(threads), joined: Mutex::default() })
    }

    /// The address card to give to the other ranks.
    pub fn card(&self) -> Vec<u8> {
        self.inner.card.encode()
    }

    /// How many callers were turned away, by reason.
    pub fn refused(&self) -> Vec<(&'static str, u64)> {
        self.inner.refusals.counts()
    }

    /// Meets the other ranks. All of them must call it.
    pub fn join(&self, spec: GroupSpec) -> Result<Group, EngineError> {
        self.inner.check_process()?;
        if self.inner.is_stopping() {
            let text = format!("group {:?}: the engine has left the network, as the process ends", spec.name);
            return Err(EngineError::Usage(text));
        }
        if let Some(why) = spec.terms.objection(spec.cards.len() as u32) {
            return Err(EngineError::Usage(format!("group {:?}: {why}", spec.name)));
        }
        let plans = Plans::new(spec.rows.clone(), &spec.terms)?;
        let _one_at_a_time = lock(&self.inner.joining);
        let members = Arc::new(self.inner.meet_all(&spec)?);
        lock(&self.inner.engine).open_group(Arc::clone(&members))?;
        self.inner.ring();
        lock(&self.joined).push(spec.number);
        Ok(Group::new(Arc::clone(&self.inner), members, plans))
    }

    /// Shared memory that peers on this host read and write in place.
    pub fn alloc(&self, bytes: u64) -> Result<*mut u8, EngineError> {
        self.inner.check_process()?;
        self.inner.alloc(bytes).ok_or_else(|| {
            let advice = "free `tweed.empty` tensors first";
            EngineError::Usage(format!("no room for {bytes} bytes in shared memory; {advice}"))
        })
    }

    /// Gives back what `alloc` returned. In a fork nothing happens: the memory is the child's own.
    pub fn free(&self, address: *mut u8) {
        self.inner.free(address);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.leave();
        // In a fork they are the parent's.
        std::mem::forget(std::mem::take(&mut self.threads));
    }
}

fn open_porch(options: &NodeOptions) -> Result<Option<Arc<Listener>>, EngineError> {
    if options.admission.dial_only {
        return Ok(None);
    }
    let opened = Listener::open(options.host).map_err(|e| not_ours(options.host, &e));
    opened.map(|p| Some(Arc::new(p))).map_err(|e| EngineError::setup("the engine cannot be started", e))
}

fn open(
    options: NodeOptions,
    listener: Option<Arc<Listener>>,
    keys: Option<Keys>,
) -> io::Result<(Arc<Inner>, Watcher)> {
    let uid = random_uid()?;
    let local_name = format!("tweed-{uid}");
    let local = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&local_name)?)?;
    crate::link::fork::shut_in_children(&local);
    let card = PeerDescriptor {
        protocol: PROTOCOL,
        key: keys.as_ref().map(|k| hex(&k.identity.public)),
        check: keys.as_ref().map(|k| k.secret.check(&uid)),
        uid,
        host: host_name(),
        pid: std::process::id(),
        boot: boot_id(),
        network: network_id(),
        local: local_name,
        tcp: listener.as_ref().map(|p| p.address()).transpose()?,
        wire_only: options.wire_only,
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
