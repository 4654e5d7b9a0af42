//! How much of a pull may be under way.

use std::time::Duration;

/// So many bytes of blocks may come before their sender is told that they are here.
const UNTOLD_BYTES: u64 = 16 << 10;
/// What is at a receiver and waits until that has a processor counts up to so much.
const MOST_LAG: u64 = 1 << 20;
/// A link with this many unread blocks is not ended yet.
const MOST_BLOCKS: f64 = 4096.0;

/// So many blocks of a pull may be under way: what fits on the way there and back, and what is at the other end before it takes
/// it in; what it need not tell of; and two to begin with. The rate is that of pulls with such a window, and so is the lag: it is
/// twice what they would need, so from one that is too small it grows. No more than that: what waits before a link is in the way
/// of all else that goes there, and what finds no room in that queue is lost, and holds up all that comes after it.
pub fn window(block: u64, rate: u64, round_trip: Duration, lag: u64) -> u64 {
    let bytes = round_trip.as_secs_f64() * rate as f64 + lag.min(MOST_LAG) as f64;
    1 + untold(block) + (2.0 * bytes / block as f64).min(MOST_BLOCKS) as u64
}

/// So many blocks may come before their sender is told of the last one.
pub fn untold(block: u64) -> u64 {
    (UNTOLD_BYTES / block.max(1)).max(1)
}

/// Bytes at a receiver that has not taken them in, when it has told of a block: of `under_way` blocks behind that one
/// `on_the_way` bytes are not there yet, and it need not have told of some others.
pub fn lag(under_way: u64, block: u64, on_the_way: u64) -> u64 {
    (under_way * block).saturating_sub(on_the_way + (untold(block) - 1) * block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_a_rate_and_a_lag_that_are_too_low_the_window_leads_to_that_of_the_link() {
        const LINK: f64 = 125e6;
        for block in [4096, 4928, 6912, 8256, 20_032, 23_360, 64 << 10] {
            for (round_trip_s, late_s) in [(0.1, 0.0), (0.0001, 0.005), (0.05, 0.002)] {
                let (mut rate, mut late) = (LINK / 100.0, 0);
                for _ in 0..32 {
                    let most = window(block, rate as u64, Duration::from_secs_f64(round_trip_s), late);
                    rate = ((most * block) as f64 / (round_trip_s + late_s)).min(LINK);
                    // What is not on the way is there, and is taken in late.
                    let on_the_way = (round_trip_s * rate) as u64;
                    late = lag(most - 1, block, on_the_way);
                }
                assert!(rate > 0.9 * LINK, "{block} {round_trip_s} {late_s}: {rate}");
            }
        }
        let second = Duration::from_secs(1);
        assert_eq!(window(1 << 20, u64::MAX, second, 0), 2 + 4096);
        assert_eq!(window(1 << 20, 1, Duration::ZERO, u64::MAX), 2 + 2);
        assert_eq!(window(4 << 10, 1, Duration::ZERO, 0), 5, "more than may be left untold");
    }
}
