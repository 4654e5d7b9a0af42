//! What a thread sleeps on in the kernel: a socket, and an event that other threads signal.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// An event of the kernel: signalled until it is cleared.
pub(super) struct Event(OwnedFd);

impl Event {
    pub(super) fn new() -> io::Result<Event> {
        // SAFETY: no pointers.
        let event = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if event < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was opened just now and belongs to nobody.
        Ok(Event(unsafe { OwnedFd::from_raw_fd(event) }))
    }

    pub(super) fn signal(&self) {
        let one = 1u64;
        // SAFETY: eight bytes of `one`. It cannot fail: nobody counts it up to its end.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    pub(super) fn clear(&self) {
        let mut count = 0u64;
        // SAFETY: eight bytes of `count`; it does not block.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }

    /// Sleeps until `socket` can be read (or written, with `write`), the event is signalled, or the time is over; `None`:
    /// without end. Whether the event is signalled.
    pub(super) fn wait(&self, socket: RawFd, write: bool, timeout: Option<Duration>) -> bool {
        let events = libc::POLLIN | if write { libc::POLLOUT } else { 0 };
        let mut fds = [
            libc::pollfd { fd: socket, events, revents: 0 },
            libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 },
        ];
        let time = timeout.map(|t| libc::timespec {
            tv_sec: t.as_secs().min(3600) as libc::time_t,
            tv_nsec: t.subsec_nanos().into(),
        });
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: two entries, and a time or none. If a signal interrupts it, the caller looks once more for nothing.
        let ready = unsafe { libc::ppoll(fds.as_mut_ptr(), 2, time, std::ptr::null()) };
        ready > 0 && fds[1].revents != 0
    }
}

/// The kernel lets threads sleep up to 50 µs longer, to wake several at once; packets are paced finer than that.
pub(super) fn sleep_exactly() {
    // SAFETY: no pointers; 1 ns is the least.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}
