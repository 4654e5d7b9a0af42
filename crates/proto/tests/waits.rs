//! Whom an executor says that it waits for.

mod support;

use std::sync::Arc;

use support::schedules;
use tweed_proto::{Action, Executor, Layout, Program, Reach};
use tweed_schedule::{Collective, Send};

/// Rank 0 gives its value of `bytes` to ranks 1 and 2, in pieces of four bytes.
fn giver(bytes: u64, reach: Reach) -> Executor {
    let sends = vec![Send::new(0, 0, 1, 0, false), Send::new(0, 0, 2, 0, false)];
    let schedule = schedules::schedule("give to two", Collective::Broadcast, 3, 1, sends);
    let program = Arc::new(Program::compile(&schedule, 0));
    let layout =
        Layout { chunk_bytes: vec![bytes], piece: 4, window: 2, in_place: false, reach: vec![reach; 3] };
    Executor::new(program, layout)
}

#[test]
fn a_rank_that_has_read_is_not_waited_for_while_another_has_not() {
    let mut giver = giver(4, Reach::Wire);
    let transmits: Vec<Action> = std::iter::from_fn(|| giver.poll()).collect();
    assert_eq!(transmits.len(), 2);
    assert_eq!(giver.waits_for(), [1, 2]);
    giver.finished(&transmits[0]);
    giver.handle_read(0, 0).expect("it has left");
    assert_eq!(giver.waits_for(), [2], "rank 1 has all it needs, and may leave");
    giver.finished(&transmits[1]);
    assert!(giver.is_finished() && !giver.is_closed());
    assert!(giver.waits_for().is_empty());
}

#[test]
fn readers_that_keep_the_window_full_are_waited_for() {
    let mut giver = giver(12, Reach::Shared);
    while let Some(action) = giver.poll() {
        giver.finished(&action);
    }
    assert!(!giver.is_finished(), "the third piece finds no room");
    assert_eq!(giver.waits_for(), [1, 2]);
    giver.handle_read(0, 0).expect("rank 1 reads the first piece");
    giver.handle_read(1, 0).expect("and the second one");
    assert_eq!(giver.waits_for(), [2]);
}
