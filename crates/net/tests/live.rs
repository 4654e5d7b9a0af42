//! The engine over real shared memory and real sockets on loopback: ranks are threads with a node each.

mod support;

use std::time::Duration;

use support::{all_reduce, complete, exchange, pairwise, request, ring, run};
use tweed_kernels::ReduceOp;
use tweed_net::{EngineError, Group, Operation, PlanRow, Request, Segment};

type Builder = fn(u32) -> PlanRow;
const BUILDERS: [(&str, Builder); 3] = [("pairwise", pairwise), ("exchange", exchange), ("ring", ring)];

fn value(rank: u32, index: usize) -> f32 {
    (rank as usize * 31 + index % 97) as f32
}

fn check_sums(ranks: u32, wire_only: bool, numel: usize) {
    for (name, build) in BUILDERS {
        let results = run(ranks, wire_only, vec![build(ranks)], |group, rank| {
            let mut data: Vec<f32> = (0..numel).map(|i| value(rank, i)).collect();
            for _ in 0..3 {
                data.iter_mut().enumerate().for_each(|(i, x)| *x = value(rank, i));
                complete(group, all_reduce(&mut data, ReduceOp::Sum)).expect("the sum is taken");
            }
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
    for ranks in 2..=4 {
        for numel in [0, 1, 1000, 300_000] {
            check_sums(ranks, false, numel);
        }
    }
}

#[test]
fn sums_over_tcp() {
    for ranks in 2..=3 {
        for numel in [0, 1, 1000, 300_000] {
            check_sums(ranks, true, numel);
        }
    }
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
            for _ in 0..3 {
                data.iter_mut().enumerate().for_each(|(i, x)| *x = value(rank, i));
                complete(group, all_reduce(data, ReduceOp::Sum)).expect("the sum is taken");
            }
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
fn ranks_that_disagree_are_told_what_each_called() {
    for wire_only in [false, true] {
        let results = run(3, wire_only, vec![pairwise(3)], |group, rank| {
            let mut data = vec![0f32; 4 + rank as usize];
            complete(group, all_reduce(&mut data, ReduceOp::Sum)).expect_err("shapes differ")
        });
        for error in results {
            let EngineError::ShapeMismatch(text) = error else { panic!("{error:?}") };
            for rank in 0..3 {
                assert!(
                    text.contains(&format!("rank {rank}: all_reduce SUM float32 [{}]", 4 + rank)),
                    "{text}"
                );
            }
        }
    }
}

#[test]
fn a_rank_that_never_comes_is_named() {
    let results = run(3, false, vec![pairwise(3)], |group, rank| {
        let mut data = vec![0f32; 4];
        let request =
            Request { timeout: Some(Duration::from_millis(50)), ..all_reduce(&mut data, ReduceOp::Sum) };
        if rank == 2 {
            Ok(())
        } else {
            complete(group, request)
        }
    });
    for error in results.into_iter().take(2) {
        let Err(EngineError::Deadline(text)) = error else { panic!("{error:?}") };
        assert!(text.contains("culprit: rank 2"), "{text}");
    }
}

#[test]
fn a_group_that_is_aborted_ends_what_runs() {
    let results = run(2, false, vec![pairwise(2)], |group, rank| {
        let mut data = vec![0f32; 4];
        if rank == 1 {
            group.abort("a test says so");
            return Ok(());
        }
        complete(
            group,
            Request { timeout: Some(Duration::from_secs(2)), ..all_reduce(&mut data, ReduceOp::Sum) },
        )
    });
    assert!(results[0].is_err());
}

#[test]
fn an_abort_ends_what_the_aborter_has_no_part_in() {
    let results = run(3, false, vec![], |group, rank| {
        let mut value = [0f32];
        let segment = vec![Segment { data: value.as_mut_ptr().into(), bytes: 4 }];
        match rank {
            0 => complete(
                group,
                request(Operation::Receive { from: Some(2), tag: 1 }, vec![], segment, ReduceOp::Sum),
            ),
            1 => {
                group.abort("a test says so");
                Ok(())
            }
            _ => Ok(()),
        }
    });
    assert_eq!(results[0], Err(EngineError::Aborted("a test says so".into())));
}

#[test]
fn sends_meet_receives_of_their_tag_in_order() {
    for wire_only in [false, true] {
        let results = run(2, wire_only, vec![], |group, rank| {
            let mut data = [[10f32], [20.0], [30.0]];
            let tags = if rank == 0 { [1, 2, 1] } else { [2, 1, 1] };
            for (value, tag) in data.iter_mut().zip(tags) {
                let segment = vec![Segment { data: value.as_mut_ptr().into(), bytes: 4 }];
                let sends = rank == 0;
                let from = Some(0).filter(|_| tag != 2);
                let operation =
                    if sends { Operation::Send { to: 1, tag } } else { Operation::Receive { from, tag } };
                let (inputs, outputs) = if sends { (segment, vec![]) } else { (vec![], segment) };
                complete(group, request(operation, inputs, outputs, ReduceOp::Sum)).expect("it arrives");
            }
            data.concat()
        });
        assert_eq!(results[1], [20.0, 10.0, 30.0]);
    }
}

#[test]
fn links_are_counted_and_notes_reach_rank_zero() {
    for wire_only in [false, true] {
        let all = run(3, wire_only, vec![exchange(3)], |group, rank| {
            let mut data = vec![0.0f32; 30_000];
            complete(group, all_reduce(&mut data, ReduceOp::Sum)).expect("the sum is taken");
            group.set_note(format!("note of {rank}").as_bytes()).expect("it is short");
            let stats = group.stats();
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
