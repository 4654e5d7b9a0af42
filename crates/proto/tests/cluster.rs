//! Executors of all ranks against each other, in an order of events drawn from a seed.

mod support;

use proptest::prelude::*;
use support::cluster::Cluster;
use support::schedules;
use tweed_proto::{Layout, Program, Reach};
use tweed_rng::Rng;
use tweed_schedule::Schedule;

/// One layout per rank: the same lengths, pieces and window; hosts and places of the buffers at random.
fn layouts(schedule: &Schedule, rng: &mut Rng) -> Vec<Layout> {
    let n = schedule.ranks() as usize;
    let (piece, window) = (1 + rng.below(4), 1 + rng.below(4) as u32);
    let lengths: Vec<u64> = (0..schedule.chunks()).map(|_| rng.below(9)).collect();
    let hosts = 1 + rng.index(3);
    let host: Vec<usize> = (0..n).map(|_| rng.index(hosts)).collect();
    let in_place = rng.below(3);
    let allowed = |rank: usize| Program::compile(schedule, rank as u32).allows_in_place();
    let layout = |rank: usize, rng: &mut Rng| Layout {
        chunk_bytes: lengths.clone(),
        piece,
        window,
        in_place: allowed(rank) && (in_place == 1 || (in_place == 2 && rng.bernoulli(0.5))),
        reach: host.iter().map(|&h| if h == host[rank] { Reach::Shared } else { Reach::Wire }).collect(),
    };
    (0..n).map(|rank| layout(rank, rng)).collect()
}

fn drive(schedule: &Schedule, seed: u64) {
    let layouts = layouts(schedule, &mut Rng::new(seed));
    Cluster::new(schedule, &layouts, seed).drive();
}

/// One host; bit `r` of `mask` says that rank `r` works in place, where its program allows it.
fn one_host(schedule: &Schedule, mask: u32) -> Vec<Layout> {
    let layout = |rank: u32| Layout {
        chunk_bytes: vec![3; schedule.chunks() as usize],
        piece: 2,
        window: 1,
        in_place: mask >> rank & 1 == 1 && Program::compile(schedule, rank).allows_in_place(),
        reach: vec![Reach::Shared; schedule.ranks() as usize],
    };
    (0..schedule.ranks()).map(layout).collect()
}

#[test]
fn every_mix_of_buffers_in_place_and_staged() {
    for n in 2..4 {
        for (schedule, mask) in schedules::all(n).iter().flat_map(|s| (0..1 << n).map(move |m| (s, m))) {
            println!("{} {} over {n}, in place {mask:b}", schedule.name(), schedule.collective());
            (0..4).for_each(|seed| Cluster::new(schedule, &one_host(schedule, mask), seed).drive());
        }
    }
}

#[test]
fn only_exchanges_are_kept_from_working_in_place() {
    let allowed = |s: &Schedule| (0..s.ranks()).all(|r| Program::compile(s, r).allows_in_place());
    let refused = schedules::all(4).into_iter().filter(|s| !allowed(s));
    let names: Vec<String> = refused.map(|s| s.name().to_string()).collect();
    assert_eq!(names, ["exchange", "two stars", "doubling"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_schedule_ends_with_the_result_of_lockstep(n in 2u32..9, seed: u64) {
        for schedule in schedules::all(n) {
            println!("{} {} over {n}, seed {seed}", schedule.name(), schedule.collective());
            drive(&schedule, seed);
        }
    }

    #[test]
    fn random_schedules_do_too(n in 2u32..8, chunks in 1u32..4, seed: u64) {
        let schedule = schedules::random(n, chunks, &mut Rng::new(seed));
        drive(&schedule, seed);
    }
}
