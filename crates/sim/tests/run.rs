//! Runs whose outcome can be worked out by hand, and properties of all runs.

#[path = "../../proto/tests/support/schedules.rs"]
#[allow(dead_code, unreachable_pub)]
mod schedules;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tweed_schedule::{Collective, Draft, Link, Schedule, Send, Topology, Traits};
use tweed_sim::{run, End, Outcome, Setup, SimError};

const MB: u64 = 1_000_000;
/// 1 MB per millisecond.
const LINK: Link = Link { bandwidth: 1000 * MB, latency: Duration::from_micros(10), count: 1 };

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

fn flat(ranks: u32, bytes: u64) -> Setup {
    let setup = Setup::new(bytes, Arc::new(Topology::complete(ranks, LINK)));
    Setup { log: true, ..setup }
}

fn find(name: &str, collective: Collective, ranks: u32) -> Schedule {
    let mut all = schedules::all(ranks).into_iter();
    all.find(|s| s.name() == name && s.collective() == collective).expect("it is in the list")
}

fn ring(ranks: u32) -> Schedule {
    find("ring", Collective::AllReduce, ranks)
}

fn outcome(schedule: &Schedule, setup: &Setup) -> Outcome {
    run(schedule, setup).unwrap_or_else(|error| panic!("{}: {error}", schedule.name()))
}

fn finished(schedule: &Schedule, setup: &Setup) -> Duration {
    outcome(schedule, setup).finished().expect("nobody dies")
}

#[test]
fn a_ring_takes_its_steps_times_latency_and_bytes() {
    for n in [2, 3, 8] {
        let setup = flat(n, u64::from(n) * MB);
        let expected = 2 * (n - 1) * (us(10) + ms(1));
        assert_eq!(finished(&ring(n), &setup), expected, "{n} ranks");
    }
}

#[test]
fn two_slices_of_a_ring_keep_both_ends_of_a_link_busy() {
    let setup = Setup { piece: Some(MB / 2), ..flat(4, 4 * MB) };
    // The first slice's latency hides behind the second slice's bytes, but in the first and last step.
    assert_eq!(finished(&ring(4), &setup), 6 * ms(1) + us(10));
}

#[test]
fn all_at_once_share_the_receivers_port() {
    let gather = find("star", Collective::Gather, 5);
    assert_eq!(finished(&gather, &flat(5, 5 * MB)), 4 * ms(1) + us(10));
    let scatter = find("star", Collective::Scatter, 5);
    assert_eq!(finished(&scatter, &flat(5, 5 * MB)), 4 * ms(1) + us(10));
}

#[test]
fn every_send_of_a_ring_is_in_the_log_and_on_its_link() {
    let schedule = ring(4);
    let outcome = outcome(&schedule, &flat(4, 4 * MB));
    assert_eq!(outcome.log.len(), schedule.sends().len());
    assert_eq!(outcome.link_bytes, schedule.cost(4 * MB).links);
    let first = &outcome.log[0];
    assert_eq!((first.left, first.arrived), (Duration::ZERO, us(1010)));
}

#[test]
fn arithmetic_takes_time_where_the_setup_says_so() {
    // Each of 3 reducing steps reads its own and the arrived megabyte; copies read one.
    let setup = Setup { compute: Some(2000 * MB), ..flat(4, 4 * MB) };
    let expected = 3 * (us(1010) + ms(1)) + 3 * (us(1010) + us(500));
    assert_eq!(finished(&ring(4), &setup), expected);
}

#[test]
fn a_late_rank_delays_all_and_a_slow_one_too() {
    let on_time = finished(&ring(4), &flat(4, 4 * MB));
    let late = Setup { delays: BTreeMap::from([(2, ms(5))]), ..flat(4, 4 * MB) };
    assert_eq!(finished(&ring(4), &late), on_time + ms(5));
    let slow = Setup { slow: BTreeMap::from([(2, 3.0)]), ..flat(4, 4 * MB) };
    assert!(finished(&ring(4), &slow) > on_time + ms(2));
}

#[test]
fn ranks_of_one_host_use_no_network() {
    let setup = Setup { hosts: vec![0; 4], local_latency: us(1), ..flat(4, 4 * MB) };
    let outcome = outcome(&ring(4), &setup);
    assert_eq!(outcome.finished(), Some(6 * us(1)));
    assert!(outcome.link_bytes.is_empty());
    let two = Setup { hosts: vec![0, 0, 1, 1], ..setup };
    let links = run(&ring(4), &two).expect("it runs").link_bytes;
    assert_eq!(links.into_keys().collect::<Vec<_>>(), [(1, 2), (3, 0)]);
}

#[test]
fn survivors_name_the_dead_once_they_know() {
    let setup = Setup { deaths: BTreeMap::from([(1, us(1500))]), detection: ms(100), ..flat(4, 4 * MB) };
    let outcome = outcome(&ring(4), &setup);
    let lost = End::PeerLost { peer: 1, at: ms(100) + us(1500) };
    assert_eq!(outcome.ends, [lost, End::Died(us(1500)), lost, lost]);
    assert_eq!(outcome.finished(), None);
    let from_dead = outcome.log.iter().filter(|c| c.src == 1);
    assert_eq!(from_dead.count(), 1, "its second message was cut off");
}

#[test]
fn a_death_after_the_end_harms_nobody() {
    let setup = Setup { deaths: BTreeMap::from([(1, ms(1000))]), ..flat(4, 4 * MB) };
    assert!(outcome(&ring(4), &setup).finished().is_some());
}

#[test]
fn a_rank_that_has_its_result_before_it_learns_of_a_death_keeps_it() {
    let reduce = find("binomial", Collective::Reduce, 4);
    let setup = Setup { deaths: BTreeMap::from([(0, Duration::ZERO)]), ..flat(4, 4 * MB) };
    let ends = outcome(&reduce, &setup).ends;
    assert!(matches!(ends[3], End::Finished(_)), "rank 3 has sent all it had to: {ends:?}");
    assert!(matches!(ends[0], End::Died(_)));
}

/// 0 -> 1 over switch 2, whose second link is slower than the first.
fn routed(bandwidths: [u64; 2]) -> (Schedule, Setup) {
    let link = |bandwidth| Link::new(bandwidth, us(10));
    let links = [((0, 2), link(bandwidths[0])), ((2, 1), link(bandwidths[1]))];
    let topology = Arc::new(Topology::from_links(2, links));
    let send = Send { route: [2].into(), ..Send::new(0, 0, 1, 0, false) };
    (over(&topology, Collective::Broadcast, vec![send]), Setup::new(MB, topology))
}

/// A schedule of a chunk per rank, or of one that all get.
fn over(topology: &Arc<Topology>, collective: Collective, sends: Vec<Send>) -> Schedule {
    let (ranks, topology) = (topology.ranks(), Some(Arc::clone(topology)));
    let chunks = collective.chunk_unit(ranks) as u32;
    let draft = Draft { name: "routed".into(), collective, root: 0, ranks, chunks, sends, topology };
    Schedule::new(draft).expect("the routes exist")
}

#[test]
fn a_route_costs_its_latencies_and_its_slowest_link() {
    for bandwidths in [[1000 * MB, 250 * MB], [250 * MB, 1000 * MB]] {
        let (schedule, setup) = routed(bandwidths);
        let outcome = outcome(&schedule, &setup);
        assert_eq!(outcome.ends[1], End::Finished(us(20) + ms(4)));
        assert_eq!(outcome.link_bytes, BTreeMap::from([((0, 2), MB), ((2, 1), MB)]));
    }
}

#[test]
fn a_dead_link_is_a_stall_and_not_a_hang() {
    let (schedule, setup) = routed([1000 * MB, 0]);
    let stalled = SimError::Stalled { rank: 1, waits_for: vec![0] };
    assert_eq!(run(&schedule, &setup), Err(stalled));
}

/// Ranks 1 and 2 send a megabyte each to rank 0, over switches 3 and 4 and the links between them.
fn merged(between: Link, capacities: BTreeMap<u32, u64>) -> Duration {
    let (edge, wide) = (Link::new(1000 * MB, us(10)), Link::new(10_000 * MB, us(10)));
    let links = [((1, 3), edge), ((2, 3), edge), ((3, 4), between), ((4, 0), wide)];
    let topology = Topology::from_links(3, links).with(Traits { capacities, ..Traits::default() });
    let topology = Arc::new(topology);
    let send = |src| Send { route: [3, 4].into(), ..Send::new(0, src, 0, src, false) };
    let schedule = over(&topology, Collective::Gather, vec![send(1), send(2)]);
    finished(&schedule, &Setup::new(3 * MB, topology))
}

#[test]
fn messages_share_links_that_lie_side_by_side() {
    let (one, free) = (Link::new(1000 * MB, us(10)), BTreeMap::new);
    assert_eq!(merged(one, free()), us(30) + ms(2));
    assert_eq!(merged(Link { count: 2, ..one }, free()), us(30) + ms(1));
    let wide = Link::new(10_000 * MB, us(10));
    assert_eq!(merged(wide, free()), us(30) + ms(1), "the gaps of one message are room for the other");
}

#[test]
fn a_switch_takes_through_no_more_than_it_can() {
    let wide = Link::new(10_000 * MB, us(10));
    assert_eq!(merged(wide, BTreeMap::from([(3, 1000 * MB)])), us(30) + ms(2));
    assert_eq!(merged(wide, BTreeMap::from([(3, 2000 * MB)])), us(30) + ms(1));
}

#[test]
fn headers_cost_bytes_per_packet_or_per_message() {
    let setup = Setup { header: 16, packet: Some(250), ..flat(4, 4 * MB) };
    assert_eq!(finished(&ring(4), &setup), 6 * (us(10) + us(1064)));
    let message = Setup { packet: None, ..setup };
    assert_eq!(finished(&ring(4), &message), 6 * (us(10) + ms(1) + Duration::from_nanos(16)));
    assert_eq!(outcome(&ring(4), &message).link_bytes, ring(4).cost(4 * MB).links);
}

#[test]
fn messages_keep_both_ends_busy() {
    let setup = Setup { message: us(5), ..flat(4, 4 * MB) };
    assert_eq!(finished(&ring(4), &setup), 6 * (us(1010) + 2 * us(5)));
    let gather = find("star", Collective::Gather, 5);
    let setup = Setup { message: ms(1), ..flat(5, 5) };
    assert_eq!(finished(&gather, &setup), ms(1) + us(10) + Duration::from_nanos(1) + 4 * ms(1));
}

#[test]
fn a_missing_link_is_named() {
    let (_, setup) = routed([MB, MB]);
    let missing = SimError::NoSuchLink { send: 0, from: 0, to: 1 };
    assert_eq!(run(&ring(2), &setup), Err(missing));
}

#[test]
fn setups_that_cannot_be_are_refused() {
    let check = |setup: Setup| matches!(run(&ring(4), &setup), Err(SimError::Setup(_)));
    assert!(check(Setup { window: 0, ..flat(4, 1) }) && check(Setup { piece: Some(0), ..flat(4, 1) }));
    assert!(check(Setup { compute: Some(0), ..flat(4, 1) }));
    assert!(check(Setup { packet: Some(0), ..flat(4, 1) }));
    assert!(check(Setup { hosts: vec![0], ..flat(4, 1) }));
    assert!(check(Setup { record: Some(4), ..flat(4, 1) }));
    assert!(check(Setup { slow: BTreeMap::from([(0, -1.0)]), ..flat(4, 1) }));
    assert!(check(Setup { deaths: BTreeMap::from([(9, ms(1))]), ..flat(4, 1) }));
}

/// All that a seed can vary.
fn rough(ranks: u32, seed: u64) -> Setup {
    let mut rng = tweed_rng::Rng::new(seed);
    Setup {
        seed,
        piece: Some(1 + rng.below(5000)),
        window: 1 + rng.below(4) as u32,
        jitter: us(rng.below(50)),
        late: us(rng.below(500)),
        compute: rng.bernoulli(0.5).then_some(100 * MB),
        message: us(rng.below(20)),
        header: rng.below(80),
        packet: rng.bernoulli(0.5).then_some(1 + rng.below(1500)),
        hosts: if rng.bernoulli(0.5) { (0..ranks).map(|_| rng.below(2) as u32).collect() } else { vec![] },
        record: Some(rng.index(ranks as usize) as u32),
        ..flat(ranks, rng.below(40_000))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_schedule_ends_right_and_twice_the_same(n in 2u32..9, seed: u64) {
        for schedule in schedules::all(n) {
            let first = outcome(&schedule, &rough(n, seed));
            prop_assert!(first.finished().is_some());
            prop_assert_eq!(&first, &outcome(&schedule, &rough(n, seed)));
            let trace = first.trace.expect("one rank is recorded");
            prop_assert_eq!(trace.replay(), Ok(()));
        }
    }

    #[test]
    fn a_death_at_any_time_ends_every_rank(n in 2u32..8, at in 0u64..3000, seed: u64) {
        let dead = (seed % u64::from(n)) as u32;
        let schedule = schedules::random(n, 2, &mut tweed_rng::Rng::new(seed));
        let setup = Setup { deaths: BTreeMap::from([(dead, us(at))]), ..rough(n, seed) };
        for (rank, end) in (0..).zip(outcome(&schedule, &setup).ends) {
            match end {
                End::Finished(_) => {}
                End::Died(when) => prop_assert_eq!((rank, when), (dead, us(at))),
                End::PeerLost { peer, at: when } => prop_assert_eq!((peer, when), (dead, us(at) + ms(1000))),
            }
        }
    }

    #[test]
    fn no_run_beats_the_busiest_port(n in 2u32..9, seed: u64) {
        for schedule in schedules::all(n) {
            let setup = Setup { hosts: Vec::new(), ..rough(n, seed) };
            let outcome = outcome(&schedule, &setup);
            let cost = schedule.cost(setup.bytes);
            let most = cost.sent.iter().chain(&cost.received).max().copied().unwrap_or(0);
            prop_assert_eq!(&outcome.link_bytes, &cost.links);
            prop_assert!(outcome.finished() >= Some(LINK.busy(most)));
        }
    }
}
