//! How the thread sleeps: until the socket has something, a caller wakes it, or a time has come, to the microsecond.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use super::event::Event;
use crate::sync::atomic::AtomicBool;

/// What ends a sleep early. Waking a thread that is awake costs no system call.
pub(super) struct Waker {
    event: Event,
    called: AtomicBool,
    asleep: AtomicBool,
}

impl Waker {
    pub(super) fn new() -> io::Result<Waker> {
        Ok(Waker { event: Event::new()?, called: AtomicBool::new(false), asleep: AtomicBool::new(false) })
    }

    /// The thread looks again at what there is to do.
    pub(super) fn wake(&self) {
        self.called.store(true, SeqCst);
        if self.asleep.swap(false, SeqCst) {
            self.event.signal();
        }
    }

    /// Sleeps until `socket` can be read (or written, with `write`), [`Waker::wake`] is called or was since the last
    /// sleep, or the time is over; `None`: without end.
    pub(super) fn sleep(&self, socket: RawFd, write: bool, timeout: Option<Duration>) {
        self.asleep.store(true, SeqCst);
        let signalled = !self.called.swap(false, SeqCst) && self.event.wait(socket, write, timeout);
        self.asleep.store(false, SeqCst);
        self.called.store(false, SeqCst);
        // Who wakes a thread that wakes by itself may signal only now, or later: then the next sleep ends at once and
        // clears the event. Asking `asleep` whether to clear it would leave it signalled, and no sleep would last.
        if signalled {
            self.event.clear();
        }
    }
}

#[cfg(all(test, loom))]
#[path = "wait_model.rs"]
mod model;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;
    use std::sync::Arc;

    fn socket() -> UdpSocket {
        UdpSocket::bind("127.0.0.1:0").expect("a socket opens")
    }

    #[test]
    fn a_call_before_or_during_a_sleep_ends_it() {
        let socket = socket();
        let waker = Arc::new(Waker::new().expect("an event opens"));
        waker.wake();
        waker.sleep(socket.as_raw_fd(), false, None);
        for _ in 0..1000 {
            let other = waker.clone();
            let thread = std::thread::spawn(move || other.wake());
            waker.sleep(socket.as_raw_fd(), false, None);
            thread.join().expect("it ends");
        }
        waker.sleep(socket.as_raw_fd(), false, Some(Duration::ZERO));
    }

    #[test]
    fn a_packet_ends_it() {
        let socket = socket();
        socket.send_to(&[1], socket.local_addr().expect("it is bound")).expect("it is sent");
        Waker::new().expect("an event opens").sleep(socket.as_raw_fd(), false, None);
    }

    #[test]
    fn a_signal_that_comes_late_ends_one_sleep_and_no_more() {
        let waker = Waker::new().expect("an event opens");
        waker.event.signal();
        waker.sleep(socket().as_raw_fd(), false, None);
        assert!(!waker.event.wait(socket().as_raw_fd(), false, Some(Duration::ZERO)));
    }
}
