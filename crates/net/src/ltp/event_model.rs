//! The kernel's event as loom sees it. No packet comes and no time passes: who is not signalled sleeps forever.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use loom::sync::{Condvar, Mutex};

/// An event, as the real one is.
pub(super) struct Event {
    signalled: Mutex<bool>,
    changed: Condvar,
}

impl Event {
    pub(super) fn new() -> io::Result<Event> {
        Ok(Event { signalled: Mutex::new(false), changed: Condvar::new() })
    }

    pub(super) fn signal(&self) {
        *self.signalled.lock().expect("no thread panics") = true;
        self.changed.notify_all();
    }

    pub(super) fn clear(&self) {
        *self.signalled.lock().expect("no thread panics") = false;
    }

    /// Waits, as the real one does; a timeout of zero is over at once, and no other ever is.
    pub(super) fn wait(&self, _socket: RawFd, _write: bool, timeout: Option<Duration>) -> bool {
        let mut signalled = self.signalled.lock().expect("no thread panics");
        while !*signalled && timeout != Some(Duration::ZERO) {
            signalled = self.changed.wait(signalled).expect("no thread panics");
        }
        *signalled
    }

    pub(super) fn is_signalled(&self) -> bool {
        *self.signalled.lock().expect("no thread panics")
    }
}
