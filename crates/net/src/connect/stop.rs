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

/// The pauses between a caller's attempts: each up to twice as long as the one before, and drawn, so that callers that
/// were turned away together do not come back together.
pub(crate) struct Backoff {
    seed: u64,
    most: Duration,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(40);
    const LONGEST: Duration = Duration::from_secs(2);

    pub(crate) fn new(seed: u64) -> Backoff {
        Backoff { seed, most: Self::FIRST }
    }

    /// The next one.
    pub(crate) fn next_pause(&mut self) -> Duration {
        let pause = self.most / 2 + (self.most / 2).mul_f64(self.draw());
        self.most = (self.most * 2).min(Self::LONGEST);
        pause
    }

    /// From 0 to 1 (SplitMix64).
    fn draw(&mut self) -> f64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let a = (self.seed ^ (self.seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let b = (a ^ (a >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((b ^ (b >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A seed from names (FNV-1a).
pub(crate) fn seed(names: &[&str], number: u32) -> u64 {
    let bytes = names.iter().flat_map(|n| n.bytes()).chain(number.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_have_an_end_and_differ_between_callers() {
        let pauses = |number| {
            let mut backoff = Backoff::new(seed(&["a", "b"], number));
            (0..10).map(|_| backoff.next_pause()).collect::<Vec<_>>()
        };
        let [one, again, other] = [0, 0, 1].map(pauses);
        assert_eq!(one, again);
        assert!(one.iter().zip(&other).all(|(a, b)| a != b));
        let most = (0..10).map(|i| (Backoff::FIRST * (1 << i)).min(Backoff::LONGEST));
        assert!(one.iter().zip(most).all(|(pause, most)| (most / 2..=most).contains(pause)));
    }

    #[test]
    fn who_is_to_stop_does_not_sleep() {
        let (stop, far) = (Stop::default(), Instant::now() + Duration::from_secs(60));
        assert!(stop.sleep(Duration::ZERO, far));
        assert!(!stop.sleep(Duration::from_secs(60), Instant::now()));
        stop.set();
        assert!(!stop.sleep(Duration::from_secs(60), far));
    }
}
