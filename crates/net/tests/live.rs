//! The engine over real shared memory and real sockets on loopback: ranks are threads with a node each.

mod support;

use support::{all_reduce, complete, exchange, pairwise, ring, run};
use tweed_kernels::ReduceOp;
use tweed_net::PlanRow;

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
