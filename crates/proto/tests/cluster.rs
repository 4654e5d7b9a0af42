//! Executors of all ranks against each other, in an order of events drawn from a seed.

mod support;

use proptest::prelude::*;
use support::cluster::Cluster;
use support::rng::Rng;
use support::schedules;
use tweed_proto::{Layout, Program, Reach};
use tweed_schedule::Schedule;

/// One layout per rank: the same lengths, pieces and window; hosts and places of the buffers at random.
fn layouts(schedule: &Schedule, rng: &mut Rng) -> Vec<Layout> {
    let n = schedule.ranks() as usize;
    let (piece, window) = (1 + rng.below(4) as u64, 1 + rng.below(4) as u32);
    let lengths: Vec<u64> = (0..schedule.chunks())
        .map(|_| rng.below(9) as u64)
        .collect();
    let hosts = 1 + rng.below(3);
    let host: Vec<usize> = (0..n).map(|_| rng.below(hosts)).collect();
    let in_place = rng.below(3);
    let allowed = |rank: usize| Program::compile(schedule, rank as u32).allows_in_place();
    let layout = |rank: usize, rng: &mut Rng| Layout {
        chunk_bytes: lengths.clone(),
        piece,
        window,
        in_place: allowed(rank) && (in_place == 1 || (in_place == 2 && rng.coin())),
        reach: host
            .iter()
            .map(|&h| {
                if h == host[rank] {
                    Reach::Shared
                } else {
                    Reach::Wire
                }
            })
            .collect(),
    };
    (0..n).map(|rank| layout(rank, rng)).collect()
}

fn drive(schedule: &Schedule, seed: u64) {
    let layouts = layouts(schedule, &mut Rng::new(seed));
    Cluster::new(schedule, &layouts, seed).drive();
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
