//! The TCP listener: a thread that lets callers in, so many at a time. The rest wait in the kernel's queue.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Refusal;
use crate::state::{lock, Inner};

/// So many may be introducing themselves at a time.
const MOST_CALLERS: usize = 64;
/// When there are as many, one that has taken longer than this has to go. Members take milliseconds.
const GRACE: Duration = Duration::from_millis(100);

/// So many wait in the kernel's queue.
const QUEUED_CALLERS: i32 = 1024;

struct Connection {
    number: u64,
    socket: TcpStream,
    since: Instant,
    /// It had to make room.
    evicted: bool,
}

/// See the module's documentation.
pub(crate) struct Listener {
    listener: TcpListener,
    guests: Mutex<Vec<Connection>>,
    left: Condvar,
}

impl Listener {
    /// Begins to listen; nobody is let in before `run`.
    pub(crate) fn open(host: std::net::IpAddr) -> io::Result<Listener> {
        let listener = TcpListener::bind((host, 0))?;
        crate::link::fork::shut_in_children(&listener);
        // SAFETY: a plain system call on a descriptor that we own. It makes the queue longer than the library does.
        unsafe { libc::listen(listener.as_raw_fd(), QUEUED_CALLERS) };
        Ok(Listener { listener, guests: Mutex::default(), left: Condvar::new() })
    }

    /// Where.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Lets callers in until the node stops. Introductions block, so each has a thread of its own.
    pub(crate) fn run(self: &Arc<Self>, node: &Arc<Inner>) {
        for number in 0.. {
            self.make_room();
            match self.listener.accept() {
                _ if node.is_stopping() => return,
                Ok((socket, from)) => self.let_in(node, number, socket, from),
                // No descriptors are left, as a rule: one may come free when a guest leaves.
                Err(_) => drop(self.left.wait_timeout(lock(&self.guests), GRACE)),
            }
        }
    }

    fn let_in(self: &Arc<Self>, node: &Arc<Inner>, number: u64, socket: TcpStream, from: SocketAddr) {
        let Ok(copy) = socket.try_clone() else { return };
        lock(&self.guests).push(Connection { number, socket: copy, since: Instant::now(), evicted: false });
        let (listener, node) = (Arc::clone(self), Arc::clone(node));
        let greet = move || {
            let met = node.admit_wire(socket);
            let evicted = listener.leave(number);
            if let Err(refusal) = met {
                node.refuse(&from.to_string(), &if evicted { Refusal::Crowd } else { refusal });
            }
        };
        if std::thread::Builder::new().name("tweed-greet".into()).spawn(greet).is_err() {
            self.leave(number);
        }
    }

    /// Whether it had been asked to.
    fn leave(&self, number: u64) -> bool {
        let mut guests = lock(&self.guests);
        let place = guests.iter().position(|g| g.number == number);
        self.left.notify_all();
        place.is_some_and(|at| guests.remove(at).evicted)
    }

    fn make_room(&self) {
        let mut guests = lock(&self.guests);
        while guests.len() >= MOST_CALLERS {
            let oldest = guests.iter_mut().filter(|g| !g.evicted).min_by_key(|g| g.since);
            let age = oldest.as_ref().map_or(Duration::ZERO, |g| g.since.elapsed());
            if let Some(guest) = oldest.filter(|_| age >= GRACE) {
                guest.evicted = true;
                let _ = guest.socket.shutdown(Shutdown::Both);
            }
            let left = GRACE.saturating_sub(age).max(Duration::from_millis(1));
            guests = self.left.wait_timeout(guests, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Wakes the thread, which then sees that it is to stop, and sends all guests away.
    pub(crate) fn close(&self) {
        // SAFETY: a plain system call on a descriptor that we own. It ends an `accept` that waits.
        unsafe { libc::shutdown(self.listener.as_raw_fd(), libc::SHUT_RDWR) };
        for guest in &*lock(&self.guests) {
            let _ = guest.socket.shutdown(Shutdown::Both);
        }
        self.left.notify_all();
    }
}
