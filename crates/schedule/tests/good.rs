//! Good schedules: what they keep, what they wait for, what they cost.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{build, copy, draft, pairwise, reduce, ring};
use tweed_schedule::{Collective, Link, Ranks, Schedule, Send, Topology, Waits};
use Collective::{AllGather, AllReduce, AllToAll, Broadcast, Gather, ReduceScatter, Scatter};

const LINK: Link = Link { bandwidth: 1_000_000, latency: Duration::from_micros(10), count: 1 };

fn good(collective: Collective, ranks: u32, chunks: u32, sends: Vec<Send>) -> Schedule {
    build(collective, ranks, chunks, sends).expect("the schedule is right")
}

#[test]
fn one_rank_needs_no_sends() {
    for collective in Collective::ALL {
        assert!(good(collective, 1, 1, vec![]).sends().is_empty());
    }
}

#[test]
fn sends_are_ordered_by_step_and_after_follows() {
    let mut late = copy(1, 0, 2, 0);
    late.after = [1].into();
    let schedule = good(Broadcast, 3, 1, vec![late, copy(0, 0, 1, 0)]);
    assert_eq!(schedule.sends()[0], copy(0, 0, 1, 0));
    assert_eq!(schedule.sends()[1].after, [0]);
}

#[test]
fn the_digest_is_the_same_on_every_machine() {
    assert_eq!(good(AllReduce, 4, 4, ring(4)).digest(), 0xccea_a1e6_5f8f_3be3);
}

#[test]
fn the_digest_tells_schedules_apart_but_not_names() {
    let schedule = good(AllReduce, 4, 4, ring(4));
    let mut renamed = draft(AllReduce, 4, 4, ring(4));
    renamed.name = "other".into();
    assert_eq!(Schedule::new(renamed).unwrap().digest(), schedule.digest());
    assert_ne!(good(AllReduce, 4, 4, pairwise(4)).digest(), schedule.digest());
    let upper = ring(4).into_iter().map(|send| Send { chunk: send.chunk + 4, ..send });
    let twice = ring(4).into_iter().chain(upper).collect();
    assert_ne!(good(AllReduce, 4, 8, twice).digest(), schedule.digest());
}

#[test]
fn parts_are_contiguous() {
    let sends = (1..3).flat_map(|dst| [2 * dst, 2 * dst + 1].map(|chunk| copy(0, 0, dst, chunk))).collect();
    let schedule = good(Scatter, 3, 6, sends);
    assert_eq!([0, 1, 2, 5].map(|chunk| schedule.owner(chunk)), [Some(0), Some(0), Some(1), Some(2)]);
    assert_eq!((schedule.origin(5), schedule.destination(5)), (Ranks::One(0), Ranks::One(2)));
    let schedule = good(
        AllToAll,
        2,
        8,
        [2, 3].map(|c| copy(0, 0, 1, c)).into_iter().chain([4, 5].map(|c| copy(0, 1, 0, c))).collect(),
    );
    assert_eq!(schedule.pair(3), Some((0, 1)));
    assert_eq!((schedule.origin(5), schedule.destination(5)), (Ranks::One(1), Ranks::One(0)));
    assert_eq!(schedule.owner(0), None);
}

#[test]
fn rotation_moves_ranks_chunks_and_routes() {
    let send = |rank, route| Send { route, ..copy(0, rank, 0, rank) };
    let links = [(1, 3), (2, 3), (3, 0), (3, 1), (0, 3)].map(|nodes| (nodes, LINK));
    let mut gather = draft(Gather, 3, 3, vec![send(1, [3].into()), send(2, [3].into())]);
    gather.topology = Some(Arc::new(Topology::from_links(3, links)));
    let gather = Schedule::new(gather).unwrap();
    let rotated = gather.rotated(1).unwrap();
    let hops: Vec<_> = rotated.sends().iter().map(|s| (s.src, s.dst, s.chunk, s.route[0])).collect();
    assert_eq!(hops, [(2, 1, 2, 3), (0, 1, 0, 3)]);
    assert_eq!(rotated.rotated(0).unwrap(), gather);
    assert!(gather.rotated(2).is_err(), "there is no link 3 -> 2");
    assert!(gather.rotated(3).is_err(), "there is no rank 3");
}

#[test]
fn a_send_waits_for_the_arrival_it_carries() {
    let schedule = good(AllReduce, 4, 4, pairwise(4));
    let waits = Waits::new(schedule.sends());
    for (index, send) in schedule.sends().iter().enumerate() {
        let sources =
            |indices: &[u32]| indices.iter().map(|&i| schedule.sends()[i as usize].src).collect::<Vec<_>>();
        let others: Vec<u32> = (0..4).filter(|&rank| rank != send.src).collect();
        let expected = if send.step == 0 { vec![] } else { others };
        assert_eq!(sources(waits.before(index)), expected);
    }
    assert_eq!(waits.arrivals().len(), 4 + 12);
}

#[test]
fn an_arrival_waits_for_the_readers_of_the_old_value() {
    let sends = vec![reduce(0, 0, 1, 0), reduce(0, 1, 0, 0)];
    let waits = Waits::new(good(AllReduce, 2, 1, sends).sends());
    assert_eq!((waits.readers(0), waits.members(0)), (&[0][..], &[1][..]));
    assert_eq!((waits.readers(1), waits.members(1)), (&[1][..], &[0][..]));
    assert_eq!((waits.carries(0), waits.part_of(0)), (None, 1));
}

#[test]
fn an_after_that_points_ahead_is_fine_without_a_cycle() {
    let sends = vec![
        Send { after: [2].into(), ..copy(0, 0, 1, 0) },
        copy(0, 0, 1, 1),
        copy(1, 0, 2, 1),
        copy(1, 0, 2, 0),
    ];
    good(Broadcast, 3, 2, sends);
}

#[test]
fn a_ring_costs_what_the_formula_says() {
    let cost = good(AllReduce, 5, 5, ring(5)).cost(1000);
    assert_eq!(cost.steps, 8);
    assert!(cost.sent.iter().chain(&cost.received).all(|&bytes| bytes == 8 * 200));
    assert_eq!(cost.links.len(), 5);
}

#[test]
fn uneven_chunks_add_up() {
    let schedule = good(AllReduce, 5, 5, ring(5));
    assert_eq!((0..5).map(|chunk| schedule.chunk_bytes(chunk, 13)).sum::<u64>(), 13);
}

#[test]
fn time_is_latency_plus_the_busiest_port_or_link() {
    let star = good(Broadcast, 3, 1, vec![copy(0, 0, 1, 0), copy(0, 0, 2, 0)]);
    let flat = Topology::complete(3, LINK);
    assert_eq!(star.time(1_000_000, &flat).unwrap(), Duration::from_secs(2) + LINK.latency);
    let wires = Topology::from_links(3, [(0, 1), (0, 2)].map(|nodes| (nodes, LINK)));
    assert_eq!(star.time(1_000_000, &wires).unwrap(), Duration::from_secs(1) + LINK.latency);
    assert!(good(ReduceScatter, 2, 2, vec![reduce(0, 0, 1, 1), reduce(0, 1, 0, 0)]).time(1, &wires).is_err());
}

#[test]
fn a_dead_link_takes_for_ever() {
    let dead = Link { bandwidth: 0, ..LINK };
    assert_eq!((dead.busy(0), dead.busy(1)), (Duration::ZERO, Duration::MAX));
}

#[test]
fn collective_names_round_trip() {
    for collective in Collective::ALL {
        assert_eq!(collective.name().parse(), Ok(collective));
    }
    assert!("allreduce".parse::<Collective>().is_err());
}

#[test]
fn a_direct_schedule_hands_nothing_on() {
    assert!(good(Gather, 3, 3, vec![copy(0, 1, 0, 1), copy(0, 2, 0, 2)]).is_direct());
    let handed_on = vec![copy(0, 2, 1, 2), copy(1, 1, 0, 1), copy(1, 1, 0, 2)];
    assert!(!good(Gather, 3, 3, handed_on).is_direct());
}

#[test]
fn a_pinned_send_waits_for_the_one_before_it_on_its_first_link() {
    // An all-gather of two pieces each over a line of three.
    let sends =
        [(2, 1, 2, 1), (0, 0, 1, 0), (1, 0, 1, 1), (3, 1, 2, 0), (0, 1, 0, 2), (1, 1, 2, 3), (0, 1, 2, 2)];
    let back = [(1, 1, 0, 3), (0, 2, 1, 4), (1, 2, 1, 5), (2, 1, 0, 4), (3, 1, 0, 5)];
    let sends = sends.into_iter().chain(back).map(|(step, src, dst, chunk)| copy(step, src, dst, chunk));
    let schedule = Schedule::new(draft(AllGather, 3, 6, sends.collect()).pinned()).expect("it is right");
    let sends = schedule.sends();
    for ends in [(0, 1), (1, 2), (2, 1), (1, 0)] {
        let link: Vec<usize> =
            (0..sends.len()).filter(|&at| (sends[at].src, sends[at].dst) == ends).collect();
        assert!(sends[link[0]].after.is_empty());
        for pair in link.windows(2) {
            assert_eq!(sends[pair[1]].after.as_slice(), [pair[0] as u32]);
            assert!(sends[pair[0]].step < sends[pair[1]].step);
        }
    }
}
