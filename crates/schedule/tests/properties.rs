//! Properties of the checker on many schedules.

mod common;

use common::{build, pairwise, ring};
use proptest::prelude::*;
use tweed_schedule::{Collective, Send, Waits};
use Collective::AllReduce;

fn sends_of(ranks: u32, direct: bool) -> Vec<Send> {
    (if direct { pairwise } else { ring })(ranks)
}

proptest! {
    #[test]
    fn builders_pass_in_any_order_of_their_sends(ranks in 2u32..12, direct: bool, seed: u64) {
        let mut sends = sends_of(ranks, direct);
        let length = sends.len();
        for index in 0..length {
            sends.swap(index, (seed as usize).wrapping_mul(index + 7) % length);
        }
        prop_assert!(build(AllReduce, ranks, ranks, sends).is_ok());
    }

    #[test]
    fn leaving_out_any_send_is_noticed(ranks in 2u32..10, direct: bool, pick: prop::sample::Index) {
        let mut sends = sends_of(ranks, direct);
        sends.remove(pick.index(sends.len()));
        prop_assert!(build(AllReduce, ranks, ranks, sends).is_err());
    }

    #[test]
    fn adding_a_reduction_after_the_end_is_noticed(ranks in 2u32..10, direct: bool, src in 0u32..10, hop in 1u32..10, chunk in 0u32..10) {
        let mut sends = sends_of(ranks, direct);
        let src = src % ranks;
        let dst = (src + 1 + hop % (ranks - 1)) % ranks;
        sends.push(Send::new(1000, src, dst, chunk % ranks, true));
        prop_assert!(build(AllReduce, ranks, ranks, sends).is_err());
    }

    #[test]
    fn waits_point_to_earlier_steps_at_the_sender(ranks in 2u32..10, direct: bool) {
        let sends = sends_of(ranks, direct);
        let waits = Waits::new(&sends);
        for (index, send) in sends.iter().enumerate() {
            for &earlier in waits.before(index) {
                let earlier = &sends[earlier as usize];
                prop_assert!(earlier.step < send.step && earlier.dst == send.src && earlier.chunk == send.chunk);
            }
        }
    }

    #[test]
    fn every_send_reads_exactly_one_value(ranks in 2u32..10, direct: bool) {
        let sends = sends_of(ranks, direct);
        let waits = Waits::new(&sends);
        let mut seen = vec![0; sends.len()];
        for (index, arrival) in waits.arrivals().iter().enumerate() {
            waits.readers(index).iter().for_each(|&reader| seen[reader as usize] += 1);
            let same = waits.readers(index).iter().all(|&reader| waits.carries(reader as usize) == arrival.previous);
            prop_assert!(same);
        }
        prop_assert!(seen.iter().all(|&times| times <= 1));
    }
}
