//! Who is introducing himself: so many at a time. The rest wait in the kernel's queue.
//!
//! Theory of operation. One thread serves: it accepts callers, and gives each one of `MOST_CALLERS` places. A caller is
//! *silent* until it has said something: so long it has no thread, and one `poll` watches all of them. Introductions block,
//! so with its first bytes a caller gets a thread of its own; it is *proven* once it has sent there what an honest one sends
//! at once. A silent one that hangs up, or says nothing for too long, has its introduction fail on the serving thread.
//! While all places are taken and more callers want in,
//!
//! - the one not proven that came first goes once it is older than its grace, which grows with its round trip: so a flood
//!   of connections that say nothing passes by at `MOST_CALLERS` per grace;
//! - if all are proven, the first goes that has used up its share of the time for an introduction: members need some
//!   round trips of it, so this meets callers that stall.
//!
//! Who had to go, and meant well, calls again. One lock guards all; nobody waits for anything else while holding it.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token, Waker};

use crate::sync::{LockRank, Mutex};

/// So many may be introducing themselves at a time. Each takes a file descriptor, of which a process often has 1024.
pub(super) const MOST_CALLERS: usize = 256;
/// When there are as many, a silent one that has taken longer than this and some round trips has to go.
const GRACE: Duration = Duration::from_millis(100);
/// What the serving thread is woken by, beside the callers' numbers.
const LISTENER: Token = Token(usize::MAX);
const WAKE: Token = Token(usize::MAX - 1);

type Socket = Arc<dyn AsRawFd + Send + Sync>;
type Introduction = Box<dyn FnOnce() + Send>;

struct Caller {
    number: u64,
    socket: Socket,
    since: Instant,
    round_trip: Duration,
    /// What its thread will do; `None` once it has begun.
    introduction: Option<Introduction>,
    /// It has sent what an honest one sends at once.
    proven: bool,
    /// It had to make room.
    evicted: bool,
}

impl Caller {
    /// When it may have to make room; `patience` is what an introduction may take.
    fn grace(&self, patience: Duration) -> Duration {
        if self.proven {
            patience / 4 + 8 * self.round_trip
        } else {
            GRACE + 4 * self.round_trip
        }
    }

    /// Hangs up. What is returned ends at once: there is nothing to be read.
    fn send_away(&mut self, registry: &Registry) -> Option<Introduction> {
        shut_down(&*self.socket);
        self.begin(registry)
    }

    /// From now on its introduction is somebody's business.
    fn begin(&mut self, registry: &Registry) -> Option<Introduction> {
        let introduction = self.introduction.take()?;
        let _ = registry.deregister(&mut SourceFd(&self.socket.as_raw_fd()));
        Some(introduction)
    }
}

/// Who has to make room next among these, and in how long.
fn next_to_go(callers: &mut [Caller], patience: Duration) -> Option<(&mut Caller, Duration)> {
    let present = callers.iter_mut().filter(|c| !c.evicted);
    let left = |c: &Caller| c.grace(patience).saturating_sub(c.since.elapsed());
    present.map(|c| (left(c), c)).min_by_key(|(left, c)| (c.proven, *left)).map(|(left, c)| (c, left))
}

/// Whoever was sent away has made room already: its thread ends when the machine finds time for it.
fn has_room(callers: &[Caller]) -> bool {
    callers.len() < 2 * MOST_CALLERS && callers.iter().filter(|c| !c.evicted).count() < MOST_CALLERS
}

struct State {
    open: bool,
    closed: bool,
    callers: Vec<Caller>,
    /// Until somebody serves.
    poll: Option<Poll>,
}

/// What the serving thread finds to do.
struct Turn {
    /// Of callers that were sent away.
    ended: Vec<Introduction>,
    /// There is a place for one more.
    room: bool,
    /// When to look again.
    pause: Option<Duration>,
}

impl State {
    /// Sends those away whose time is over, and, where another wants in, who has to make room.
    fn next_turn(&mut self, patience: Duration, wanted: bool, registry: &Registry) -> Turn {
        let (mut ended, mut pause) = (Vec::new(), None::<Duration>);
        for caller in self.callers.iter_mut().filter(|c| c.introduction.is_some()) {
            match patience.saturating_sub(caller.since.elapsed()) {
                Duration::ZERO => ended.extend(caller.send_away(registry)),
                left => pause = Some(pause.map_or(left, |p| p.min(left))),
            }
        }
        while wanted && !has_room(&self.callers) {
            let Some((caller, left)) = next_to_go(&mut self.callers, patience) else { break };
            if !left.is_zero() {
                return Turn { ended, room: false, pause: Some(left) };
            }
            caller.evicted = true;
            ended.extend(caller.send_away(registry));
        }
        Turn { ended, room: has_room(&self.callers), pause }
    }
}

pub(super) struct Crowd {
    state: Mutex<State>,
    registry: Registry,
    waker: Waker,
}

impl Crowd {
    /// Nobody comes in before it is opened, and served.
    pub(super) fn new() -> io::Result<Crowd> {
        let poll = Poll::new()?;
        let (registry, waker) = (poll.registry().try_clone()?, Waker::new(poll.registry(), WAKE)?);
        let state = State { open: false, closed: false, callers: Vec::new(), poll: Some(poll) };
        Ok(Crowd { state: Mutex::new(LockRank::CrowdState, state), registry, waker })
    }

    /// From now on callers of `listener` may come in: has `listen` called, the first time.
    pub(super) fn open(
        &self,
        listener: &impl AsRawFd,
        listen: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.open || state.closed {
            return Ok(());
        }
        listen()?;
        self.watch(listener, LISTENER)?;
        state.open = true;
        Ok(())
    }

    /// Accepts callers until the node stops, and has `let_in` called with a number and the socket of each; it must not
    /// block, and has the caller `enter`. `accept` does not block either.
    pub(super) fn serve<S>(
        &self,
        patience: Duration,
        accept: impl Fn() -> io::Result<S>,
        let_in: impl Fn(u64, S),
    ) {
        let Some(mut poll) = self.state.lock().poll.take() else { return };
        let (mut events, mut wanted) = (Events::with_capacity(64), false);
        for number in 0.. {
            let Some(Turn { ended, room, mut pause }) = self.next_turn(patience, wanted) else { return };
            ended.into_iter().for_each(|introduction| introduction());
            if wanted && room {
                pause = Some(Duration::ZERO);
                match accept() {
                    Ok(socket) => let_in(number, socket),
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => wanted = false,
                    // No descriptors are left, as a rule: one may come free when a caller leaves.
                    Err(_) => pause = Some(GRACE),
                }
            }
            let _ = poll.poll(&mut events, pause);
            for event in &events {
                match event.token() {
                    WAKE => {}
                    LISTENER => wanted = true,
                    Token(caller) => self.begin(caller as u64),
                }
            }
        }
    }

    /// `None` once the node stops: then all have been sent away.
    fn next_turn(&self, patience: Duration, wanted: bool) -> Option<Turn> {
        let mut state = self.state.lock();
        if !state.closed {
            return Some(state.next_turn(patience, wanted, &self.registry));
        }
        let silent: Vec<_> = state.callers.iter_mut().filter_map(|c| c.send_away(&self.registry)).collect();
        drop(state);
        silent.into_iter().for_each(|introduction| introduction());
        None
    }

    /// Gives the caller a place. `introduce` runs once it has said something, or is gone.
    pub(super) fn enter(
        &self,
        number: u64,
        (socket, round_trip): (Socket, Duration),
        introduce: impl FnOnce() + Send + 'static,
    ) {
        let (since, introduction) = (Instant::now(), Some(Box::new(introduce) as Introduction));
        let watched = self.watch(&*socket, Token(number as usize));
        let caller =
            Caller { number, socket, since, round_trip, introduction, proven: false, evicted: false };
        self.state.lock().callers.push(caller);
        if watched.is_err() {
            self.leave(number);
        }
    }

    fn watch(&self, socket: &(impl AsRawFd + ?Sized), token: Token) -> io::Result<()> {
        self.registry.register(&mut SourceFd(&socket.as_raw_fd()), token, Interest::READABLE)
    }

    /// Something has come from a silent caller, or it has hung up.
    fn begin(&self, number: u64) {
        let mut state = self.state.lock();
        let Some(caller) = state.callers.iter_mut().find(|c| c.number == number) else { return };
        let Some(speaks) = has_bytes(&*caller.socket) else { return };
        let begun = if speaks { caller.begin(&self.registry) } else { caller.send_away(&self.registry) };
        drop(state);
        match begun {
            Some(introduction) if speaks => {
                let thread = std::thread::Builder::new().name("tweed-greet".into());
                if thread.spawn(introduction).is_err() {
                    self.leave(number);
                }
            }
            Some(introduction) => introduction(),
            None => {}
        }
    }

    pub(super) fn note_proven(&self, number: u64) {
        self.state.lock().callers.iter_mut().filter(|c| c.number == number).for_each(|c| c.proven = true);
    }

    /// Gives the place back, and the crowd's hold of the socket; whether it had been asked to.
    pub(super) fn leave(&self, number: u64) -> bool {
        let mut state = self.state.lock();
        if !has_room(&state.callers) {
            let _ = self.waker.wake();
        }
        let place = state.callers.iter().position(|c| c.number == number);
        place.is_some_and(|at| state.callers.swap_remove(at).evicted)
    }

    /// Sends all callers away, and wakes the thread that serves, which then sees that it is to stop.
    pub(super) fn close(&self, listener: &impl AsRawFd) {
        let mut state = self.state.lock();
        state.closed = true;
        shut_down(listener);
        state.callers.iter().for_each(|caller| shut_down(&*caller.socket));
        let _ = self.waker.wake();
    }
}

/// Whether there is something to be read: not so at the end, `None` if something may still come.
fn has_bytes(socket: &(impl AsRawFd + ?Sized)) -> Option<bool> {
    let (mut byte, flags) = (0u8, libc::MSG_PEEK | libc::MSG_DONTWAIT);
    // SAFETY: one byte of room.
    let bytes = unsafe { libc::recv(socket.as_raw_fd(), (&raw mut byte).cast(), 1, flags) };
    let waits = bytes < 0 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock;
    (!waits).then_some(bytes > 0)
}

fn shut_down(socket: &(impl AsRawFd + ?Sized)) {
    // SAFETY: a plain system call on a descriptor that its owner keeps open.
    unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) };
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn caller(number: u64, age_ms: u64, proven: bool, round_trip_ms: u64) -> Caller {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = Arc::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let since = Instant::now().checked_sub(Duration::from_millis(age_ms)).unwrap();
        let round_trip = Duration::from_millis(round_trip_ms);
        Caller { number, socket, since, round_trip, introduction: None, proven, evicted: false }
    }

    fn next(mut callers: Vec<Caller>) -> (u64, bool) {
        let (caller, left) = next_to_go(&mut callers, Duration::from_secs(10)).unwrap();
        (caller.number, left.is_zero())
    }

    #[test]
    fn who_is_silent_goes_before_who_is_proven() {
        assert_eq!(next(vec![caller(1, 60_000, true, 0), caller(2, 150, false, 0)]), (2, true));
        assert_eq!(next(vec![caller(1, 1_000, true, 0), caller(2, 3_000, true, 0)]), (2, true));
        assert_eq!(next(vec![caller(1, 1_000, true, 0)]), (1, false));
    }

    #[test]
    fn a_long_way_gives_more_time() {
        assert_eq!(next(vec![caller(1, 500, false, 200), caller(2, 200, false, 0)]), (2, true));
        assert_eq!(next(vec![caller(1, 500, false, 200)]), (1, false));
        assert_eq!(next(vec![caller(1, 3_000, true, 200)]), (1, false));
    }
}
