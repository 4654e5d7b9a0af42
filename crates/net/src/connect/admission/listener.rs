//! The TCP listener: a thread that lets callers in, so many at a time. The rest wait in the kernel's queue.
//!
//! Theory of operation. The listener is *bound* first: its port is on the descriptor, and calls there are refused by the
//! kernel. `listen` makes it *listening*, once, when somebody has to come in; `close` ends both. Each caller has a thread
//! of its own, since introductions block, and one of `MOST_CALLERS` places. A caller is *silent* until it has sent a
//! valid preamble, which an honest one does at once, then *heard*. While all places are taken and more callers want in,
//!
//! - the silent one that came first goes once it is older than its grace, which grows with its round trip: so a flood of
//!   connections that say nothing passes by at `MOST_CALLERS` per grace;
//! - if all are heard, the first goes that has used up its share of the time for an introduction: members need some
//!   round trips of it, so this meets callers that stall.
//!
//! Who had to go, and meant well, calls again (`tcp_handshake`). One lock guards all; nobody waits for anything else
//! while holding it.

use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::connect::connector::Connector;
use crate::framing::Refusal;
use crate::sync::stop::Stop;
use crate::sync::{Condvar, LockRank, Mutex};

/// So many may be introducing themselves at a time. Each takes a file descriptor, of which a process often has 1024.
const MOST_CALLERS: usize = 256;
/// When there are as many, a silent one that has taken longer than this and some round trips has to go.
const GRACE: Duration = Duration::from_millis(100);
/// So many wait in the kernel's queue.
const QUEUED_CALLERS: i32 = 1024;

struct Connection {
    number: u64,
    socket: Arc<TcpStream>,
    since: Instant,
    round_trip: Duration,
    /// It has sent a valid preamble.
    heard: bool,
    /// It had to make room.
    evicted: bool,
}

impl Connection {
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
fn next_to_go(connections: &mut [Connection], patience: Duration) -> Option<(&mut Connection, Duration)> {
    let present = connections.iter_mut().filter(|c| !c.evicted);
    let left = |c: &Connection| c.grace(patience).saturating_sub(c.since.elapsed());
    present.map(|c| (left(c), c)).min_by_key(|(left, c)| (c.heard, *left)).map(|(left, c)| (c, left))
}

/// Whoever was sent away has made room already: its thread ends when the machine finds time for it.
fn has_room(connections: &[Connection]) -> bool {
    connections.len() < 2 * MOST_CALLERS && connections.iter().filter(|c| !c.evicted).count() < MOST_CALLERS
}

#[derive(Default)]
struct State {
    listening: bool,
    closed: bool,
    connections: Vec<Connection>,
}

/// See the module's documentation.
pub(crate) struct Listener {
    listener: TcpListener,
    state: Mutex<State>,
    changed: Condvar,
    stop: Stop,
}

impl Listener {
    /// Takes a port of `host`, and refuses all who call there.
    pub(crate) fn bind(host: IpAddr) -> io::Result<Listener> {
        let listener = bind(host)?;
        crate::link::fork::shut_in_children(&listener);
        let state = Mutex::new(LockRank::ListenerState, State::default());
        Ok(Listener { listener, state, changed: Condvar::default(), stop: Stop::default() })
    }

    /// Where.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// From now on callers may come in.
    pub(crate) fn listen(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.listening || state.closed {
            return Ok(());
        }
        // SAFETY: a plain system call on a descriptor that we own.
        if unsafe { libc::listen(self.listener.as_raw_fd(), QUEUED_CALLERS) } != 0 {
            return Err(io::Error::last_os_error());
        }
        state.listening = true;
        self.changed.notify_all();
        Ok(())
    }

    /// Lets callers in until the node stops.
    pub(crate) fn run(self: &Arc<Self>, connector: &Arc<Connector>) {
        let mut state = self.state.lock();
        while !state.listening && !state.closed {
            state = self.changed.wait(state);
        }
        drop(state);
        for number in 0.. {
            if !self.make_room(connector.limits().greet) {
                return;
            }
            match self.listener.accept() {
                _ if connector.driver.is_stopping() => return,
                Ok((socket, from)) => self.let_in(connector, number, Arc::new(socket), from),
                // No descriptors are left, as a rule: one may come free when a connection leaves.
                Err(_) => drop(self.changed.wait_timeout(self.state.lock(), GRACE)),
            }
        }
    }

    fn let_in(
        self: &Arc<Self>,
        connector: &Arc<Connector>,
        number: u64,
        socket: Arc<TcpStream>,
        from: SocketAddr,
    ) {
        let (since, round_trip) = (Instant::now(), round_trip(&socket));
        let connection = Connection {
            number,
            socket: Arc::clone(&socket),
            since,
            round_trip,
            heard: false,
            evicted: false,
        };
        self.state.lock().connections.push(connection);
        let (listener, connector) = (Arc::clone(self), Arc::clone(connector));
        let greet = move || {
            let met = connector.admit_wire(socket, &listener.stop, || listener.note_heard(number));
            let evicted = listener.leave(number);
            if let Err(refusal) = met {
                connector.refuse(&from.to_string(), &if evicted { Refusal::Crowd } else { refusal });
            }
        };
        if std::thread::Builder::new().name("tweed-greet".into()).spawn(greet).is_err() {
            self.leave(number);
        }
    }

    fn note_heard(&self, number: u64) {
        self.state.lock().connections.iter_mut().filter(|c| c.number == number).for_each(|c| c.heard = true);
    }

    /// Whether it had been asked to.
    fn leave(&self, number: u64) -> bool {
        let mut state = self.state.lock();
        let place = state.connections.iter().position(|c| c.number == number);
        self.changed.notify_all();
        place.is_some_and(|at| state.connections.swap_remove(at).evicted)
    }

    /// Waits until there is a place; `false` if the listener was closed.
    fn make_room(&self, patience: Duration) -> bool {
        let mut state = self.state.lock();
        while !state.closed && !has_room(&state.connections) {
            let pause = match next_to_go(&mut state.connections, patience) {
                Some((connection, Duration::ZERO)) => {
                    connection.evicted = true;
                    let _ = connection.socket.shutdown(Shutdown::Both);
                    continue;
                }
                Some((_, left)) => left,
                None => GRACE,
            };
            state = self.changed.wait_timeout(state, pause);
        }
        !state.closed
    }

    /// Wakes the thread, which then sees that it is to stop, and sends all connections away.
    pub(crate) fn close(&self) {
        self.stop.set();
        let mut state = self.state.lock();
        state.closed = true;
        // SAFETY: a plain system call on a descriptor that we own. It ends an `accept` that waits.
        unsafe { libc::shutdown(self.listener.as_raw_fd(), libc::SHUT_RDWR) };
        for connection in &state.connections {
            let _ = connection.socket.shutdown(Shutdown::Both);
        }
        self.changed.notify_all();
    }
}

/// As the kernel has measured it so far; zero if it does not tell.
fn round_trip(socket: &TcpStream) -> Duration {
    // SAFETY: all zero is a valid record to be filled in.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut bytes = size_of::<libc::tcp_info>() as libc::socklen_t;
    let into = (&raw mut info).cast();
    // SAFETY: the pointer and the length are those of `info`.
    let got = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, into, &raw mut bytes)
    };
    Duration::from_micros(if got == 0 { u64::from(info.tcpi_rtt) } else { 0 })
}

/// The standard library would listen at once, and let others share the port.
fn bind(host: IpAddr) -> io::Result<TcpListener> {
    let family = if host.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: a plain system call.
    let socket = unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let bound = match host {
        IpAddr::V4(host) => {
            // SAFETY: all zero is a valid address.
            let mut address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
            address.sin_family = family as libc::sa_family_t;
            address.sin_addr.s_addr = u32::from_ne_bytes(host.octets());
            bind_to(&socket, &address)
        }
        IpAddr::V6(host) => {
            // SAFETY: all zero is a valid address.
            let mut address: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
            address.sin6_family = family as libc::sa_family_t;
            address.sin6_addr.s6_addr = host.octets();
            bind_to(&socket, &address)
        }
    };
    bound.map(|()| TcpListener::from(socket))
}

fn bind_to<A>(socket: &OwnedFd, address: &A) -> io::Result<()> {
    let (place, bytes) = ((&raw const *address).cast(), size_of::<A>() as libc::socklen_t);
    // SAFETY: the address is as long as said.
    match unsafe { libc::bind(socket.as_raw_fd(), place, bytes) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(number: u64, age_ms: u64, heard: bool, round_trip_ms: u64) -> Connection {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = Arc::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let since = Instant::now().checked_sub(Duration::from_millis(age_ms)).unwrap();
        let round_trip = Duration::from_millis(round_trip_ms);
        Connection { number, socket, since, round_trip, heard, evicted: false }
    }

    fn next(mut connections: Vec<Connection>) -> (u64, bool) {
        let (connection, left) = next_to_go(&mut connections, Duration::from_secs(10)).unwrap();
        (connection.number, left.is_zero())
    }

    #[test]
    fn who_is_silent_goes_before_who_was_heard() {
        assert_eq!(next(vec![connection(1, 60_000, true, 0), connection(2, 150, false, 0)]), (2, true));
        assert_eq!(next(vec![connection(1, 1_000, true, 0), connection(2, 3_000, true, 0)]), (2, true));
        assert_eq!(next(vec![connection(1, 1_000, true, 0)]), (1, false));
    }

    #[test]
    fn a_long_way_gives_more_time() {
        assert_eq!(next(vec![connection(1, 500, false, 200), connection(2, 200, false, 0)]), (2, true));
        assert_eq!(next(vec![connection(1, 500, false, 200)]), (1, false));
        assert_eq!(next(vec![connection(1, 3_000, true, 200)]), (1, false));
    }

    #[test]
    fn a_bound_port_refuses_callers_until_it_listens() {
        let listener = Listener::bind([127, 0, 0, 1].into()).unwrap();
        let address = listener.address().unwrap();
        let refused = TcpStream::connect(address).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        listener.listen().unwrap();
        listener.listen().unwrap();
        TcpStream::connect(address).unwrap();
    }
}
