//! MultiTree: what its trees share out among links, and when it has none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tweed_schedule::{Collective, Link, MultiTree, Schedule, Topology};

const QUICK: Link = Link { bandwidth: 1_000_000_000, latency: Duration::from_micros(1), count: 1 };

/// Both directions between the nodes of each pair.
fn network(ranks: u32, pairs: &[(u32, u32)], link: Link) -> Arc<Topology> {
    let both = pairs.iter().flat_map(|&(a, b)| [((a, b), link), ((b, a), link)]);
    Arc::new(Topology::from_links(ranks, both))
}

/// A square grid without ends that are linked.
fn mesh(side: u32) -> Arc<Topology> {
    let across = (0..side * side).filter(|r| r % side + 1 < side).map(|r| (r, r + 1));
    let down = (0..side * (side - 1)).map(|r| (r, r + side));
    network(side * side, &across.chain(down).collect::<Vec<_>>(), QUICK)
}

fn built(collective: Collective, topology: &Arc<Topology>, pieces: u32, split: bool) -> Schedule {
    let draft = MultiTree { pieces, split }.draft(collective, topology).expect("all can be reached");
    Schedule::new(draft).expect("the trees make the collective")
}

/// How often each link is used in each step.
fn uses(schedule: &Schedule) -> BTreeMap<(u32, (u32, u32)), u32> {
    let mut uses = BTreeMap::new();
    for send in schedule.sends() {
        send.hops().for_each(|hop| *uses.entry((send.step, hop)).or_default() += 1);
    }
    uses
}

#[test]
fn a_mesh_takes_the_steps_of_its_corners() {
    assert_eq!(built(Collective::AllGather, &mesh(4), 1, false).cost(1).steps, 8);
    assert_eq!(built(Collective::AllReduce, &mesh(4), 1, false).cost(1).steps, 16);
}

#[test]
fn overlapped_pieces_share_no_link_in_a_step() {
    let schedule = built(Collective::AllReduce, &mesh(4), 16, true);
    assert!(uses(&schedule).values().all(|&used| used == 1));
    let steps = schedule.cost(1).steps;
    assert!(steps * 1000 <= 16 * 16 * 725, "{steps} steps of {} chunks", schedule.chunks());
}

#[test]
fn a_switch_takes_no_more_than_its_capacity() {
    let star = network(6, &[0, 1, 2, 3, 4, 5].map(|rank| (rank, 6)), QUICK);
    let mut traits = star.traits().clone();
    traits.capacities.insert(6, 2 * QUICK.bandwidth);
    let narrow = Arc::new(Topology::clone(&star).with(traits));
    let through = |topology| {
        let schedule = built(Collective::AllGather, topology, 1, false);
        let most = schedule.sends().chunk_by(|a, b| a.step == b.step).map(<[_]>::len).max();
        (most, schedule.cost(1).steps)
    };
    assert_eq!(through(&star), (Some(6), 5));
    assert_eq!(through(&narrow), (Some(2), 15));
}

#[test]
fn links_side_by_side_are_used_side_by_side() {
    let line = network(3, &[(0, 1), (1, 2)], Link { count: 2, ..QUICK });
    assert_eq!(uses(&built(Collective::AllGather, &line, 1, false)).values().max(), Some(&1));
    assert_eq!(uses(&built(Collective::AllGather, &line, 2, true)).values().max(), Some(&2));
}

#[test]
fn ranks_that_cannot_be_reached_have_no_trees() {
    let pieces = network(4, &[(0, 1), (2, 3)], QUICK);
    for split in [false, true] {
        assert!(MultiTree { pieces: 2, split }.draft(Collective::AllReduce, &pieces).is_none());
    }
}

#[test]
fn the_memory_of_sends_counts_their_lists() {
    let schedule = built(Collective::AllGather, &mesh(4), 1, false);
    let waiting = schedule.sends().iter().filter(|send| !send.after.is_empty()).count();
    let list = 2 * size_of::<usize>() + size_of::<u32>();
    assert_eq!(schedule.nbytes(), size_of_val(schedule.sends()) + waiting * list);
}
