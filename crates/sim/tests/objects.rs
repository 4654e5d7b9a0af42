//! Objects on a virtual network: see `tweed_sim::objects`.

use std::sync::Arc;
use std::time::Duration;

use tweed_proto::objects::{Mode, ObjectId, Rule};
use tweed_schedule::{Link, Topology};
use tweed_sim::objects::{run, Outcome, Setup, What};

const RATE: u64 = 1_250_000_000;
const LATENCY: Duration = Duration::from_micros(50);
/// A tenth of a second over a link.
const SIZE: u64 = RATE / 10;
const TARGET: ObjectId = ObjectId(7);

fn flat(ranks: u32) -> Setup {
    Setup::new(Arc::new(Topology::complete(ranks, Link::new(RATE, LATENCY))))
}

fn object(number: u32) -> ObjectId {
    ObjectId(1000 + u128::from(number))
}

fn seconds(outcome: &Outcome) -> f64 {
    outcome.end().as_secs_f64() * RATE as f64
}

fn all_got(setup: &Setup) -> Outcome {
    let outcome = run(setup).unwrap();
    assert_eq!((outcome.waiting.as_slice(), outcome.failed.as_slice()), (&[][..], &[][..]));
    outcome
}

/// Every process has one source, from `gap` after the one before on; process 0 wants the sum.
fn sum(ranks: u32, size: u64, gap: Duration) -> Setup {
    let mut setup = flat(ranks);
    for rank in 0..ranks {
        setup.call(gap * rank, rank, What::Put { object: object(rank), size });
    }
    let ids = (0..ranks).map(object).collect();
    let what = What::Reduce { target: TARGET, ids, count: ranks, mode: Mode::Whole, rule: Rule::Measured };
    setup.call(Duration::ZERO, 0, what);
    setup
}

fn broadcast(ranks: u32, size: u64) -> Setup {
    let mut setup = flat(ranks);
    setup.call(Duration::ZERO, 0, What::Put { object: TARGET, size });
    (1..ranks).for_each(|rank| setup.call(Duration::ZERO, rank, What::Get { object: TARGET }));
    setup
}

#[test]
fn a_broadcast_flows_through_a_chain() {
    for ranks in [4, 16, 64] {
        let outcome = all_got(&broadcast(ranks, SIZE));
        println!(
            "{ranks}: {} sent {}",
            seconds(&outcome) / SIZE as f64,
            outcome.sent(0) as f64 / SIZE as f64
        );
        assert_eq!(outcome.most_fed, 1);
    }
}

#[test]
fn a_sum_flows_through_a_tree() {
    for ranks in [4, 16, 64] {
        let outcome = all_got(&sum(ranks, SIZE, Duration::ZERO));
        println!("{ranks}: {}", seconds(&outcome) / SIZE as f64);
    }
}
