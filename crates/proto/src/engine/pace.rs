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

/// How many bytes may be given to the kernel now for a connection that carries `rate` bytes per second, with so short a
/// round trip, and of which the kernel holds `held` bytes that have not arrived. Less than a packet is nothing.
pub fn room(rate: u64, round_trip: Duration, held: u64) -> u64 {
    let lasts = round_trip + 2 * AGAIN;
    let most = (u128::from(rate) * lasts.as_micros() / 1_000_000).min(u64::MAX.into()) as u64;
    match most.max(LEAST_BYTES).saturating_sub(held) {
        room if room < PACKET_BYTES => 0,
        room => room,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn as_much_is_under_way_as_lasts_for_a_round_trip_and_until_the_next_flush() {
        let (rate, round_trip) = (2_500_000, Duration::from_millis(50));
        assert_eq!([0, 100_000, 129_000].map(|held| room(rate, round_trip, held)), [130_000, 30_000, 0]);
        assert_eq!(room(0, Duration::ZERO, 0), LEAST_BYTES, "of a new connection nothing is known");
    }

    proptest! {
        #[test]
        fn the_kernel_never_holds_more_and_one_that_holds_nothing_always_gets_some(
            rate: u64, round_trip_us in 0..1u64 << 40, held: u64,
        ) {
            let room = |held| room(rate, Duration::from_micros(round_trip_us), held);
            prop_assert!(room(0) >= LEAST_BYTES);
            prop_assert!(room(held) == 0 || held.saturating_add(room(held)) == room(0));
        }
    }
}
