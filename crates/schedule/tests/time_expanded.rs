//! The time-expanded builder: proven, the same on every machine, and as fast as the links allow.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tweed_schedule::{Collective, Link, Schedule, TimeExpanded, Topology, Traits};

const GIGABYTE: u64 = 1_000_000_000;

fn link(bandwidth: u64) -> Link {
    Link::new(bandwidth, Duration::from_micros(1))
}

/// Links in both directions.
fn joined(ranks: u32, pairs: &[(u32, u32)], link: impl Fn(u32, u32) -> Link) -> Topology {
    let both = pairs.iter().flat_map(|&(a, b)| [(a, b), (b, a)]);
    Topology::from_links(ranks, both.map(|(a, b)| ((a, b), link(a, b))))
}

fn torus_4x4() -> Topology {
    let pairs: Vec<(u32, u32)> =
        (0..16).flat_map(|r| [(r, r / 4 * 4 + (r + 1) % 4), (r, (r + 4) % 16)]).collect();
    joined(16, &pairs, |_, _| link(GIGABYTE))
}

fn builder() -> TimeExpanded {
    TimeExpanded { pieces: 1, bytes: 1 << 20, seed: 0, tries: 20 }
}

/// Builds and proves every collective; the nanoseconds that they take by the builder's own clock.
fn proven(builder: TimeExpanded, topology: &Topology) -> Vec<u64> {
    let topology = Arc::new(topology.clone());
    let all = [Collective::AllGather, Collective::ReduceScatter, Collective::AllReduce];
    all.map(|collective| {
        let (draft, nanos) = builder.draft(collective, &topology).expect("every rank can be reached");
        let schedule = Schedule::new(draft).expect("it is right");
        let phases = if collective == Collective::AllReduce { 2 } else { 1 };
        let sends = phases * topology.ranks() * (topology.ranks() - 1) * builder.pieces;
        assert_eq!(schedule.sends().len(), sends as usize);
        nanos
    })
    .to_vec()
}

#[test]
fn a_torus_takes_the_rounds_of_its_degree() {
    let spread = builder().grow(&torus_4x4()).expect("every rank can be reached");
    let steps = spread.trees.iter().flat_map(|tree| &tree.edges).map(|edge| edge.step + 1).max();
    assert_eq!(steps, Some(4));
    assert!(spread.nanos <= spread.bound + spread.bound / 100, "{} of {}", spread.nanos, spread.bound);
    proven(builder(), &torus_4x4());
}

#[test]
fn the_seed_decides() {
    let sends = |seed| {
        let (draft, _) = TimeExpanded { seed, tries: 1, ..builder() }
            .draft(Collective::AllGather, &Arc::new(torus_4x4()))
            .expect("every rank can be reached");
        draft.sends
    };
    assert_eq!(sends(3), sends(3));
    assert_ne!(sends(3), sends(4));
}

#[test]
fn more_tries_are_never_worse() {
    let uneven = joined(
        9,
        &[(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (7, 8), (8, 0), (2, 7)],
        |a, b| link(GIGABYTE * u64::from(1 + (3 * a + b) % 5)),
    );
    let nanos = |tries| TimeExpanded { tries, ..builder() }.grow(&uneven).map(|spread| spread.nanos);
    assert!(nanos(20) <= nanos(5) && nanos(5) <= nanos(1));
    proven(TimeExpanded { pieces: 3, ..builder() }, &uneven);
}

#[test]
fn reduction_runs_against_links_that_differ_by_direction() {
    let ring = joined(6, &[(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0)], |a, b| {
        link(if (a + 1) % 6 == b { 4 * GIGABYTE } else { GIGABYTE })
    });
    let times = proven(builder(), &ring);
    // Every rank has 5 GB/s in and out, and gets and gives five chunks of 1 MiB.
    let least = 5 * (1 << 20) / 5;
    assert!(times.iter().all(|&nanos| nanos >= least && nanos < 3 * 2 * least), "{times:?}");
}

#[test]
fn links_side_by_side_carry_chunks_side_by_side() {
    let pair = |count| joined(2, &[(0, 1)], |_, _| Link { count, ..link(GIGABYTE) });
    let nanos = |count| TimeExpanded { pieces: 6, ..builder() }.grow(&pair(count)).map(|s| s.nanos - 1000);
    assert_eq!(nanos(1), Some(6 * 1_048_576));
    assert_eq!(nanos(3), Some(2 * 1_048_576));
}

#[test]
fn each_chunk_crosses_the_slow_link_once() {
    let inside = (0..4).flat_map(|a| (0..a).map(move |b| (a, b)));
    let pairs: Vec<(u32, u32)> =
        inside.flat_map(|(a, b)| [(a, b), (a + 4, b + 4)]).chain([(0, 4), (1, 5)]).collect();
    let sites = joined(8, &pairs, |a, b| link(if a / 4 == b / 4 { GIGABYTE } else { GIGABYTE / 50 }));
    let spread = builder().grow(&sites).expect("every rank can be reached");
    let edges = spread.trees.iter().flat_map(|tree| &tree.edges);
    assert_eq!(edges.filter(|edge| edge.parent / 4 != edge.child / 4).count(), 8);
}

#[test]
fn switches_are_crossed() {
    let star = joined(5, &[(0, 5), (1, 5), (2, 5), (3, 6), (4, 6), (5, 6)], |_, _| link(GIGABYTE));
    proven(builder(), &star);
    let spread = builder().grow(&star).expect("every rank can be reached");
    assert!(spread.trees.iter().flat_map(|tree| &tree.edges).all(|edge| !edge.route.is_empty()));
}

#[test]
fn a_switch_with_a_capacity_holds_chunks_up() {
    let star = joined(4, &[(0, 4), (1, 4), (2, 4), (3, 4)], |_, _| link(GIGABYTE));
    let capacities = BTreeMap::from([(4, GIGABYTE)]);
    let narrow = star.clone().with(Traits { capacities, ..Traits::default() });
    proven(builder(), &narrow);
    let nanos = |topology| builder().grow(topology).map_or(0, |spread| spread.nanos);
    // Twelve chunks one after the other, and not four at a time.
    assert!(nanos(&star) < 5 * 1_048_576, "{}", nanos(&star));
    assert!(nanos(&narrow) >= 12 * 1_048_576, "{}", nanos(&narrow));
}

#[test]
fn a_rank_out_of_reach_has_no_tree() {
    let topology = Topology::from_links(
        3,
        [((0, 1), link(GIGABYTE)), ((1, 0), link(GIGABYTE)), ((2, 0), link(GIGABYTE))],
    );
    assert!(builder().grow(&topology).is_none());
    let dead = joined(2, &[(0, 1)], |_, _| link(0));
    assert!(builder().grow(&dead).is_none());
}
