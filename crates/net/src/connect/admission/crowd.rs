//! Who is introducing himself: so many at a time. The rest wait in the kernel's queue.
//!
//! Theory of operation. Each caller has a thread of its own, since introductions block, and one of `MOST_CALLERS` places.
//! A caller is *silent* until it has said what an honest one says at once, then *heard*. While all places are taken and
//! more callers want in,
//!
//! - the silent one that came first goes once it is older than its grace, which grows with its round trip: so a flood of
//!   connections that say nothing passes by at `MOST_CALLERS` per grace;
//! - if all are heard, the first goes that has used up its share of the time for an introduction: members need some
//!   round trips of it, so this meets callers that stall.
//!
//! Who had to go, and meant well, calls again. One lock guards all; nobody waits for anything else while holding it.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::sync::{Condvar, LockRank, Mutex};

/// So many may be introducing themselves at a time. Each takes a file descriptor, of which a process often has 1024.
pub(super) const MOST_CALLERS: usize = 256;
/// When there are as many, a silent one that has taken longer than this and some round trips has to go.
const GRACE: Duration = Duration::from_millis(100);

type Socket = Arc<dyn AsRawFd + Send + Sync>;

struct Caller {
    number: u64,
    socket: Socket,
    since: Instant,
    round_trip: Duration,
    /// It has said what an honest one says at once.
    heard: bool,
    /// It had to make room.
    evicted: bool,
}

impl Caller {
    /// When it may have to make room; `patience` is what an introduction may take.
    fn grace(&self, patience: Duration) -> Duration {
        if self.heard {
            patience / 4 + 8 * self.round_trip
        } else {
            GRACE + 4 * self.round_trip
        }
    }
}

/// Who has to make room next among these, and in how long.
fn next_to_go(callers: &mut [Caller], patience: Duration) -> Option<(&mut Caller, Duration)> {
    let present = callers.iter_mut().filter(|c| !c.evicted);
    let left = |c: &Caller| c.grace(patience).saturating_sub(c.since.elapsed());
    present.map(|c| (left(c), c)).min_by_key(|(left, c)| (c.heard, *left)).map(|(left, c)| (c, left))
}

/// Whoever was sent away has made room already: its thread ends when the machine finds time for it.
fn has_room(callers: &[Caller]) -> bool {
    callers.len() < 2 * MOST_CALLERS && callers.iter().filter(|c| !c.evicted).count() < MOST_CALLERS
}

#[derive(Default)]
struct State {
    open: bool,
    closed: bool,
    callers: Vec<Caller>,
}

/// See the module's documentation.
pub(super) struct Crowd {
    state: Mutex<State>,
    changed: Condvar,
}

impl Default for Crowd {
    fn default() -> Crowd {
        let state = Mutex::new(LockRank::CrowdState, State::default());
        Crowd { state, changed: Condvar::default() }
    }
}

impl Crowd {
    /// From now on callers may come in: has `listen` called, the first time.
    pub(super) fn open(&self, listen: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.open || state.closed {
            return Ok(());
        }
        listen()?;
        state.open = true;
        self.changed.notify_all();
        Ok(())
    }

    /// Accepts callers until the node stops, and has `let_in` called with a number and the socket of each; it must not
    /// block.
    pub(super) fn serve<S>(
        &self,
        patience: Duration,
        accept: impl Fn() -> io::Result<S>,
        let_in: impl Fn(u64, S),
    ) {
        let mut state = self.state.lock();
        while !state.open && !state.closed {
            state = self.changed.wait(state);
        }
        drop(state);
        for number in 0.. {
            if !self.make_room(patience) {
                return;
            }
            match accept() {
                _ if self.state.lock().closed => return,
                Ok(socket) => let_in(number, socket),
                // No descriptors are left, as a rule: one may come free when a caller leaves.
                Err(_) => drop(self.changed.wait_timeout(self.state.lock(), GRACE)),
            }
        }
    }

    /// Gives the caller a place, and runs `greet` on a thread of its own.
    pub(super) fn enter(
        &self,
        number: u64,
        (socket, round_trip): (Socket, Duration),
        greet: impl FnOnce() + Send + 'static,
    ) {
        let since = Instant::now();
        let caller = Caller { number, socket, since, round_trip, heard: false, evicted: false };
        let mut state = self.state.lock();
        if state.closed {
            shut_down(&*caller.socket);
        }
        state.callers.push(caller);
        drop(state);
        if std::thread::Builder::new().name("tweed-greet".into()).spawn(greet).is_err() {
            self.leave(number);
        }
    }

    pub(super) fn note_heard(&self, number: u64) {
        self.state.lock().callers.iter_mut().filter(|c| c.number == number).for_each(|c| c.heard = true);
    }

    /// Gives the place back, and the crowd's hold of the socket; whether it had been asked to.
    pub(super) fn leave(&self, number: u64) -> bool {
        let mut state = self.state.lock();
        let place = state.callers.iter().position(|c| c.number == number);
        self.changed.notify_all();
        place.is_some_and(|at| state.callers.swap_remove(at).evicted)
    }

    /// Waits until there is a place; `false` if the node stops.
    fn make_room(&self, patience: Duration) -> bool {
        let mut state = self.state.lock();
        while !state.closed && !has_room(&state.callers) {
            let pause = match next_to_go(&mut state.callers, patience) {
                Some((caller, Duration::ZERO)) => {
                    caller.evicted = true;
                    shut_down(&*caller.socket);
                    continue;
                }
                Some((_, left)) => left,
                None => GRACE,
            };
            state = self.changed.wait_timeout(state, pause);
        }
        !state.closed
    }

    /// Sends all callers away, and wakes the thread that serves, which then sees that it is to stop.
    pub(super) fn close(&self, listener: &impl AsRawFd) {
        let mut state = self.state.lock();
        state.closed = true;
        // It ends an `accept` that waits.
        shut_down(listener);
        state.callers.iter().for_each(|caller| shut_down(&*caller.socket));
        self.changed.notify_all();
    }
}

fn shut_down(socket: &(impl AsRawFd + ?Sized)) {
    // SAFETY: a plain system call on a descriptor that its owner keeps open.
    unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) };
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn caller(number: u64, age_ms: u64, heard: bool, round_trip_ms: u64) -> Caller {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = Arc::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let since = Instant::now().checked_sub(Duration::from_millis(age_ms)).unwrap();
        let round_trip = Duration::from_millis(round_trip_ms);
        Caller { number, socket, since, round_trip, heard, evicted: false }
    }

    fn next(mut callers: Vec<Caller>) -> (u64, bool) {
        let (caller, left) = next_to_go(&mut callers, Duration::from_secs(10)).unwrap();
        (caller.number, left.is_zero())
    }

    #[test]
    fn who_is_silent_goes_before_who_was_heard() {
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
