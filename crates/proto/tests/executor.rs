//! One executor by itself: signals that no honest peer sends (it says what is wrong, and lives on), whom it says that it
//! waits for, and a long chain of sends.

mod support;

use std::sync::Arc;

use proptest::prelude::*;
use support::schedules;
use tweed_proto::{Action, Arrival, Executor, Layout, Notice, Program, Reach, Ready, Signal};
use tweed_rng::Rng;
use tweed_schedule::{Collective, Schedule, Send};

const HERE: Ready = Ready::Readable(Arrival { at: 0, writable: false });

/// An executor for `bytes` of each chunk, in pieces of `piece` bytes.
fn with(
    schedule: &Schedule,
    rank: u32,
    in_place: bool,
    (bytes, piece): (u64, u64),
    reach: Reach,
) -> Executor {
    let program = Arc::new(Program::compile(schedule, rank));
    let layout = Layout {
        chunk_bytes: vec![bytes; schedule.chunks() as usize],
        piece,
        window: 2,
        in_place: in_place && program.allows_in_place(),
        reach: vec![reach; schedule.ranks() as usize],
    };
    Executor::new(program, layout)
}

fn executor(schedule: &Schedule, rank: u32, in_place: bool) -> Executor {
    with(schedule, rank, in_place, (5, 1), Reach::Shared)
}

/// Rank 1 gives its value to rank 0 and gets the sum back.
fn there_and_back() -> Schedule {
    let sends = vec![Send::new(0, 1, 0, 0, true), Send::new(1, 0, 1, 0, false)];
    schedules::schedule("there and back", Collective::AllReduce, 2, 1, sends)
}

#[test]
fn a_signal_about_a_foreign_send_is_refused() {
    let mut root = executor(&there_and_back(), 0, false);
    assert_eq!(root.handle_ready(0, 1, HERE), Err("a send that does not end at this rank"));
    assert_eq!(root.handle_read(0, 0), Err("a send that does not start at this rank"));
    assert_eq!(root.handle_ready(0, 99, HERE), Err("a send that does not end at this rank"));
}

#[test]
fn a_second_arrival_is_refused_before_and_after_it_is_taken_in() {
    let mut root = executor(&there_and_back(), 0, false);
    let again = Err("a piece that has arrived before");
    assert_eq!(root.handle_ready(0, 0, HERE), Ok(()));
    assert_eq!(root.handle_ready(0, 0, HERE), again);
    let combine = root.poll().expect("all has arrived");
    root.finished(&combine);
    assert_eq!(root.handle_ready(0, 0, HERE), again);
}

#[test]
fn slices_far_ahead_take_no_memory() {
    let mut root = executor(&there_and_back(), 0, false);
    assert_eq!(root.handle_ready(3, 0, HERE), Ok(()));
    assert_eq!(root.handle_ready(4, 0, HERE), Err("a slice that is not under way"));
    assert_eq!(root.handle_ready(u32::MAX, 0, HERE), Err("a slice that is not under way"));
}

#[test]
fn a_value_is_not_read_before_it_leaves_nor_twice() {
    let mut leaf = executor(&there_and_back(), 1, false);
    let mut root = executor(&there_and_back(), 0, false);
    assert_eq!(root.handle_read(0, 1), Err("an acknowledgement of a value that has not left"));
    assert_eq!(leaf.handle_read(0, 0), Ok(()));
    assert_eq!(leaf.handle_read(0, 0), Err("an acknowledgement that has come before"));
}

#[test]
fn an_answer_is_placed_only_over_a_value_that_was_given_away() {
    let refused = Err("an answer written where none was allowed");
    let mut staged = executor(&there_and_back(), 1, false);
    assert_eq!(staged.handle_ready(0, 1, Ready::Placed), refused);
    let mut leaf = executor(&there_and_back(), 1, true);
    assert_eq!(leaf.handle_ready(2, 1, Ready::Placed), refused, "slice 2 is not open");
    assert_eq!(leaf.handle_ready(0, 1, Ready::Placed), Ok(()));
    assert_eq!(leaf.handle_ready(1, 1, Ready::Placed), Ok(()));
    assert_eq!(leaf.handle_read(1, 0), Err("a slice that is not under way"), "it is closed");
}

#[test]
fn an_answer_over_a_value_that_was_read_is_refused() {
    let mut leaf = executor(&there_and_back(), 1, true);
    assert_eq!(leaf.handle_read(0, 0), Ok(()));
    let refused = Err("an answer written where none was allowed");
    assert_eq!(leaf.handle_ready(0, 1, Ready::Placed), refused);
}

#[test]
fn an_answer_over_a_value_that_another_reads_is_refused() {
    let both = [Send::new(0, 2, 0, 0, true), Send::new(0, 2, 1, 0, true)];
    let rest = [Send::new(0, 1, 0, 0, true), Send::new(0, 0, 1, 0, true), Send::new(1, 0, 2, 0, false)];
    let sends = both.into_iter().chain(rest).collect();
    let schedule = schedules::schedule("two hubs", Collective::AllReduce, 3, 1, sends);
    let refused = Err("an answer written where none was allowed");
    assert_eq!(executor(&schedule, 2, true).handle_ready(0, 4, Ready::Placed), refused);
}

#[test]
fn a_writable_value_is_answered_in_place() {
    let mut root = executor(&there_and_back(), 0, false);
    let ready = Ready::Readable(Arrival { at: 7, writable: true });
    root.handle_ready(0, 0, ready).expect("it is the first");
    let action = root.poll().expect("all has arrived");
    let Action::Combine(combine) = &action else {
        panic!("{action:?}");
    };
    assert_eq!((&combine.puts[..], combine.stage), (&[(0, 1)][..], None));
    root.finished(&action);
    let placed = Signal { to: 1, send: 1, slice: 0, what: Notice::Placed };
    assert_eq!(root.poll(), Some(Action::Signal(placed)));
    assert_eq!(root.poll(), None);
}

#[test]
#[should_panic(expected = "set Layout::in_place to false")]
fn an_exchange_cannot_run_in_place() {
    let sends = vec![Send::new(0, 0, 1, 0, true), Send::new(0, 1, 0, 0, true)];
    let exchange = schedules::schedule("exchange", Collective::AllReduce, 2, 1, sends);
    let layout = executor(&exchange, 0, true).layout().clone();
    let program = Arc::new(Program::compile(&exchange, 0));
    let _ = Executor::new(program, Layout { in_place: true, ..layout });
}

proptest! {
    #[test]
    fn random_signals_never_panic(n in 2u32..6, in_place: bool, seed: u64) {
        let mut rng = Rng::new(seed);
        let schedule = schedules::random(n, 2, &mut rng);
        let mut executor = executor(&schedule, rng.index(n as usize) as u32, in_place);
        let mut running = Vec::new();
        for _ in 0..400 {
            let send = rng.index(schedule.sends().len() + 1) as u32;
            let slice = rng.below(6) as u32;
            let writable = rng.bernoulli(0.5);
            // Some of these are honest by chance, so the run gets anywhere.
            let _ = match rng.below(3) {
                0 => executor.handle_ready(slice, send, Ready::Readable(Arrival { at: 0, writable })),
                1 => executor.handle_ready(slice, send, Ready::Placed),
                _ => executor.handle_read(slice, send),
            };
            running.extend(executor.poll());
            if !running.is_empty() && rng.bernoulli(0.5) {
                let action = running.swap_remove(rng.index(running.len()));
                executor.finished(&action);
            }
            let _ = (executor.missing(), executor.waits_for(), executor.is_closed());
        }
    }
}

#[test]
fn what_a_rank_that_is_gone_would_have_read_holds_up_no_later_slice() {
    let send = schedules::schedule("send", Collective::Broadcast, 2, 1, vec![Send::new(0, 0, 1, 0, false)]);
    let mut sender = executor(&send, 0, true);
    assert!(matches!(sender.poll(), Some(Action::Signal(Signal { slice: 0, .. }))));
    sender.handle_gone(1);
    while let Some(action) = sender.poll() {
        sender.finished(&action);
    }
    assert!(sender.is_closed(), "all five slices, though only two may be open at once");
}

/// Rank 0 gives its value of `bytes` to ranks 1 and 2, in pieces of four bytes.
fn giver(bytes: u64, reach: Reach) -> Executor {
    let sends = vec![Send::new(0, 0, 1, 0, false), Send::new(0, 0, 2, 0, false)];
    let schedule = schedules::schedule("give to two", Collective::Broadcast, 3, 1, sends);
    with(&schedule, 0, false, (bytes, 4), reach)
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
    let mut giver = with(&schedule, 0, false, (4, 4), Reach::Wire);
    let sent = std::iter::from_fn(|| giver.poll()).map(|action| match action {
        Action::Transmit { send, .. } => send,
        other => panic!("{other:?}"),
    });
    assert!(sent.eq(0..LENGTH));
}
