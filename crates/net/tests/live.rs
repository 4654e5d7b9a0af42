//! The engine over real shared memory and real sockets on loopback: ranks are threads with a node each.

mod support;

use std::time::Duration;

use support::*;
use tweed_kernels::ReduceOp;
use tweed_net::{EngineError, Group, GroupConfig, Operation, PlanRow, Request, Segment};

type Builder = fn(u32) -> PlanRow;
const BUILDERS: [(&str, Builder); 4] =
    [("pairwise", pairwise), ("exchange", exchange), ("ring", ring), ("of few in flight", of_few_in_flight)];

/// As little is under way as can be.
fn of_few_in_flight(ranks: u32) -> PlanRow {
    PlanRow { in_flight_bytes: Some(1), piece_bytes: Some(4 << 10), ..pairwise(ranks) }
}

fn check_sums(ranks: u32, wire_only: bool) {
    for ((name, build), numel) in BUILDERS.into_iter().flat_map(|b| [0, 1, 1000, 300_000].map(|n| (b, n))) {
        let results = run(ranks, wire_only, vec![build(ranks)], |group, rank| {
            let mut data = vec![0f32; numel];
            sum_three_times(group, rank, &mut data);
            data
        });
        for (rank, data) in results.iter().enumerate() {
            for (i, x) in data.iter().enumerate() {
                let expected: f32 = (0..ranks).map(|r| value(r, i)).sum();
                assert_eq!(*x, expected, "{name}: rank {rank} of {ranks}, element {i} of {numel}");
            }
        }
    }
}

#[test]
fn sums_over_shared_memory() {
    (2..=4).for_each(|ranks| check_sums(ranks, false));
}

#[test]
fn sums_over_tcp() {
    (2..=3).for_each(|ranks| check_sums(ranks, true));
}

/// Shared memory of the group as f32s; it lives as long as the node, and so longer than the test's use of it.
fn shared(group: &Group, numel: usize) -> &'static mut [f32] {
    let address = group.alloc(numel as u64 * 4).expect("there is room").cast::<f32>();
    // SAFETY: the block is as long as said, zeroed or old memory, and this test's alone.
    unsafe { std::slice::from_raw_parts_mut(address, numel) }
}

#[test]
fn sums_in_place_and_staged_mix() {
    for (name, build) in BUILDERS {
        let results = run(3, false, vec![build(3)], |group, rank| {
            let mut heap = vec![0f32; 400_000];
            let data = if rank == 1 { &mut heap[..] } else { shared(group, 400_000) };
            sum_three_times(group, rank, data);
            data.to_vec()
        });
        for data in results {
            let right = |(i, x): (usize, &f32)| *x == (0..3).map(|r| value(r, i)).sum::<f32>();
            assert!(data.iter().enumerate().all(right), "{name}");
        }
    }
}

#[test]
fn an_average_divides_once() {
    for (name, build) in BUILDERS {
        let results = run(3, false, vec![build(3)], |group, rank| {
            let mut data = vec![rank as f32 * 3.0; 1000];
            complete(group, all_reduce(&mut data, ReduceOp::Avg)).expect("the average is taken");
            data
        });
        assert!(results.concat().iter().all(|&x| (x - 3.0).abs() < 1e-6), "{name}");
    }
}

#[test]
fn ranks_that_disagree_learn_what_each_called() {
    [false, true].into_iter().for_each(|wire_only| check_disagreement(wire_only, GroupConfig::default()));
}

#[test]
fn a_rank_that_never_comes_is_named() {
    check_absence(false, GroupConfig::default());
}

#[test]
fn a_group_that_is_aborted_ends_what_runs() {
    let results = run(2, false, vec![pairwise(2)], |group, rank| {
        let mut data = vec![0f32; 4];
        if rank == 1 {
            group.abort("a test says so");
            return Ok(());
        }
        let timeout = Some(Duration::from_secs(2));
        complete(group, Request { timeout, ..all_reduce(&mut data, ReduceOp::Sum) })
    });
    assert!(results[0].is_err());
}

#[test]
fn an_abort_ends_what_the_aborter_has_no_part_in() {
    let results = run(3, false, vec![], |group, rank| {
        let mut value = [0f32];
        let segment = vec![Segment { data: value.as_mut_ptr().into(), bytes: 4 }];
        if rank == 0 {
            let receive = Operation::Receive { from: Some(2), tag: 1 };
            return complete(group, request(receive, vec![], segment, ReduceOp::Sum));
        }
        if rank == 1 {
            group.abort("a test says so");
        }
        Ok(())
    });
    assert_eq!(results[0], Err(EngineError::Aborted("rank 1: a test says so".into())));
}

#[test]
fn sends_meet_receives_of_their_tag_in_order() {
    [false, true].into_iter().for_each(|wire_only| check_tags(wire_only, GroupConfig::default()));
}

#[test]
fn links_are_counted_and_notes_reach_rank_zero() {
    for wire_only in [false, true] {
        let all = run(3, wire_only, vec![exchange(3)], |group, rank| {
            let mut data = vec![0.0f32; 30_000];
            complete(group, all_reduce(&mut data, ReduceOp::Sum)).expect("the sum is taken");
            group.set_note(format!("note of {rank}").as_bytes()).expect("it is short");
            let stats = group.stats();
            assert!(group.under_way() > Duration::ZERO, "a sum has been taken");
            // A note may travel on another stream than what comes after it.
            for _ in 0..100 {
                complete(group, all_reduce(&mut data, ReduceOp::Sum)).expect("the sum is taken");
            }
            (stats, group.notes())
        });
        for (rank, (stats, _)) in all.iter().enumerate() {
            for link in stats.iter().filter(|l| l.rank as usize != rank) {
                assert!(link.traffic.bytes_out > 0 && link.traffic.bytes_in > 0, "{link:?}");
                assert_eq!(link.link, if wire_only { "tcp" } else { "shm" });
                assert_eq!(link.wires.rtt.is_some(), wire_only);
            }
            let times: u64 = stats.iter().map(|l| l.times_last).sum();
            assert_eq!(times, 1, "somebody comes last to each operation: {stats:?}");
        }
        for rank in 0..3 {
            assert_eq!(all[0].1[&rank], format!("note of {rank}").as_bytes());
        }
        assert!(all[1].1.is_empty(), "notes lie at rank 0 only");
    }
}
