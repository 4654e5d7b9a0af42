//! The thread that watches sockets: reads what comes over wires, and sees peers go.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use tweed_proto::engine::message::{Kind, Message};
use tweed_proto::engine::{Address, Engine, Event};

use super::driver::Driver;
use super::live::Live;
use crate::link::reader::{Body, Reader, Sink};
use crate::link::stream::Stream;
use crate::operation::compute::compute;
use crate::sync::{LockRank, Mutex, MutexGuard};

const WAKE: Token = Token(0);

/// A link that another process hands on ends with that one too, whose own link may be seen to end a little later.
const BLAME: Duration = Duration::from_millis(200);
/// It looks so often meanwhile.
const LOOK: Duration = Duration::from_millis(5);

/// Something new to watch.
pub(crate) enum Watch {
    /// A peer's stream, by its place among them.
    Stream(usize, usize, Arc<Stream>),
    /// The end of the process with that number.
    Process(usize, u32),
    /// Nothing of a lost peer any more.
    Forget(usize),
}

enum Source {
    Stream(usize, usize, Arc<Stream>, Reader),
    Process(usize, OwnedFd),
}

/// How other threads reach the watcher.
pub(crate) struct WatcherHandle {
    added: Mutex<Vec<Watch>>,
    waker: Waker,
}

impl WatcherHandle {
    pub(crate) fn watch(&self, watch: Watch) {
        self.added.lock().push(watch);
        let _ = self.waker.wake();
    }

    /// Wakes the thread, so that it sees that it is to stop.
    pub(crate) fn wake(&self) {
        let _ = self.waker.wake();
    }
}

/// The watcher's own state.
pub(crate) struct Watcher {
    poll: Poll,
    sources: HashMap<Token, Source>,
    next: usize,
    /// Links that were handed on and have ended: the peer, what was wrong, and until when its relay may be seen to be gone.
    ended: Vec<(usize, Option<String>, Instant)>,
}

impl Watcher {
    /// It watches nothing yet.
    pub(crate) fn new() -> io::Result<(Watcher, WatcherHandle)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        let handle = WatcherHandle { added: Mutex::new(LockRank::Added, Vec::new()), waker };
        Ok((Watcher { poll, sources: HashMap::new(), next: 1, ended: Vec::new() }, handle))
    }

    /// Runs until the node stops.
    pub(crate) fn run(mut self, node: &Arc<Driver>) {
        let mut events = Events::with_capacity(64);
        while !node.is_stopping() {
            let pause = (!self.ended.is_empty()).then_some(LOOK);
            if self.poll.poll(&mut events, pause).is_err() {
                continue;
            }
            self.add_new(node);
            for event in events.iter().filter(|event| event.token() != WAKE) {
                self.attend(node, event.token());
            }
            self.blame(node);
        }
    }

    /// Says why links that were handed on have ended: the peer is gone, or the process that handed them on.
    fn blame(&mut self, node: &Arc<Driver>) {
        self.ended.retain(|(peer, why, until)| {
            let Some((host, gone)) = relay_of(node, *peer) else { return false };
            if !gone && Instant::now() < *until {
                return true;
            }
            let why = match (gone, why) {
                (true, _) => format!("who handed on what it sent, on {host}, is gone; it may run still"),
                (false, Some(why)) => format!("{why}, as came through {host}"),
                (false, None) => format!("its connection, through {host}, was closed"),
            };
            node.post(Event::Lost(*peer, why));
            false
        });
    }

    fn add_new(&mut self, node: &Arc<Driver>) {
        let added = std::mem::take(&mut *node.watcher.added.lock());
        for watch in added {
            if let Watch::Forget(peer) = watch {
                self.sources.retain(|_, source| source.peer() != peer);
                continue;
            }
            let token = Token(self.next);
            self.next += 1;
            if let Some(source) = self.register(token, watch) {
                self.sources.insert(token, source);
                // What had come in before the socket was watched makes no new event.
                self.attend(node, token);
            }
        }
    }

    fn register(&self, token: Token, watch: Watch) -> Option<Source> {
        let registry = self.poll.registry();
        match watch {
            Watch::Stream(peer, index, stream) => {
                let both = Interest::READABLE | Interest::WRITABLE;
                registry.register(&mut SourceFd(&stream.socket.as_raw_fd()), token, both).ok()?;
                Some(Source::Stream(peer, index, stream, Reader::default()))
            }
            Watch::Process(peer, pid) => {
                let fd = open_process(pid)?;
                registry.register(&mut SourceFd(&fd.as_raw_fd()), token, Interest::READABLE).ok()?;
                Some(Source::Process(peer, fd))
            }
            Watch::Forget(_) => None,
        }
    }

    /// What a process said before it ended lies in its sockets, and why it ended may lie in another's.
    fn read_last_messages(&mut self, node: &Arc<Driver>) {
        let speaks = |source: &Source| matches!(source, Source::Stream(..));
        let tokens: Vec<Token> = self.sources.iter().filter(|(_, s)| speaks(s)).map(|(&t, _)| t).collect();
        tokens.into_iter().for_each(|token| self.attend(node, token));
    }

    fn attend(&mut self, node: &Arc<Driver>, token: Token) {
        let gone = match self.sources.get_mut(&token) {
            None => None,
            Some(Source::Stream(peer, index, stream, reader)) => {
                attend_stream(node, (*peer, *index), stream, reader)
            }
            Some(Source::Process(peer, fd)) => {
                has_ended(fd).then(|| (*peer, Some("its process ended".to_owned())))
            }
        };
        if let Some((peer, why)) = gone {
            self.sources.remove(&token);
            self.read_last_messages(node);
            // What it said over its other streams before it went may still be on its way.
            let speaks = |source: &Source| matches!(source, Source::Stream(other, ..) if *other == peer);
            let broken = why.is_some();
            if relay_of(node, peer).is_some() {
                self.ended.push((peer, why, Instant::now() + BLAME));
                return;
            }
            if broken || !self.sources.values().any(speaks) {
                node.post(Event::Lost(peer, why.unwrap_or_else(|| "its connection was closed".into())));
            }
            if broken {
                // The other end would wait for answers. Not before the reason is known here: the end of the other
                // streams is none.
                let streams = node.engine.lock().host.links[peer].streams.clone();
                streams.iter().for_each(|s| s.socket.shut_down());
            }
        }
    }
}

/// The engine, locked, as it takes in what a peer sends.
struct Arrivals<'a> {
    node: &'a Driver,
    engine: MutexGuard<'a, Engine<Live>>,
    peer: usize,
}

impl Sink for Arrivals<'_> {
    fn place(&mut self, message: &Message) -> Body {
        match message.kind {
            Kind::Carried if self.address(message).is_some() => Body::Placed,
            Kind::Carried => Body::Owned(self.node.pool.take(message.bytes as usize)),
            kind if kind.has_payload() => Body::Owned(vec![0; message.bytes as usize]),
            _ => Body::Owned(Vec::new()),
        }
    }

    fn address(&mut self, message: &Message) -> Option<*mut u8> {
        self.engine.landing_place(self.peer, message).map(Address::as_ptr)
    }

    fn take(&mut self, message: Message, body: Body) {
        match body {
            Body::Owned(bytes) => self.engine.handle_message(self.peer, message, bytes.into()),
            Body::Placed => self.engine.handle_placed(self.peer, message),
            Body::Unwanted(_) => {}
        }
        if message.kind == Kind::Carried {
            // While it is still in the cache.
            while let Some(job) = self.engine.next_job(self.node.now()) {
                // SAFETY: as in `Driver::drive`.
                unsafe { compute(&job) };
                self.engine.handle_computed(job);
            }
        }
    }
}

/// Reads and writes what is possible, and has the engine go on with it. If the stream has ended: whose it was, and
/// what was wrong with it.
fn attend_stream(
    node: &Arc<Driver>,
    (peer, index): (usize, usize),
    stream: &Stream,
    reader: &mut Reader,
) -> Option<(usize, Option<String>)> {
    stream.socket.open_ahead();
    loop {
        let mut arrivals = Arrivals { node, engine: node.engine.lock(), peer };
        arrivals.engine.listen(node.now());
        let Engine { peers, host, .. } = &mut *arrivals.engine;
        peers.flush_stream(peer, index, host);
        let read = reader.read(&stream.socket, &mut arrivals);
        let neighbours = arrivals.engine.peers.has_neighbours();
        node.drive_for_others(arrivals.engine);
        if neighbours {
            // What a sleeping caller waits for of them may have changed under it.
            node.ring();
        }
        match read {
            Ok(true) => {}
            Ok(false) => return Some((peer, None)),
            Err(e) => return Some((peer, Some(e.to_string()))),
        }
        if !stream.socket.open_ahead() {
            return None;
        }
    }
}

/// The host of the process that hands on what goes to that peer, and whether it is lost.
fn relay_of(node: &Driver, peer: usize) -> Option<(String, bool)> {
    let engine = node.engine.lock();
    let uid = engine.host.links.get(peer)?.relay.as_ref()?;
    let known = (0..engine.peers.len()).rev().filter_map(|at| Some((at, engine.peers.get(at)?)));
    let relay = known.into_iter().find(|(_, p)| p.uid == *uid);
    Some(relay.map_or_else(|| ("another host".into(), true), |(_, p)| (p.host.clone(), p.lost.is_some())))
}

impl Source {
    fn peer(&self) -> usize {
        match self {
            Source::Stream(peer, ..) | Source::Process(peer, _) => *peer,
        }
    }
}

/// A descriptor that becomes readable when the process ends; none if the kernel or the namespace forbids it.
fn open_process(pid: u32) -> Option<OwnedFd> {
    // SAFETY: a plain system call.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    // SAFETY: a new descriptor that nobody else owns.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn has_ended(process: &OwnedFd) -> bool {
    let mut poll = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid entry.
    unsafe { libc::poll(&mut poll, 1, 0) == 1 }
}
