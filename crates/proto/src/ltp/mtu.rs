//! Search for the largest packet that the path carries.
//!
//! Probes are padded packets; one that is acknowledged proves its size. The sizes are the usual ones of real
//! networks, not every number in between: each fruitless size costs a few lost probes.
//! A path that suddenly swallows everything large (a black hole, RFC 4821) is noticed by losses that take only
//! large packets, and falls back to what every path carries.

use std::time::Duration;

/// What is known about the path's packet size. All sizes are bytes of the UDP payload.
#[derive(Clone, Debug)]
pub struct Search {
    ceiling: u32,
    proven: u32,
    tries: u32,
    again: Option<Duration>,
    pause: Duration,
    lost_large: u32,
}

impl Search {
    /// Begins at `start`, which the path is taken to carry, and never tries more than `ceiling`.
    pub fn new(start: u32, ceiling: u32) -> Search {
        Search { ceiling, proven: start, tries: 0, again: None, pause: PAUSE, lost_large: 0 }
    }

    /// The largest packet to send.
    pub fn size(&self) -> u32 {
        self.proven
    }

    /// The size to probe next; `None` while nothing is left to try. The caller has at most one probe under way.
    pub fn probe(&self, now: Duration) -> Option<u32> {
        let larger = |&size: &u32| size > self.proven && size <= self.ceiling;
        match self.again {
            Some(at) if now < at => None,
            _ => SIZES.into_iter().chain([self.ceiling]).find(larger),
        }
    }

    /// A packet of this size was acknowledged, probe or not.
    pub fn acked(&mut self, size: u32) {
        if size >= self.proven {
            self.lost_large = 0;
        }
        if size > self.proven {
            self.proven = size;
            self.tries = 0;
            self.again = None;
            self.pause = PAUSE;
        }
    }

    /// A probe was lost. A size that failed three times is tried again after a pause, which doubles.
    pub fn lost_probe(&mut self, now: Duration) {
        self.tries += 1;
        if self.tries >= TRIES {
            self.tries = 0;
            self.again = Some(now + self.pause);
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// A packet of this size, no probe, was lost. True if the path has become a black hole for such packets: then
    /// [`Search::size`] is smaller from now on.
    pub fn lost(&mut self, now: Duration, size: u32) -> bool {
        if size < self.proven || self.proven <= SIZES[0] {
            return false;
        }
        self.lost_large += 1;
        if self.lost_large < BLACK_HOLE {
            return false;
        }
        *self = Search { again: Some(now + PAUSE), ..Search::new(SIZES[0], self.ceiling) };
        true
    }
}

/// What any path carries (RFC 9000), Ethernet with room for tunnels' headers left and without, jumbo frames, what
/// fits a virtual link of 16 KiB, and loopback.
const SIZES: [u32; 5] = [1200, 1452, 8952, 16_300, 65_000];

/// One lost probe may be chance, three in a row at 5 % loss are one in 8,000.
const TRIES: u32 = 3;

/// Large packets lost in a row with none acknowledged: chance and a congested queue let some through.
const BLACK_HOLE: u32 = 32;

/// A path that was cut for a moment looks like a black hole: it must not be left at small packets for long.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest pause is long, as paths change rarely.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
