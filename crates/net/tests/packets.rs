//! Values that travel in packets, over loopback: ranks are threads with a node each, and share no memory.

mod support;

use std::time::Duration;

use support::*;
use tweed_kernels::{DType, ReduceOp};
use tweed_net::{EngineError, GroupConfig, GroupSpec, Ltp, Node, Operation, PlanRow, Request, Segment};
use tweed_schedule::{Collective, Send};

fn config() -> GroupConfig {
    GroupConfig { ltp: Some(ltp()), server: None }
}

/// Everything to rank 0, and the sum back.
fn star(n: u32) -> PlanRow {
    let there = (1..n).map(|rank| Send::new(0, rank, 0, 0, true));
    let back = (1..n).map(|rank| Send::new(1, 0, rank, 0, false));
    row(Collective::AllReduce, n, 1, there.chain(back).collect())
}

#[test]
fn sums_are_those_of_streams() {
    for (ranks, numel) in [(2, 1), (3, 1000), (3, 300_000), (4, 2_000_000)] {
        let results = run_with(ranks, true, vec![pairwise(ranks)], config(), |group, rank| {
            let mut data: Vec<f32> = vec![0.0; numel];
            sum_three_times(group, rank, &mut data);
            let links = (0..ranks).map(|r| if r == rank { "self" } else { "ltp" });
            assert!(links.eq(group.links()));
            (data, group.take_deliveries())
        });
        for (data, deliveries) in results {
            let right = |(i, x): (usize, &f32)| *x == (0..ranks).map(|r| value(r, i)).sum::<f32>();
            let lost: u64 = deliveries.iter().map(|d| d.by_rank.values().map(|s| s.lost).sum::<u64>()).sum();
            assert!(lost > 0 || data.iter().enumerate().all(right), "{ranks} ranks, {numel} numbers");
            assert!(numel < ranks as usize || deliveries.len() == 3);
        }
    }
}

#[test]
fn a_server_averages_what_the_others_contribute() {
    for server in [0, 2] {
        let config = GroupConfig { server: Some(server), ..config() };
        let results = run_with(4, true, vec![star(4)], config, |group, rank| {
            let mut data = vec![rank as f32 * 6.0; 100_000];
            complete(group, all_reduce(&mut data, ReduceOp::Avg)).expect("the average is taken");
            (data, group.take_deliveries())
        });
        let expected = (0..4).filter(|&r| r != server).map(|r| r as f32 * 6.0).sum::<f32>() / 3.0;
        for (rank, (data, deliveries)) in results.iter().enumerate() {
            assert!(data.iter().all(|&x| x == expected), "server {server}, rank {rank}");
            let serves = rank as u32 == server;
            assert_eq!(deliveries[0].by_rank.len(), if serves { 3 } else { 1 });
            assert_eq!(deliveries[0].sent.bytes, if serves { 0 } else { 400_000 });
        }
    }
}

#[test]
fn ranks_that_disagree_learn_what_each_called() {
    check_disagreement(true, config());
}

#[test]
fn a_rank_that_never_comes_is_named() {
    check_absence(true, config());
}

#[test]
fn sends_meet_receives_of_their_tag_in_order() {
    check_tags(true, config());
}

#[test]
fn whole_numbers_lose_nothing_and_are_not_reported() {
    let results = run_with(3, true, vec![pairwise(3)], config(), |group, rank| {
        let mut data = vec![f32::from_bits(rank + 1); 50_000];
        let request = Request { dtype: DType::I32, ..all_reduce(&mut data, ReduceOp::Sum) };
        complete(group, request).expect("the sum is taken");
        assert!(data.iter().all(|x| x.to_bits() == 6));
        group.take_deliveries()
    });
    assert!(results.concat().is_empty());
}

#[test]
fn a_schedule_that_passes_sums_on_is_refused_unless_nothing_gets_lost() {
    let adopt = |ltp: Ltp| {
        let config = GroupConfig { ltp: Some(ltp), server: None };
        run_with(3, true, vec![], config, |group, _| group.adopt(vec![ring(3)])).swap_remove(0)
    };
    let Err(EngineError::Usage(text)) = adopt(ltp()) else { panic!("a ring passes sums on") };
    assert!(text.contains("passes sums on"), "{text}");
    assert_eq!(adopt(Ltp { lossless: true, ..ltp() }), Ok(()));
}

#[test]
fn a_server_that_is_started_again_serves_a_new_group() {
    let start = || support::start(true);
    let config = GroupConfig { server: Some(0), ..config() };
    let workers = [start(), start()];
    let meet = |number: u32, server: Node, dies: bool| {
        let descriptors = vec![server.descriptor(), workers[0].descriptor(), workers[1].descriptor()];
        let spec = |rank: u32| {
            let (name, config) = (format!("group {number}"), config.clone());
            // One hash: over the links that stand, the epochs alone tell what is of which group.
            let (hash, epoch) = (7, Some(number.into()));
            GroupSpec { name, config, hash, epoch, ..spec(number, rank, &descriptors, vec![star(3)]) }
        };
        std::thread::scope(|scope| {
            let work = |rank: u32| {
                let node = &workers[rank as usize - 1];
                let spec = spec(rank);
                scope.spawn(move || {
                    let group = node.join(spec).expect("ranks meet");
                    let mut data = vec![rank as f32; 500_000];
                    let mut sum = || complete(&group, all_reduce(&mut data, ReduceOp::Sum));
                    let first = sum();
                    (first, if dies { sum() } else { Ok(()) }, data[7])
                })
            };
            let spawned = [work(1), work(2)];
            let group = server.join(spec(0)).expect("ranks meet");
            let mut data = vec![9f32; 500_000];
            complete(&group, all_reduce(&mut data, ReduceOp::Sum)).expect("the sum is taken");
            drop(group);
            if dies {
                drop(server);
            }
            spawned.map(|thread| thread.join().expect("a worker ends well"))
        })
    };
    for (first, second, _) in meet(1, start(), true) {
        assert_eq!(first, Ok(()));
        let Err(EngineError::PeerLost(text)) = second else { panic!("{second:?}") };
        assert!(text.contains("rank 0"), "{text}");
    }
    for (first, _, value) in meet(2, start(), false) {
        assert_eq!((first, value), (Ok(()), 3.0));
    }
}

/// Every rank's own part for every other.
fn all_to_all(n: u32) -> PlanRow {
    let sends = pairs(n).map(|(a, b)| Send::new(0, a, b, a * n + b, false));
    row(Collective::AllToAll, n, n * n, sends.collect())
}

/// As it ended at one rank: what it sent to each, what came from each, what was reported to it of either. Loopback loses
/// nothing by itself: `tests/torch/test_lossy.py` has the same over a network that does.
struct Ended {
    sent: Vec<Vec<u8>>,
    came: Vec<Vec<u8>>,
    lost: Vec<(usize, usize)>,
    missing: Vec<(usize, usize)>,
    contributed: u64,
}

#[test]
fn what_an_all_to_all_of_contributions_loses_both_ends_know() {
    const BYTES: usize = 400_000;
    let hasty = Ltp { fraction: 0.01, slack: Duration::ZERO, ..ltp() };
    for named in [true, false] {
        let config = GroupConfig { ltp: Some(hasty.clone()), server: None };
        let ended = run_with(3, true, vec![all_to_all(3)], config, |group, rank| {
            let sent: Vec<Vec<u8>> = (0..3)
                .map(|to| (0..BYTES).map(|i| (1 + i % 97 + to * 50 + rank as usize) as u8).collect())
                .collect();
            let mut came = vec![vec![7u8; BYTES]; 3];
            let segment = |part: &Vec<u8>| Segment { data: part.as_ptr().into(), bytes: BYTES as u64 };
            for part in sent.iter().chain(&came).filter(|_| named) {
                group.may_lose(part.as_ptr() as usize, BYTES);
            }
            let outputs =
                came.iter_mut().map(|p| Segment { data: p.as_mut_ptr().into(), bytes: BYTES as u64 });
            let operation = Operation::Collective { what: Collective::AllToAll, root: 0 };
            let request =
                request(operation, sent.iter().map(segment).collect(), outputs.collect(), ReduceOp::Sum);
            complete(group, Request { dtype: DType::U8, ..request }).expect("all is exchanged");
            let place = |at: usize, parts: &[Vec<u8>]| {
                let within = |p: &Vec<u8>| (0..BYTES).contains(&at.wrapping_sub(p.as_ptr() as usize));
                let of = parts.iter().position(within).expect("it is reported of named memory");
                of * BYTES + at - parts[of].as_ptr() as usize
            };
            let mut ended = Ended { sent, came, lost: Vec::new(), missing: Vec::new(), contributed: 0 };
            for delivery in group.take_deliveries() {
                ended.contributed += delivery.sent.bytes;
                ended.lost.extend(delivery.lost.iter().map(|(at, v)| (place(*at, &ended.sent), v.len())));
                let missing = delivery.missing.iter().map(|&(at, n)| (place(at, &ended.came), n as usize));
                ended.missing.extend(missing);
            }
            ended
        });
        let between = |ranges: &[(usize, usize)], other: usize| -> Vec<(usize, usize)> {
            let mut found: Vec<_> = ranges.iter().filter(|r| r.0 / BYTES == other).copied().collect();
            found.iter_mut().for_each(|r| r.0 %= BYTES);
            found.sort_unstable();
            found
        };
        assert!(ended.iter().all(|t| t.contributed == if named { 2 * BYTES as u64 } else { 0 }));
        for (src, dst) in (0..3).flat_map(|a| (0..3).map(move |b| (a, b))) {
            let missing = between(&ended[dst].missing, src);
            assert_eq!(missing, between(&ended[src].lost, dst), "from {src} to {dst}");
            assert!(named || missing.is_empty());
            let mut expected = ended[src].sent[dst].clone();
            missing.iter().for_each(|&(at, bytes)| expected[at..at + bytes].fill(0));
            assert!(ended[dst].came[src] == expected, "from {src} to {dst}");
        }
    }
}
