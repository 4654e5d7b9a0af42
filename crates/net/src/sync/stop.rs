//! Waits that can be ended from outside: in slices, each short enough for a person who presses Ctrl-C.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Nothing waits longer without a look at whether it is to stop.
pub(crate) const SLICE: Duration = Duration::from_millis(50);

/// Set once, by whoever ends the waits of others.
#[derive(Debug, Default)]
pub(crate) struct Stop(AtomicBool);

impl Stop {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Lets `pause` pass; `false` if it is to stop, or if `deadline` came first.
    pub(crate) fn sleep(&self, pause: Duration, deadline: Instant) -> bool {
        let end = Instant::now() + pause;
        loop {
            let now = Instant::now();
            if self.is_set() || now >= deadline {
                return false;
            }
            if now >= end {
                return true;
            }
            std::thread::sleep(SLICE.min(end - now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_to_stop_does_not_sleep() {
        let (stop, far) = (Stop::default(), Instant::now() + Duration::from_secs(60));
        assert!(stop.sleep(Duration::ZERO, far));
        assert!(!stop.sleep(Duration::from_secs(60), Instant::now()));
        stop.set();
        assert!(!stop.sleep(Duration::from_secs(60), far));
    }
}
