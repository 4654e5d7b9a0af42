//! One broken schedule per kind of error; each must fail for the right reason.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{build, copy, draft, reduce, ring};
use tweed_schedule::{Collective, Hop, Link, Schedule, ScheduleError, Send, Topology};
use Collective::{AllGather, AllReduce, AllToAll, Broadcast, Reduce};

fn hop(step: u32, src: u32, dst: u32, chunk: u32) -> Hop {
    Hop { step, src, dst, chunk }
}

fn fails(collective: Collective, ranks: u32, chunks: u32, sends: Vec<Send>) -> ScheduleError {
    build(collective, ranks, chunks, sends).expect_err("the schedule is broken")
}

fn after(send: Send, after: &[u32]) -> Send {
    Send { after: after.into(), ..send }
}

const LINK: Link = Link { bandwidth: 1_000_000, latency: Duration::from_micros(10), count: 1 };

#[test]
fn no_ranks_or_no_chunks() {
    let error = |ranks, chunks, unit| ScheduleError::Chunks { collective: "all_gather", ranks, chunks, unit };
    assert_eq!(fails(AllGather, 0, 4, vec![]), error(0, 4, 0));
    assert_eq!(fails(AllGather, 2, 0, vec![]), error(2, 0, 2));
    assert_eq!(fails(AllGather, 3, 4, vec![]), error(3, 4, 3));
    assert!(matches!(fails(AllToAll, 3, 3, vec![]), ScheduleError::Chunks { unit: 9, .. }));
}

#[test]
fn too_many_ranks() {
    assert!(matches!(fails(AllReduce, u32::MAX, 1, vec![]), ScheduleError::TooManyRanks { .. }));
}

#[test]
fn a_root_that_does_not_exist() {
    let mut outside = draft(Broadcast, 2, 1, vec![copy(0, 0, 1, 0)]);
    outside.root = 2;
    let error = |collective, root| ScheduleError::Root { collective, root, ranks: 2 };
    assert_eq!(Schedule::new(outside).unwrap_err(), error("broadcast", 2));
    let mut rootless = draft(AllReduce, 2, 1, vec![]);
    rootless.root = 1;
    assert_eq!(Schedule::new(rootless).unwrap_err(), error("all_reduce", 1));
}

#[test]
fn a_link_that_does_not_exist() {
    let line = Topology::from_links(3, [(0, 1), (1, 0), (1, 2), (2, 1)].map(|nodes| (nodes, LINK)));
    let mut far = draft(Broadcast, 3, 1, vec![copy(0, 0, 1, 0), copy(0, 0, 2, 0)]);
    far.topology = Some(Arc::new(line));
    let missing = ScheduleError::NoSuchLink { at: hop(0, 0, 2, 0), from: 0, to: 2 };
    assert_eq!(Schedule::new(far.clone()).unwrap_err(), missing);
    far.sends[1].route = [1].into();
    assert!(Schedule::new(far).is_ok());
}

/// In one send, or in the sends of one step or of two.
#[test]
fn sends_that_cannot_be() {
    use ScheduleError::{
        AfterOutOfRange, AfterUnseen, ChunkOutOfRange, Collision, Missing, NoSuchLink, NotHeld,
        NothingToAddTo, RankOutOfRange, SendToSelf, Twice,
    };
    let sum_of_130: Vec<Send> =
        (1..130).map(|src| reduce(0, src, 0, 0)).chain([reduce(1, 129, 0, 0)]).collect();
    let over_node_7 = Send { route: [7].into(), ..copy(0, 0, 1, 0) };
    let at_once = |first, second| vec![Send::new(0, 1, 0, 0, first), Send::new(0, 2, 0, 0, second)];
    let collision = Collision { at: hop(0, 2, 0, 0), other: 1 };
    let twice = Twice { at: hop(1, 2, 0, 0), contributor: 2 };
    let missing = |rank, contributor, last| Missing { rank, chunk: 0, contributor, last };
    let cases = [
        (
            "a rank",
            AllReduce,
            3,
            1,
            vec![reduce(0, 0, 3, 0)],
            RankOutOfRange { at: hop(0, 0, 3, 0), rank: 3, ranks: 3 },
        ),
        (
            "a chunk",
            AllReduce,
            2,
            2,
            vec![reduce(0, 0, 1, 2)],
            ChunkOutOfRange { at: hop(0, 0, 1, 2), chunks: 2 },
        ),
        ("to itself", AllReduce, 2, 1, vec![copy(0, 1, 1, 0)], SendToSelf { at: hop(0, 1, 1, 0) }),
        (
            "over a node",
            Broadcast,
            2,
            1,
            vec![over_node_7],
            NoSuchLink { at: hop(0, 0, 1, 0), from: 0, to: 7 },
        ),
        // Step 1 reads what rank 1 holds before step 1; the copy to it arrives in that same step.
        (
            "too early",
            Broadcast,
            3,
            1,
            vec![copy(1, 0, 1, 0), copy(1, 1, 2, 0)],
            NotHeld { at: hop(1, 1, 2, 0) },
        ),
        // Chunk 1 of an all-gather is rank 1's; rank 0 has nothing of it to give.
        (
            "foreign",
            AllGather,
            2,
            2,
            vec![copy(0, 0, 1, 0), copy(0, 0, 1, 1)],
            NotHeld { at: hop(0, 0, 1, 1) },
        ),
        ("into nothing", Broadcast, 2, 1, vec![reduce(0, 0, 1, 0)], NothingToAddTo { at: hop(0, 0, 1, 0) }),
        ("a sum and a copy", Reduce, 3, 1, at_once(true, false), collision.clone()),
        ("a copy and a sum", Reduce, 3, 1, at_once(false, true), collision.clone()),
        ("two copies", Reduce, 3, 1, at_once(false, false), collision),
        (
            "twice",
            Reduce,
            3,
            1,
            vec![reduce(0, 1, 0, 0), reduce(0, 2, 0, 0), reduce(1, 2, 0, 0)],
            twice.clone(),
        ),
        (
            "twice, by way of 1",
            Reduce,
            3,
            1,
            vec![reduce(0, 2, 1, 0), reduce(1, 1, 0, 0), reduce(1, 2, 0, 0)],
            twice,
        ),
        (
            "twice, beyond the first word",
            Reduce,
            130,
            1,
            sum_of_130,
            Twice { at: hop(1, 129, 0, 0), contributor: 129 },
        ),
        ("missing", Reduce, 3, 1, vec![reduce(0, 1, 0, 0)], missing(0, 2, Some(hop(0, 1, 0, 0)))),
        ("never", Broadcast, 2, 1, vec![], missing(1, 0, None)),
        (
            "lost",
            Reduce,
            3,
            1,
            vec![reduce(0, 1, 0, 0), copy(1, 2, 0, 0)],
            missing(0, 0, Some(hop(1, 2, 0, 0))),
        ),
        (
            "after no send",
            Broadcast,
            2,
            1,
            vec![after(copy(0, 0, 1, 0), &[1])],
            AfterOutOfRange { at: hop(0, 0, 1, 0), index: 1, sends: 1 },
        ),
        (
            "after a send that cannot be seen",
            Broadcast,
            4,
            1,
            vec![copy(0, 0, 1, 0), copy(1, 1, 2, 0), after(copy(2, 0, 3, 0), &[1])],
            AfterUnseen { at: hop(2, 0, 3, 0), other: hop(1, 1, 2, 0) },
        ),
    ];
    for (name, collective, ranks, chunks, sends, error) in cases {
        assert_eq!(fails(collective, ranks, chunks, sends), error, "{name}");
    }
}

#[test]
fn a_ring_that_stops_one_send_early() {
    let mut sends = ring(5);
    sends.pop();
    assert!(matches!(fails(AllReduce, 5, 5, sends), ScheduleError::Missing { rank: 0, .. }));
}

#[test]
fn sends_that_wait_for_each_other() {
    let sends = vec![after(copy(0, 0, 1, 0), &[1]), after(copy(0, 0, 2, 0), &[0])];
    let cycle = ScheduleError::CyclicWait { at: hop(0, 0, 1, 0), via: vec![hop(0, 0, 2, 0)] };
    assert_eq!(fails(Broadcast, 3, 1, sends), cycle);
    let alone = vec![after(copy(0, 0, 1, 0), &[0])];
    assert_eq!(fails(Broadcast, 2, 1, alone), ScheduleError::CyclicWait { at: hop(0, 0, 1, 0), via: vec![] });
}

#[test]
fn a_send_that_waits_for_its_own_consequence() {
    // Rank 0 sends only when rank 1's answer has arrived, which carries what rank 0 sends.
    let sends = vec![after(reduce(0, 0, 1, 0), &[1]), copy(1, 1, 0, 0)];
    let cycle = ScheduleError::CyclicWait { at: hop(0, 0, 1, 0), via: vec![hop(1, 1, 0, 0)] };
    assert_eq!(fails(AllReduce, 2, 1, sends), cycle);
}

#[test]
fn a_send_that_waits_for_the_end_of_the_value_it_carries() {
    // The send of step 0 carries rank 1's first value, and waits for a send of the value that replaces it.
    let sends = vec![
        after(reduce(0, 1, 0, 0), &[2]),
        reduce(0, 0, 1, 0),
        copy(1, 1, 2, 0),
        reduce(0, 2, 0, 0),
        reduce(0, 2, 1, 0),
    ];
    let cycle =
        ScheduleError::CyclicWait { at: hop(0, 1, 0, 0), via: vec![hop(1, 1, 2, 0), hop(0, 0, 1, 0)] };
    assert_eq!(fails(AllReduce, 3, 1, sends), cycle);
}

#[test]
fn every_text_names_step_link_rank_and_chunk() {
    let sends = vec![reduce(0, 1, 0, 0), reduce(0, 2, 0, 0), reduce(1, 2, 0, 0)];
    let text = fails(Reduce, 3, 1, sends).to_string();
    assert_eq!(text, "step 1, link 2 -> 0, chunk 0: the contribution of rank 2 would be counted twice in chunk 0 at rank 0");
}
