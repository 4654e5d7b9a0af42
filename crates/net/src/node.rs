//! A process's place in the network: its memory, its listeners, its threads, and the engine between them.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tweed_proto::engine::config::GroupConfig;
use tweed_proto::engine::{Engine, EngineError, Settings, MOST_AHEAD_BYTES};
use tweed_proto::late::Limits;

use crate::connect::admission::listener::Listener;
use crate::connect::admission::{Admission, Keys, Refusals};
use crate::connect::descriptor::{boot_id, host_name, network_id, random_hex, PeerDescriptor, PROTOCOL};
use crate::connect::admission::pending::Pending;
use crate::connect::directory::Directory;
use crate::connect::process;
use crate::engine::callbacks::Callbacks;
use crate::engine::live::Live;
use crate::engine::watcher::Watcher;
use crate::group::Group;
use crate::link::lease::{ProcessPage, MOST_LEASES};
use crate::link::shared_memory::Arena;
use crate::operation::plans::{PlanRow, Plans};
use crate::secure::hex;
use crate::state::Inner;
use crate::sync::{Condvar, LockRank, Mutex};

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
        let listener = open_listener(&options)?;
        let keys = options.admission.keys()?;
        let (inner, watcher) = open(options, listener.clone(), keys)
            .map_err(|e| EngineError::setup("the engine cannot be started", e))?;
        let one = Arc::clone(&inner);
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.into()).spawn(run)
        };
        let mut threads = vec![spawn("tweed-watch", Box::new(move || watcher.run(&one)))];
        if let Some(listener) = listener {
            let node = Arc::clone(&inner);
            threads.push(spawn("tweed-door", Box::new(move || listener.run(&node))));
        }
        let threads = threads.into_iter().collect::<io::Result<Vec<_>>>();
        let threads = Callbacks::start(&inner).and(threads);
        let threads = threads.map_err(|e| EngineError::setup("the engine's threads cannot be started", e))?;
        let threads = Mutex::new(LockRank::NodeThreads, threads);
        Ok(Node { inner, threads, joined: Mutex::new(LockRank::Joined, Vec::new()) })
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
        if self.inner.is_stopping() {
            let text = format!("group {:?}: the engine has left the network, as the process ends", spec.name);
            return Err(EngineError::Usage(text));
        }
        if let Some(why) = spec.terms.objection(spec.cards.len() as u32) {
            return Err(EngineError::Usage(format!("group {:?}: {why}", spec.name)));
        }
        let plans = Plans::new(spec.rows.clone(), &spec.terms)?;
        let _one_at_a_time = self.inner.joining(interrupted)?;
        let (members, status) = self.inner.meet_all(&spec, interrupted)?;
        let members = Arc::new(members);
        let mut engine = self.inner.engine.lock();
        engine.open_group(Arc::clone(&members))?;
        engine.host.status.insert(members.number, status);
        drop(engine);
        self.inner.ring();
        self.joined.lock().push(spec.number);
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
        std::mem::forget(std::mem::take(self.threads.get_mut()));
    }
}

fn open_listener(options: &NodeOptions) -> Result<Option<Arc<Listener>>, EngineError> {
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
    crate::link::fork::shut_in_children(&local);
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
    let page = arena.take(size_of::<ProcessPage>() as u64).ok_or(io::ErrorKind::OutOfMemory)?;
    let (watcher, post) = Watcher::new(local)?;
    let live = Live {
        arena,
        page,
        inbox: Arc::new(Mutex::new(LockRank::Inbox, Vec::new())),
        endpoints: Arc::default(),
        watcher: Arc::new(post),
        pool: Arc::default(),
        withdrawn: Arc::default(),
        traces: options.traces.clone(),
        links: Vec::new(),
        datagrams: BTreeMap::new(),
        status: BTreeMap::new(),
    };
    let settings = Settings {
        deadline: options.deadline,
        records: options.traces.is_some(),
        leases: MOST_LEASES,
        ahead_bytes: MOST_AHEAD_BYTES,
    };
    let inner = Inner {
        card,
        process: std::process::id(),
        page,
        began: Instant::now(),
        arena: Arc::clone(&live.arena),
        inbox: Arc::clone(&live.inbox),
        endpoints: Arc::clone(&live.endpoints),
        watcher: Arc::clone(&live.watcher),
        pool: Arc::clone(&live.pool),
        withdrawn: Arc::clone(&live.withdrawn),
        engine: Mutex::new(LockRank::Engine, Engine::new(live, settings)),
        options,
        callbacks: Callbacks::default(),
        seat: Mutex::new(LockRank::Seat, ()),
        joining: Mutex::new(LockRank::Joining, ()),
        keys,
        listener,
        directory: Mutex::new(LockRank::Directory, Directory::default()),
        attempts: AtomicU64::new(0),
        pending: Mutex::new(LockRank::Pending, Pending::default()),
        met: Condvar::default(),
        refusals: Refusals::default(),
        stopping: AtomicBool::new(false),
    };
    Ok((Arc::new(inner), watcher))
}

fn not_ours(host: IpAddr, error: &io::Error) -> io::Error {
    let advice = "TWEED_HOST must be an address of this machine, and `ip -brief address` lists them";
    io::Error::new(error.kind(), format!("it cannot listen on {host}: {error}. {advice}"))
}
