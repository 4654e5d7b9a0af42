//! How the thread sleeps: until the socket has something, a caller wakes it, or a time has come, to the microsecond.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// What ends a sleep early. Waking a thread that is awake costs no system call.
pub(super) struct Waker {
    event: OwnedFd,
    called: AtomicBool,
    asleep: AtomicBool,
}

impl Waker {
    pub(super) fn new() -> io::Result<Waker> {
        // SAFETY: no pointers.
        let event = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if event < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was opened just now and belongs to nobody.
        let event = unsafe { OwnedFd::from_raw_fd(event) };
        Ok(Waker { event, called: AtomicBool::new(false), asleep: AtomicBool::new(false) })
    }

    /// The thread looks again at what there is to do.
    pub(super) fn wake(&self) {
        self.called.store(true, SeqCst);
        if self.asleep.swap(false, SeqCst) {
            let one = 1u64;
            // SAFETY: eight bytes of `one`. It cannot fail: nobody counts it up to its end.
            unsafe { libc::write(self.event.as_raw_fd(), (&raw const one).cast(), 8) };
        }
    }

    /// Sleeps until `socket` can be read (or written, with `write`), [`Waker::wake`] is called or was since the last
    /// sleep, or the time is over; `None`: without end.
    pub(super) fn sleep(&self, socket: RawFd, write: bool, timeout: Option<Duration>) {
        self.asleep.store(true, SeqCst);
        if !self.called.swap(false, SeqCst) {
            poll(socket, self.event.as_raw_fd(), write, timeout);
        }
        if !self.asleep.swap(false, SeqCst) {
            let mut count = 0u64;
            // SAFETY: eight bytes of `count`; it does not block.
            unsafe { libc::read(self.event.as_raw_fd(), (&raw mut count).cast(), 8) };
        }
        self.called.store(false, SeqCst);
    }
}

fn poll(socket: RawFd, event: RawFd, write: bool, timeout: Option<Duration>) {
    let events = libc::POLLIN | if write { libc::POLLOUT } else { 0 };
    let mut fds = [
        libc::pollfd { fd: socket, events, revents: 0 },
        libc::pollfd { fd: event, events: libc::POLLIN, revents: 0 },
    ];
    let time = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs().min(3600) as libc::time_t,
        tv_nsec: t.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: two entries, and a time or none. If a signal interrupts it, the caller looks once more for nothing.
    unsafe { libc::ppoll(fds.as_mut_ptr(), 2, time, std::ptr::null()) };
}

/// The kernel lets threads sleep up to 50 µs longer, to wake several at once; packets are paced finer than that.
pub(super) fn sleep_exactly() {
    // SAFETY: no pointers; 1 ns is the least.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::sync::Arc;

    #[test]
    fn a_call_before_or_during_a_sleep_ends_it() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket opens");
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
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket opens");
        socket.send_to(&[1], socket.local_addr().expect("it is bound")).expect("it is sent");
        Waker::new().expect("an event opens").sleep(socket.as_raw_fd(), false, None);
    }
}
