//! How much the kernel is given at a time where something may be urgent: what it has, nothing overtakes any more.
//!
//! A connection needs as many bytes under way as it carries in a round trip. What is more stands in a queue, of this host
//! or of the slowest link: a congestion control that fills queues, as cubic does, is held to that here. What is under way
//! must last until the next flush, too, which is due after [`AGAIN`] and late where the host is busy.

use std::time::Duration;

/// Who holds frames back flushes them again after so long.
pub const AGAIN: Duration = Duration::from_millis(1);
/// What a full packet carries.
const PACKET_BYTES: u64 = 1448;
/// So many bytes the kernel may always hold: with fewer, the other end would put off its acknowledgement.
pub const LEAST_BYTES: u64 = 4 * PACKET_BYTES;
/// What is under way lasts so long beyond a round trip, since the next flush may be late, and by a quarter longer: where
/// flushes have been too late the connection has carried less than it can, and with more under way it soon carries more.
const UNTIL_FLUSH: Duration = Duration::from_millis(3);
/// The rate is that of so long a stretch, the best of the last few: of single packets it says little.
const STRETCH: Duration = Duration::from_millis(50);
const STRETCHES: usize = 16;

/// What the kernel says of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Carried {
    /// Bytes that have arrived at the other end so far.
    pub arrived: u64,
    /// How long some bytes were under way so far.
    pub busy: Duration,
    /// The shortest round trip.
    pub round_trip: Duration,
}

/// How fast one connection is, as far as was seen.
#[derive(Debug, Default)]
pub struct Pace {
    before: Carried,
    rates: [u64; STRETCHES],
}

impl Pace {
    /// How many bytes may be given to the kernel now, which holds `held` bytes that have not arrived. Less than a packet is
    /// nothing.
    pub fn room(&mut self, now: &Carried, held: u64) -> u64 {
        let lasts = (now.round_trip + UNTIL_FLUSH).as_micros() * 5 / 4;
        let most = (u128::from(self.rate(now)) * lasts / 1_000_000).min(u64::MAX.into()) as u64;
        match most.max(LEAST_BYTES).saturating_sub(held) {
            room if room < PACKET_BYTES => 0,
            room => room,
        }
    }

    /// Bytes per second, while bytes are under way.
    fn rate(&mut self, now: &Carried) -> u64 {
        let bytes = now.arrived.saturating_sub(self.before.arrived);
        let time = now.busy.saturating_sub(self.before.busy);
        let rate = u128::from(bytes) * 1_000_000 / time.as_micros().max(1);
        if time >= STRETCH {
            self.rates.rotate_right(1);
            self.rates[0] = rate as u64;
            self.before = *now;
        }
        match self.rates.iter().max() {
            Some(&best) if best > 0 => best,
            // No stretch is over: there is only its beginning.
            _ => rate.min(u64::MAX.into()) as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn carried(arrived: u64, busy_ms: u64, round_trip_ms: u64) -> Carried {
        let (busy, round_trip) = (Duration::from_millis(busy_ms), Duration::from_millis(round_trip_ms));
        Carried { arrived, busy, round_trip }
    }

    #[test]
    fn as_much_is_under_way_as_lasts_for_a_round_trip_and_until_the_next_flush() {
        let mut pace = Pace::default();
        assert_eq!(pace.room(&Carried::default(), 0), LEAST_BYTES, "of a new connection nothing is known");
        assert_eq!(pace.room(&carried(250_000, 100, 49), 0), 162_500, "52 ms at 2.5 MB/s, and a quarter");
        assert_eq!([100_000, 162_000].map(|held| pace.room(&carried(250_000, 100, 49), held)), [62_500, 0]);
    }

    #[test]
    fn one_slow_stretch_says_nothing_and_many_do() {
        let (mut pace, mut arrived) = (Pace::default(), 0);
        let mut rooms = (1..30).map(|stretch| {
            arrived += if stretch == 1 { 500_000 } else { 50_000 };
            pace.room(&carried(arrived, 50 * stretch, 1), 0)
        });
        assert!(rooms.by_ref().take(STRETCHES).all(|room| room == 50_000));
        assert!(rooms.all(|room| room == LEAST_BYTES));
    }

    proptest! {
        #[test]
        fn the_kernel_never_holds_more_and_one_that_holds_nothing_always_gets_some(
            arrived in 0..1u64 << 50, busy_ms in 0..1u64 << 20, round_trip_ms in 0..1u64 << 20, held: u64,
        ) {
            let now = carried(arrived, busy_ms, round_trip_ms);
            let [all, rest] = [0, held].map(|held| Pace::default().room(&now, held));
            prop_assert!(all >= LEAST_BYTES);
            prop_assert!(rest == 0 || held.saturating_add(rest) == all);
        }
    }
}
