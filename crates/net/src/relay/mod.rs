//! This process as the third one through which two others reach each other that cannot call each other.
//!
//! # Theory of operation
//!
//! Both call this process's listener, and are admitted as any member is. In its greeting each names the other one
//! (`Greeting::relay_to`). Who comes first is *waiting*; when the other one comes, both are told that they are *joined*, and
//! from then on one thread, begun for the first pair, hands on what either sends. They make a link over that as over any
//! connection (`connect::relayed`), sealed from end to end: what passes here are records that this process has no keys for.
//!
//! Nothing is read of one socket while the other one has not taken what was read before, so each sender is slowed by its
//! own receiver, and a pair holds two pieces of `PIECE_BYTES` at most. When one end has ended, the other is told once it has
//! all that came before, and the pair is over when both have.
//!
//! Locks: `state`, with nothing under it. The thread takes it to look for new pairs.
//!
//! What cannot happen: who is not a member waits, or sends anything on; more than so many wait, or are joined; a pair that
//! does not read holds up another one.

mod pipe;
mod waiting;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};

use crate::framing::greeting::{self, Kind};
use crate::framing::Refusal;
use crate::sync::{LockRank, Mutex};
use pipe::{Pipe, Turn};
use waiting::Waiting;

/// So many pairs at most: those that come later are turned away.
const MOST_PAIRS: usize = 1024;
const PIECE_BYTES: usize = 64 << 10;
const WAKE: Token = Token(usize::MAX);

type Ends = [Arc<TcpStream>; 2];

struct Pair {
    ends: Ends,
    /// The pipes, each from the end of that place.
    pipes: [Pipe; 2],
}

impl Pair {
    /// Something has changed at one of its ends: whether there may be more to do at once.
    fn turn(&mut self, room: &mut [u8]) -> Turn {
        let [a, b] = &self.ends;
        let turns = [self.pipes[0].pump(a, b, room), self.pipes[1].pump(b, a, room)];
        if turns.contains(&Turn::More) {
            Turn::More
        } else {
            Turn::Waits
        }
    }

    fn is_over(&self) -> bool {
        self.pipes.iter().all(Pipe::is_over)
    }
}

struct State {
    waiting: Waiting<Arc<TcpStream>>,
    /// Pairs that the thread has not seen yet.
    joined: Vec<Ends>,
    thread: Option<(JoinHandle<()>, Arc<Waker>)>,
    closed: bool,
}

/// A relay between processes; the module's documentation describes it.
pub(crate) struct Relay {
    state: Mutex<State>,
    pairs: AtomicUsize,
}

impl Default for Relay {
    fn default() -> Relay {
        let (waiting, joined) = (Waiting::default(), Vec::new());
        let state = State { waiting, joined, thread: None, closed: false };
        Relay { state: Mutex::new(LockRank::Relay, state), pairs: AtomicUsize::new(0) }
    }
}

impl Relay {
    /// `from` has called for `to`, over a socket that does not block.
    pub(crate) fn enter(
        self: &Arc<Self>,
        (from, to): (&str, &str),
        socket: Arc<TcpStream>,
    ) -> Result<(), Refusal> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(Refusal::Interrupted);
        }
        let Some((first, second)) = state.waiting.meet(from, to, socket) else { return Ok(()) };
        if self.pairs() == MOST_PAIRS {
            return Err(Refusal::Crowd);
        }
        let waker = match &state.thread {
            Some((_, waker)) => Arc::clone(waker),
            None => {
                let (handle, waker) = self.begin()?;
                state.thread = Some((handle, Arc::clone(&waker)));
                waker
            }
        };
        // Either may speak at once: it waits in the kernel until the thread comes to it.
        for end in [&first, &second] {
            greeting::write(&**end, Kind::Joined, &[])?;
        }
        self.pairs.fetch_add(1, Ordering::AcqRel);
        state.joined.push([first, second]);
        Ok(waker.wake()?)
    }

    /// How many pairs have something to say, or have not both ended.
    pub(crate) fn pairs(&self) -> usize {
        self.pairs.load(Ordering::Acquire)
    }

    /// Hangs up on all. Returns the thread, which ends.
    pub(crate) fn close(&self) -> Option<JoinHandle<()>> {
        let mut state = self.state.lock();
        state.closed = true;
        state.waiting.clear();
        state.joined.clear();
        let (handle, waker) = state.thread.take()?;
        let _ = waker.wake();
        Some(handle)
    }

    fn begin(self: &Arc<Self>) -> io::Result<(JoinHandle<()>, Arc<Waker>)> {
        let poll = Poll::new()?;
        let (waker, relay) = (Arc::new(Waker::new(poll.registry(), WAKE)?), Arc::clone(self));
        let thread = std::thread::Builder::new().name("tweed-relay".into());
        // The thread keeps it: one that is dropped before it was seen wakes nobody.
        let kept = Arc::clone(&waker);
        let run = move || {
            relay.run(poll);
            drop(kept);
        };
        Ok((thread.spawn(run)?, waker))
    }

    fn run(&self, mut poll: Poll) {
        let (mut events, mut room) = (Events::with_capacity(64), vec![0; PIECE_BYTES]);
        let (mut pairs, mut ready, mut next) = (BTreeMap::new(), VecDeque::new(), 0);
        loop {
            let _ = poll.poll(&mut events, (!ready.is_empty()).then_some(Duration::ZERO));
            let new = {
                let mut state = self.state.lock();
                if state.closed {
                    return;
                }
                std::mem::take(&mut state.joined)
            };
            for ends in new {
                let both = Interest::READABLE | Interest::WRITABLE;
                let watch = |end: &Arc<TcpStream>| {
                    poll.registry().register(&mut SourceFd(&end.as_raw_fd()), Token(next), both)
                };
                match ends.iter().try_for_each(watch) {
                    Ok(()) => drop(pairs.insert(next, Pair { ends, pipes: Default::default() })),
                    Err(_) => drop(self.pairs.fetch_sub(1, Ordering::AcqRel)),
                }
                ready.push_back(next);
                next += 1;
            }
            let changed = events.iter().map(|event| event.token()).filter(|&token| token != WAKE);
            changed.for_each(|Token(number)| ready.push_back(number));
            for _ in 0..ready.len() {
                let Some(number) = ready.pop_front() else { break };
                let Some(pair) = pairs.get_mut(&number) else { continue };
                if pair.turn(&mut room) == Turn::More {
                    ready.push_back(number);
                } else if pair.is_over() {
                    pairs.remove(&number);
                    self.pairs.fetch_sub(1, Ordering::AcqRel);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener};
    use std::time::Instant;

    use super::*;

    /// Both ends of a connection; the second does not block.
    fn connection() -> (TcpStream, Arc<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (theirs, _) = listener.accept().unwrap();
        theirs.set_nonblocking(true).unwrap();
        (ours, Arc::new(theirs))
    }

    /// Two that a relay has joined, and have heard so.
    fn joined(relay: &Arc<Relay>, names: (&str, &str)) -> [TcpStream; 2] {
        let [(a, for_a), (b, for_b)] = [connection(), connection()];
        relay.enter(names, for_a).unwrap();
        relay.enter((names.1, names.0), for_b).unwrap();
        for end in [&a, &b] {
            greeting::read(end, Kind::Joined, 0).unwrap();
        }
        [a, b]
    }

    fn until(what: &str, happened: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !happened() {
            assert!(Instant::now() < end, "{what} did not happen");
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_one_sends_comes_to_the_other_and_so_does_its_end() {
        let relay = Arc::new(Relay::default());
        let [mut a, mut b] = joined(&relay, ("a", "b"));
        let sent: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 251) as u8).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                a.write_all(&sent).unwrap();
                a.shutdown(Shutdown::Write).unwrap();
            });
            let mut got = Vec::new();
            b.read_to_end(&mut got).unwrap();
            assert!(got == sent);
        });
        // The other way is open still.
        b.write_all(b"heard").unwrap();
        drop(b);
        let mut got = Vec::new();
        a.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"heard");
        until("the end", || relay.pairs() == 0);
        relay.close().unwrap().join().unwrap();
    }

    #[test]
    fn who_does_not_read_slows_its_own_sender_alone() {
        let relay = Arc::new(Relay::default());
        let [mut loud, _silent] = joined(&relay, ("a", "b"));
        loud.set_nonblocking(true).unwrap();
        let mut sent = 0;
        let mut blocked = None::<Instant>;
        // So much fits into kernels, and no more into the relay.
        while blocked.is_none_or(|since| since.elapsed() < Duration::from_millis(200)) {
            match loud.write(&[0; 1 << 16]) {
                Ok(bytes) => (sent, blocked) = (sent + bytes, None),
                Err(_) => {
                    blocked.get_or_insert_with(Instant::now);
                    std::thread::yield_now();
                }
            }
            assert!(sent < 64 << 20, "nothing holds it up");
        }
        let [mut c, mut d] = joined(&relay, ("c", "d"));
        c.write_all(b"others go on").unwrap();
        let mut got = [0; 12];
        d.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"others go on");
        relay.close().unwrap().join().unwrap();
    }

    #[test]
    fn a_relay_that_ends_hangs_up_and_lets_nobody_wait() {
        let relay = Arc::new(Relay::default());
        let [mut a, mut b] = joined(&relay, ("a", "b"));
        let (mut waits, for_it) = connection();
        relay.enter(("c", "d"), for_it).unwrap();
        relay.close().unwrap().join().unwrap();
        for end in [&mut a, &mut b, &mut waits] {
            assert_eq!(end.read(&mut [0]).unwrap_or(0), 0);
        }
        assert_eq!(relay.enter(("c", "d"), connection().1), Err(Refusal::Interrupted));
    }
}
