//! What objects reach in the simulator, at 16, 64 and 256 processes: `objects_figures [PROCESSES...]`. Times are in units of
//! S/B, the time of the bytes over one link.

use std::time::Duration;

use tweed_proto::objects::{blocks, forms, Costs, Mode, Rule};
use tweed_schedule::Rank;
use tweed_sim::objects::workloads::{broadcast, source, Sum, TARGET};
use tweed_sim::objects::{behind_switch, run, Outcome, Setup};

const MS: Duration = Duration::from_millis(1);
/// The rate: 10 Gbit/s in bytes per second.
const RATE: u64 = 1_250_000_000;

fn costs(latency_us: u64, message_us: u64) -> Costs {
    let us = Duration::from_micros;
    Costs { latency: us(latency_us), rate: RATE, message: us(message_us) }
}

fn ended(setup: &Setup) -> Outcome {
    let outcome = run(setup).unwrap_or_else(|error| panic!("{error}"));
    assert!(
        outcome.waiting.is_empty() && outcome.failed.is_empty(),
        "{:?} {:?}",
        outcome.waiting,
        outcome.failed
    );
    outcome
}

fn units(time: Duration, size: u64) -> f64 {
    time.as_secs_f64() * RATE as f64 / size as f64
}

fn main() {
    let asked: Vec<Rank> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let sizes = if asked.is_empty() { vec![16, 64, 256] } else { asked };
    for ranks in sizes {
        pipelining(ranks);
        arrivals(ranks);
        overlap(ranks);
        overlap_of_late(ranks);
        deaths(ranks);
        slow_receiver(ranks);
        search(ranks);
    }
}

fn pipelining(ranks: Rank) {
    let costs = costs(50, 5);
    for size in [1 << 20, RATE / 10, 1 << 30] {
        let got = ended(&broadcast(ranks, size, &costs, Duration::ZERO));
        let sum = ended(&Sum::of(ranks - 1, size).setup(&costs));
        println!(
            "{ranks} processes, {size} bytes: broadcast {:.3} (origin sent {:.2} objects, a copy fed {} at a time), sum {:.3}",
            units(got.end(), size),
            got.sent(0) as f64 / size as f64,
            got.most_fed,
            units(sum.end(), size)
        );
    }
}

fn arrivals(ranks: Rank) {
    let (costs, size) = (costs(50, 5), RATE / 10);
    let sum = Sum { gap: 50 * MS, ..Sum::of(ranks - 1, size) };
    let after = ended(&sum.setup(&costs)).end().saturating_sub(sum.last());
    let bound = 1.05 * size as f64 / RATE as f64 + 0.005;
    println!("{ranks} processes, sources 50 ms apart: {after:?} after the last, bound {:.4}s", bound);
}

fn overlap(ranks: Rank) {
    let costs = costs(50, 5);
    for size in [RATE / 100, RATE / 10] {
        let sum = Sum::of(ranks - 1, size);
        let apart =
            ended(&sum.setup(&costs)).end() + ended(&broadcast(ranks, size, &costs, Duration::ZERO)).end();
        let together = ended(&sum.all_reduce(&costs)).end();
        let share = together.as_secs_f64() / apart.as_secs_f64();
        println!(
            "{ranks} processes, {size} bytes: all-reduce {:.3}, {share:.3} of sum and broadcast",
            units(together, size)
        );
    }
}

/// As `overlap`, with sources that appear within S/B: times count from the last of them on.
fn overlap_of_late(ranks: Rank) {
    let (costs, size) = (costs(50, 5), RATE / 10);
    let sum = Sum { gap: Duration::from_secs_f64(0.1 / f64::from(ranks)), ..Sum::of(ranks - 1, size) };
    let after = |setup: &Setup| ended(setup).end().saturating_sub(sum.last());
    let apart = after(&sum.setup(&costs)) + ended(&broadcast(ranks, size, &costs, Duration::ZERO)).end();
    let together = after(&sum.all_reduce(&costs));
    let share = together.as_secs_f64() / apart.as_secs_f64();
    println!(
        "{ranks} processes, sources within S/B: all-reduce {:.3} after the last, {share:.3} of both",
        units(together, size)
    );
}

fn deaths(ranks: Rank) {
    let (costs, size) = (costs(50, 5), RATE / 10);
    for mode in [Mode::Ranges, Mode::Whole] {
        for spares in [0, 2].into_iter().filter(|&spares| spares > 0 || mode == Mode::Ranges) {
            let sum = Sum { mode, count: ranks - 1 - spares, ..Sum::of(ranks - 1, size) };
            let quiet = ended(&sum.setup(&costs)).end();
            for share in [0.1, 0.5, 0.9] {
                let mut setup = sum.setup(&costs);
                setup.deaths.insert(ranks / 2, quiet.mul_f64(share));
                let outcome = ended(&setup);
                let lost = outcome.end().saturating_sub(quiet);
                let parts = outcome.included[&TARGET].len();
                println!(
                    "{ranks} processes, {mode:?}, {spares} spares: a death at {share} costs {lost:?} (detection up to {:?}), {parts} ranges, {}",
                    setup.detection.mul_f64(1.5),
                    if outcome.included[&TARGET].iter().all(|part| !part.1.contains(&source(ranks / 2))) { "without it" } else { "with a part of it" }
                );
            }
        }
    }
}

fn slow_receiver(ranks: Rank) {
    let size = RATE / 10;
    let costs = costs(50, 5);
    let all = |slow: Option<Rank>| {
        let rates: Vec<u64> =
            (0..ranks).map(|rank| if Some(rank) == slow { RATE / 10 } else { RATE }).collect();
        let mut setup = broadcast(ranks, size, &costs, Duration::ZERO);
        setup.topology = std::sync::Arc::new(behind_switch(&rates, costs.latency));
        ended(&setup)
    };
    let even = all(None);
    let worst = [1, ranks / 2, ranks - 1].map(|slow| {
        let uneven = all(Some(slow));
        let others = uneven.got.iter().filter(|(key, _)| key.0 != slow);
        let last = others.map(|(_, at)| at.as_secs_f64()).fold(0.0, f64::max);
        last / even.end().as_secs_f64()
    });
    println!(
        "{ranks} processes, one at a tenth of the rate: the last other takes {worst:.3?} of the time without"
    );
}

fn search(ranks: Rank) {
    let sources = ranks - 1;
    for (latency, message) in [(50, 1), (50, 20), (500, 5)] {
        let costs = costs(latency, message);
        for size in [100_000, 1 << 20, 10 << 20] {
            let time =
                |rule| ended(&Sum { rule, ..Sum::of(sources, size) }.setup(&costs)).end().as_secs_f64();
            let picked = time(Rule::Measured);
            let mut best = (f64::INFINITY, None);
            for form in forms(sources) {
                for block in blocks(size).step_by(2) {
                    if size / block * u64::from(ranks) > 100_000 {
                        continue; // so many blocks are never best, and take long to simulate
                    }
                    let takes = time(Rule::Given(form, block));
                    if takes < best.0 {
                        best = (takes, Some((form, block)));
                    }
                }
            }
            println!("{ranks} processes, {size} bytes, {latency} us, {message} us a message: {:.3} of the best, {:?}", picked / best.0, best.1);
        }
    }
}
