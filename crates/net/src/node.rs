//! A process's place in the network: its memory, its listeners, its threads, and the engine between them.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tweed_proto::Reach;

use crate::arena::Arena;
use crate::bell::Bell;
use crate::card::{boot_id, host_name, network_id, random_uid, Card, PROTOCOL};
use crate::engine::{Engine, Event, Inbox};
use crate::error::EngineError;
use crate::group::{Group, Membership, PlanRow, Tuning};
use crate::links::{Peer, Shared};
use crate::meet::{dial_local, receive_greeting, send_greeting, Greeting, Home, PATIENCE};
use crate::message::{Kind, Message};
use crate::op::Op;
use crate::stream::{Payload, Socket, Stream};
use crate::watch::{Post, Watch, Watcher};

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
}

/// How the engine stands after it was driven.
struct State {
    /// See [`Engine::needs`].
    needs: Option<u32>,
    busy: bool,
    deadline: Option<Instant>,
    /// Some operation has ended.
    ended: bool,
}

/// What the threads of a node have in common.
pub(crate) struct Inner {
    options: NodeOptions,
    card: Card,
    process: u32,
    arena: Arc<Arena>,
    bell: u64,
    engine: Mutex<Engine>,
    inbox: Arc<Inbox>,
    pub(crate) watcher: Post,
    /// Held by the caller that drives while it waits.
    attendant: Mutex<()>,
    /// Held while a group is joined.
    joining: Mutex<()>,
    /// Streams of peers that have not opened all of theirs.
    half: Mutex<HashMap<String, Vec<Option<TcpStream>>>>,
    met: Condvar,
    meetings: Mutex<u64>,
    stopping: AtomicBool,
}

/// A process's place in the network.
pub struct Node {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
}

impl Node {
    /// Opens the listeners and starts two threads.
    pub fn start(options: NodeOptions) -> Result<Node, EngineError> {
        let (inner, watcher) = open(options).map_err(|e| EngineError::setup("the engine cannot be started", e))?;
        let (one, other) = (Arc::clone(&inner), Arc::clone(&inner));
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| std::thread::Builder::new().name(name.into()).spawn(run);
        let threads = [
            spawn("tweed-watch", Box::new(move || watcher.run(&one))),
            spawn("tweed-drive", Box::new(move || other.drive_in_background())),
        ];
        let threads = threads.into_iter().collect::<io::Result<Vec<_>>>();
        let threads = threads.map_err(|e| EngineError::setup("the engine's threads cannot be started", e))?;
        Ok(Node { inner, threads })
    }

    /// The address card to give to the other ranks.
    pub fn card(&self) -> Vec<u8> {
        self.inner.card.encode()
    }

    /// Meets the other ranks. All of them must call it.
    pub fn join(&self, spec: GroupSpec) -> Result<Group, EngineError> {
        self.inner.check_process()?;
        let _one_at_a_time = lock(&self.inner.joining);
        let members = Arc::new(self.inner.meet_all(&spec)?);
        lock(&self.inner.engine).open_group(Arc::clone(&members))?;
        self.inner.ring();
        Ok(Group::new(Arc::clone(&self.inner), members, spec.rows))
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
        self.inner.say_bye();
        self.inner.stopping.store(true, Ordering::Release);
        self.inner.watcher.wake();
        self.inner.ring();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn open(options: NodeOptions) -> io::Result<(Arc<Inner>, Watcher)> {
    let uid = random_uid()?;
    let local_name = format!("tweed-{uid}");
    let local = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&local_name)?)?;
    let wire = TcpListener::bind((options.host, 0))?;
    let card = Card {
        protocol: PROTOCOL,
        uid,
        host: host_name(),
        pid: std::process::id(),
        boot: boot_id(),
        network: network_id(),
        local: local_name,
        tcp: wire.local_addr()?,
        wire_only: options.wire_only,
    };
    let arena = Arc::new(Arena::new()?);
    let bell = arena.take(size_of::<Bell>() as u64).ok_or(io::ErrorKind::OutOfMemory)?;
    let (watcher, post) = Watcher::new(local, wire)?;
    let inbox = Arc::new(Inbox::default());
    let inner = Inner {
        options,
        card,
        process: std::process::id(),
        engine: Mutex::new(Engine::new(Arc::clone(&arena), Arc::clone(&inbox))),
        arena,
        bell,
        inbox,
        watcher: post,
        attendant: Mutex::default(),
        joining: Mutex::default(),
        half: Mutex::default(),
        met: Condvar::new(),
        meetings: Mutex::default(),
        stopping: AtomicBool::new(false),
    };
    Ok((Arc::new(inner), watcher))
}

// ---- driving

impl Inner {
    fn bell(&self) -> &Bell {
        let address = self.arena.mapping().at(self.bell, size_of::<Bell>() as u64).expect("the bell lies in the arena");
        // SAFETY: the block was taken for the bell, is zeroed by the kernel, and lives as long as the arena.
        unsafe { &*address.cast::<Bell>() }
    }

    fn ring(&self) {
        self.bell().ring_all();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Leaves something for the engine, to be seen when it is next driven.
    pub(crate) fn enqueue(&self, event: Event) {
        lock(&self.inbox).push(event);
    }

    /// Leaves something for the engine and has it driven.
    pub(crate) fn post(&self, event: Event) {
        self.enqueue(event);
        self.ring();
    }

    pub(crate) fn post_all(&self, events: Vec<Event>) {
        lock(&self.inbox).extend(events);
        self.ring();
    }

    /// Has what was enqueued begun: on this thread if it is little and the engine is free, else in the background.
    pub(crate) fn set_off(&self, little: bool) {
        match self.engine.try_lock() {
            Ok(engine) if little => {
                self.drive_for_others(engine);
            }
            _ => self.ring(),
        }
    }

    /// Drives the engine for somebody who does not attend: a caller who does is told of what has ended.
    fn drive_for_others(&self, engine: MutexGuard<'_, Engine>) -> State {
        let state = self.drive(engine);
        if state.ended && self.bell().is_attended() {
            self.ring();
        }
        state
    }

    /// Drives the engine, then tells the callers of what has ended.
    fn drive(&self, mut engine: MutexGuard<'_, Engine>) -> State {
        engine.drive();
        let ended = engine.take_ended();
        let (needs, busy, deadline) = (engine.needs(), engine.is_busy(), engine.next_deadline());
        let state = State { needs, busy, deadline, ended: !ended.is_empty() };
        drop(engine);
        for (op, result) in ended {
            op.end(result);
        }
        state
    }

    fn drive_in_background(&self) {
        while !self.is_stopping() {
            let seen = self.bell().count();
            let State { needs, deadline, .. } = self.drive_for_others(lock(&self.engine));
            let timeout = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            self.bell().sleep_in_background(seen, needs.is_none(), timeout, || self.has_messages());
        }
    }

    fn has_messages(&self) -> bool {
        lock(&self.engine).links.has_messages()
    }

    /// Waits until `op` has ended, driving the engine meanwhile unless somebody else does.
    pub(crate) fn wait(&self, op: &Op, limit: Option<Duration>) -> bool {
        let until = limit.and_then(|l| Instant::now().checked_add(l));
        while !op.is_ended() {
            let left = until.map_or(Duration::from_secs(3600), |u| u.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return false;
            }
            match self.attendant.try_lock() {
                Ok(_guard) => {
                    if !self.attend(op, left) {
                        return op.is_ended();
                    }
                }
                Err(_) => op.sleep(left.min(Duration::from_millis(50))),
            }
        }
        true
    }

    /// Drives until `op` has ended; `false` if a signal came in or the time is over.
    fn attend(&self, op: &Op, left: Duration) -> bool {
        self.bell().attend(true);
        let until = Instant::now() + left;
        let mut go_on = true;
        let mut busy = false;
        while go_on && !op.is_ended() {
            let seen = self.bell().count();
            let state = self.drive(lock(&self.engine));
            busy = state.busy;
            if op.is_ended() {
                break;
            }
            let next = state.deadline.map_or(until, |d| d.min(until)).saturating_duration_since(Instant::now());
            let undisturbed = self.bell().sleep_as_waiter(seen, state.needs, next, || self.has_messages());
            go_on = undisturbed && Instant::now() < until;
        }
        self.bell().attend(false);
        if busy {
            self.ring();
        }
        go_on
    }

    pub(crate) fn wire_settings(&self) -> String {
        let system = || std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap_or_default();
        let congestion = self.options.congestion.clone().unwrap_or_else(system);
        format!("{} TCP streams per pair, congestion control {}", self.options.streams, congestion.trim())
    }

    pub(crate) fn alloc(&self, bytes: u64) -> Option<*mut u8> {
        let offset = self.arena.take(bytes)?;
        self.arena.mapping().at(offset, bytes)
    }

    pub(crate) fn free(&self, address: *mut u8) {
        if let Some(offset) = self.arena.mapping().offset_of(address, 0) {
            self.arena.give_pages(offset);
        }
    }

    pub(crate) fn close_group(&self, number: u32) {
        if self.check_process().is_err() {
            return;
        }
        let mut engine = lock(&self.engine);
        engine.drive();
        engine.close_group(number);
        self.drive_for_others(engine);
    }

    /// Refuses to work in a fork of the process that started the engine.
    pub(crate) fn check_process(&self) -> Result<(), EngineError> {
        let here = std::process::id();
        if here == self.process {
            return Ok(());
        }
        Err(EngineError::Forked(format!(
            "process {here} is a fork of process {}, which had started the engine: its threads and links did not come along. \
             Fork first and call init_process_group in the child, or start ranks with spawn or forkserver",
            self.process
        )))
    }
}

// ---- meeting

impl Inner {
    fn home(&self) -> Home<'_> {
        Home { arena: &self.arena, bell: self.bell, uid: &self.card.uid, host: &self.card.host }
    }

    fn meet_all(self: &Arc<Self>, spec: &GroupSpec) -> Result<Membership, EngineError> {
        let cards = spec.cards.iter().enumerate().map(|(rank, bytes)| Card::decode(rank, bytes)).collect::<Result<Vec<_>, _>>()?;
        self.check_cards(spec, &cards)?;
        for card in cards.iter().filter(|c| self.card.uid < c.uid && self.find(&c.uid).is_none()) {
            self.dial(card).map_err(|e| self.unreachable(spec, &cards, card, &e.to_string()))?;
        }
        let deadline = Instant::now() + spec.timeout;
        let mut peers = Vec::new();
        for card in &cards {
            let peer = if card.uid == self.card.uid { Some(usize::MAX) } else { self.wait_for(&card.uid, deadline) };
            let late = || self.unreachable(spec, &cards, card, "it did not call within the group's timeout");
            peers.push(peer.ok_or_else(late)?);
        }
        let reach: Vec<Reach> = cards.iter().map(|c| if c.uid == self.card.uid || self.card.shares_memory_with(c) { Reach::Shared } else { Reach::Wire }).collect();
        // All ranks must cut buffers alike, so the slowest kind of link anywhere in the group decides.
        let has_wires = cards.iter().any(|a| cards.iter().any(|b| a.uid != b.uid && !a.shares_memory_with(b)));
        let tuning = if has_wires { Tuning::WIRE } else { Tuning::SHARED };
        let GroupSpec { name, number, rank, timeout, .. } = spec;
        Ok(Membership { number: *number, name: name.clone(), rank: *rank, peers, reach, has_wires, tuning, timeout: *timeout })
    }

    fn check_cards(&self, spec: &GroupSpec, cards: &[Card]) -> Result<(), EngineError> {
        let own = cards.get(spec.rank as usize).is_some_and(|c| c.uid == self.card.uid);
        if !own {
            let text = format!("group {:?}: the card of rank {} is not this process's; do two processes have that rank?", spec.name, spec.rank);
            return Err(EngineError::Usage(text));
        }
        for (rank, card) in cards.iter().enumerate() {
            if let Some(twin) = cards[..rank].iter().position(|c| c.uid == card.uid) {
                let text = format!("group {:?}: ranks {twin} and {rank} are the same process", spec.name);
                return Err(EngineError::Usage(text));
            }
        }
        Ok(())
    }

    fn unreachable(&self, spec: &GroupSpec, cards: &[Card], card: &Card, why: &str) -> EngineError {
        let rank = cards.iter().position(|c| c.uid == card.uid).unwrap_or(0);
        let place = if self.card.shares_memory_with(card) { format!("process {}", card.pid) } else { card.tcp.to_string() };
        EngineError::PeerLost(format!(
            "group {:?}: rank {rank} on {} ({place}) cannot be reached: {why}. Is it still running, and does a firewall let {place} through?",
            spec.name, card.host
        ))
    }

    fn find(&self, uid: &str) -> Option<usize> {
        lock(&self.engine).links.find(uid)
    }

    fn wait_for(&self, uid: &str, deadline: Instant) -> Option<usize> {
        let mut meetings = lock(&self.meetings);
        loop {
            if let Some(peer) = self.find(uid) {
                return Some(peer);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            meetings = self.met.wait_timeout(meetings, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn dial(self: &Arc<Self>, card: &Card) -> io::Result<()> {
        if self.card.shares_memory_with(card) {
            let socket = dial_local(&card.local)?;
            return self.admit_neighbour(&socket);
        }
        let mut sockets = Vec::new();
        for stream in 0..self.options.streams.max(1) {
            let socket = TcpStream::connect_timeout(&card.tcp, PATIENCE)?;
            self.prepare(&socket)?;
            send_greeting(&socket, &Greeting::new(&self.card.uid, &self.card.host, stream, self.options.streams.max(1)))?;
            receive_greeting(&socket)?;
            sockets.push(socket);
        }
        self.add_peer(&card.uid, &card.host, None, sockets.into_iter().map(wire_stream).collect::<io::Result<_>>()?);
        Ok(())
    }

    /// Somebody called on the local socket.
    pub(crate) fn greet_local(self: &Arc<Self>, socket: UnixStream) {
        self.greet(move |node| node.admit_neighbour(&socket));
    }

    /// Somebody called on the TCP socket.
    pub(crate) fn greet_wire(self: &Arc<Self>, socket: TcpStream) {
        self.greet(move |node| node.admit_wire(socket));
    }

    /// Greetings block, so each has a thread of its own. One that fails concerns nobody else.
    fn greet(self: &Arc<Self>, meet: impl FnOnce(&Arc<Inner>) -> io::Result<()> + Send + 'static) {
        let node = Arc::clone(self);
        let _ = std::thread::Builder::new().name("tweed-greet".into()).spawn(move || meet(&node));
    }

    fn admit_neighbour(self: &Arc<Self>, socket: &UnixStream) -> io::Result<()> {
        socket.set_nonblocking(false)?;
        let (theirs, shared) = self.home().meet(socket)?;
        let pid = peer_process(socket);
        let socket = socket.try_clone()?;
        socket.set_nonblocking(true)?;
        let stream = Stream::new(Socket::Local(mio::net::UnixStream::from_std(socket)));
        let peer = self.add_peer(&theirs.uid, &theirs.host, Some(shared), vec![stream]);
        if let Some(pid) = pid.filter(|&pid| pid != self.process) {
            self.watcher.watch(Watch::Process(peer, pid));
        }
        Ok(())
    }

    fn admit_wire(self: &Arc<Self>, socket: TcpStream) -> io::Result<()> {
        socket.set_nonblocking(false)?;
        self.prepare(&socket)?;
        let theirs = receive_greeting(&socket)?;
        if theirs.stream >= theirs.streams || theirs.streams > 64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        send_greeting(&socket, &Greeting::new(&self.card.uid, &self.card.host, theirs.stream, theirs.streams))?;
        let mut half = lock(&self.half);
        let streams = half.entry(theirs.uid.clone()).or_insert_with(|| (0..theirs.streams).map(|_| None).collect());
        if let Some(place) = streams.get_mut(theirs.stream as usize) {
            *place = Some(socket);
        }
        if streams.iter().all(Option::is_some) {
            let sockets = half.remove(&theirs.uid).unwrap_or_default().into_iter().flatten();
            let streams = sockets.map(wire_stream).collect::<io::Result<_>>()?;
            self.add_peer(&theirs.uid, &theirs.host, None, streams);
        }
        Ok(())
    }

    fn add_peer(&self, uid: &str, host: &str, shared: Option<Shared>, streams: Vec<Stream>) -> usize {
        let streams: Vec<Arc<Stream>> = streams.into_iter().map(Arc::new).collect();
        let mut engine = lock(&self.engine);
        let index = engine.links.peers.len();
        engine.links.peers.push(Peer::new(uid.to_owned(), host.to_owned(), shared, streams.clone()));
        drop(engine);
        for stream in streams {
            self.watcher.watch(Watch::Stream(index, stream));
        }
        *lock(&self.meetings) += 1;
        self.met.notify_all();
        self.ring();
        index
    }

    fn prepare(&self, socket: &TcpStream) -> io::Result<()> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let Some(name) = &self.options.congestion else { return Ok(()) };
        // SAFETY: the name's bytes are as long as said.
        let set = unsafe {
            libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_CONGESTION, name.as_ptr().cast(), name.len() as u32)
        };
        if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn say_bye(&self) {
        let engine = lock(&self.engine);
        for stream in engine.links.peers.iter().filter(|p| p.lost.is_none()).filter_map(|p| p.streams.first()) {
            let _ = stream.send(&Message::new(Kind::Bye, 0, 0), Payload::Nothing);
        }
    }
}

fn wire_stream(socket: TcpStream) -> io::Result<Stream> {
    socket.set_nonblocking(true)?;
    Ok(Stream::new(Socket::Tcp(mio::net::TcpStream::from_std(socket))))
}

/// The process at the other end of a local socket; none if it is not visible from here.
fn peer_process(socket: &UnixStream) -> Option<u32> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as u32;
    let place = (&raw mut credentials).cast();
    // SAFETY: the place is as long as said.
    let got = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, place, &mut length) };
    (got == 0 && credentials.pid > 0).then_some(credentials.pid as u32)
}

/// A poisoned lock means that a thread panicked; what it guards is still whole enough to shut down.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
