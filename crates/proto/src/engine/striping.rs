//! Over how many of its streams a wire carries values: the first alone, or, while packets are lost, all. Which
//! stream any other message takes does not depend on that.
//!
//! Values are wanted one after the other. Streams that share a link bring as many at once, each in as many times the time; one
//! alone brings the first of them that much sooner. But one halves its window for each packet that is lost; of several, each
//! does for a part of them. Half a window still fills a slow link with short round trips, on which hardly a packet is under
//! way: there it is values that overrun a queue, and four windows overrun it the more.
//!
//! Measured between four namespaces: 25 MB without a limit 34 ms over one stream, 38 ms over four; through a relay at 100 Mbit/s
//! 4.4 s, 4.7 s; at 1 Gbit/s with 0.1 % lost 474 ms, 393 ms. Two all-to-alls of 26 KB per pair at 10 Mbit/s: docs/decisions/0076.

use std::time::Duration;

/// The kernel is asked after so many bytes of values, or so long after the last time.
const LOOK_BYTES: u64 = 4 << 20;
const LOOK_AFTER: Duration = Duration::from_millis(100);
/// So many packets of `LOOK_BYTES` are sent again where packets are lost; one is chance.
const LOST: u64 = 2;

/// Where less reaches a peer, in bytes per second, over a shorter round trip, half a window fills the link too. At 10 Mbit/s
/// each of three peers gets less, and one alone gets more.
const SLOW: f64 = 6e5;
const NEAR: Duration = Duration::from_millis(2);

/// What the kernel says of the connections to a peer, together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Losses {
    /// Packets that were sent again so far.
    pub again: u64,
    /// Bytes per second, in the time in which there were some to carry.
    pub rate: f64,
    /// The shortest round trip.
    pub round_trip: Duration,
}

impl Losses {
    /// Those of all connections to a peer.
    pub fn of(each: impl Iterator<Item = Losses>) -> Losses {
        let both = |a: Losses, b: Losses| Losses {
            again: a.again + b.again,
            rate: a.rate + b.rate,
            round_trip: a.round_trip.min(b.round_trip),
        };
        each.reduce(both).unwrap_or_default()
    }

    /// Whether a connection that halves its window leaves the link idle.
    fn hurt(&self) -> bool {
        self.round_trip >= NEAR || self.rate >= SLOW
    }
}

/// The striping of messages to one peer.
#[derive(Debug, Default)]
pub struct Striping {
    is_lossy: bool,
    /// When the kernel was asked.
    asked: Duration,
    /// Bytes that had left, and packets that were sent again, from which on losses are counted.
    before: (u64, u64),
}

impl Striping {
    /// Whether packets are lost, once `left` bytes of values have left for the peer, and that hurts. The kernel is asked at
    /// times for its `losses`.
    pub fn is_lossy(&mut self, left: u64, now: Duration, losses: impl FnOnce() -> Losses) -> bool {
        let (left_before, before) = self.before;
        let passed = left.saturating_sub(left_before);
        let looks = passed / LOOK_BYTES;
        if looks > 0 || (passed > 0 && now >= self.asked + LOOK_AFTER) {
            let found = losses();
            let again = found.again;
            let loses = found.hurt() && again.saturating_sub(before) >= looks.max(1) * LOST;
            self.asked = now;
            // Losses count as soon as they are seen, and that there are none once enough has left.
            if loses || looks > 0 {
                self.is_lossy = loses;
                self.before = (left, again);
            }
        }
        self.is_lossy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// On a link of 100 Mbit/s with round trips of 40 ms.
    fn far(again: u64) -> Losses {
        Losses { again, rate: 12.5e6, round_trip: 40 * MS }
    }

    #[test]
    fn a_wire_is_lossy_as_long_as_packets_are_lost() {
        let mut striping = Striping::default();
        let mut look = |looks: u64, again: u64| striping.is_lossy(looks * LOOK_BYTES, MS, || far(again));
        assert!(!look(0, 9), "nothing has left");
        assert!(!look(1, 1), "one packet is chance");
        assert!(look(2, 3));
        assert!(!look(3, 3), "no more is lost");
        assert!(!look(13, 13), "one of each look");
        assert!(look(14, 20));
    }

    #[test]
    fn losses_are_noticed_by_time_where_little_leaves_and_forgotten_by_bytes() {
        let mut striping = Striping::default();
        let mut look = |left: u64, ms: u32, again: u64| striping.is_lossy(left, ms * MS, || far(again));
        assert!(!look(1000, 99, 5), "it was not time yet");
        assert!(!look(1000, 100, 1), "one is chance");
        assert!(look(2000, 200, 2), "chance again, but not twice");
        assert!(look(3000, 900, 2), "too little has left to say that nothing is lost");
        assert!(!look(2000 + LOOK_BYTES, 901, 3));
    }

    #[test]
    fn losses_hurt_nobody_on_slow_links_with_short_round_trips() {
        let lossy = |rate: f64, round_trip: Duration| {
            Striping::default().is_lossy(LOOK_BYTES, MS, || Losses { again: 99, rate, round_trip })
        };
        assert!(!lossy(4e5, MS), "a third of 10 Mbit/s");
        assert!(lossy(4e5, 40 * MS), "half a window would not fill it");
        assert!(lossy(1.25e6, MS), "10 Mbit/s");
    }

    #[test]
    fn what_several_connections_lose_and_carry_is_added_up() {
        let found = Losses::of([far(3), Losses { again: 1, rate: 5e5, round_trip: MS }].into_iter());
        assert_eq!((found.again, found.rate, found.round_trip), (4, 13e6, MS));
        assert!(!Losses::of([].into_iter()).hurt(), "nothing to lose");
    }

    #[test]
    fn the_kernel_is_asked_at_times() {
        let mut striping = Striping::default();
        let asked = |left: u64, striping: &mut Striping| {
            let mut asked = false;
            striping.is_lossy(left, MS, || {
                asked = true;
                far(0)
            });
            asked
        };
        let looks: Vec<bool> = (0..9).map(|at| asked(at * LOOK_BYTES / 4, &mut striping)).collect();
        assert_eq!(looks, [false, false, false, false, true, false, false, false, true]);
    }
}
