//! Sends that wait for each other one after the other.

mod support;

use std::sync::Arc;

use support::schedules;
use tweed_proto::{Action, Executor, Layout, Program, Reach};
use tweed_schedule::{Collective, Send};

const LENGTH: u32 = 50_000;

/// A test's thread has two megabytes of stack: what starts when the first send does must not be nested calls.
#[test]
fn a_long_chain_of_sends_starts_in_order() {
    let send = |chunk| Send {
        after: (0..chunk).last().into_iter().collect(),
        ..Send::new(chunk, 0, 1, chunk, false)
    };
    let sends = (0..LENGTH).map(send).collect();
    let schedule = schedules::schedule("one after the other", Collective::Broadcast, 2, LENGTH, sends);
    let program = Arc::new(Program::compile(&schedule, 0));
    let chunk_bytes = vec![4; LENGTH as usize];
    let reach = vec![Reach::Wire; 2];
    let mut giver =
        Executor::new(program, Layout { chunk_bytes, piece: 4, window: 1, in_place: false, reach });
    let sent = std::iter::from_fn(|| giver.poll()).map(|action| match action {
        Action::Transmit { send, .. } => send,
        other => panic!("{other:?}"),
    });
    assert!(sent.eq(0..LENGTH));
}
