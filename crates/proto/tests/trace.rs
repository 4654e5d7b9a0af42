//! Traces that do not replay, and files that are none.

mod support;

use std::sync::Arc;

use proptest::prelude::*;
use support::schedules;
use tweed_proto::{Action, Arrival, Entry, Event, Executor, Layout, Program, Reach, Ready};
use tweed_proto::{Recorder, Trace, TraceError};
use tweed_schedule::{Collective, Send};

/// Rank 0 of a star over two ranks, from its first event to its last.
fn recorded() -> Trace {
    let sends = vec![Send::new(0, 1, 0, 0, true), Send::new(1, 0, 1, 0, false)];
    let schedule = schedules::schedule("a  star\nof two", Collective::AllReduce, 2, 1, sends);
    let reach = vec![Reach::Shared; 2];
    let layout = Layout { chunk_bytes: vec![10], piece: 100, window: 1, in_place: false, reach };
    let executor = Executor::new(Arc::new(Program::compile(&schedule, 0)), layout);
    let mut recorder = Recorder::recording(executor, &schedule);
    let ready = Ready::Readable(Arrival { at: 77, writable: false });
    recorder.handle_ready(0, 0, ready).expect("it is the first");
    while let Some(action) = recorder.poll() {
        recorder.finished(&action);
    }
    recorder.handle_read(0, 1).expect("the sum was sent");
    assert!(recorder.is_closed());
    recorder.trace().expect("it records").clone()
}

const TEXT: &str = "tweed trace 1
name a star of two
schedule all_reduce 0 2 1 5fca95d6675218a0
send 0 1 0 0 + - -
send 1 0 1 0 = - -
rank 0
layout 100 1 staged ss
bytes 10
< ready 0 0 readable 77
> combine 0 0 0 -
< finished 0
> signal 1 0 0 read
> signal 1 1 0 readable 0
< read 0 1
";

#[test]
fn the_text_says_what_happened() {
    assert_eq!(recorded().to_string(), TEXT);
}

#[test]
fn the_text_holds_all_that_a_replay_needs() {
    let trace: Trace = TEXT.parse().expect("it was written by this version");
    assert_eq!(trace.replay(), Ok(()));
}

#[test]
fn a_recorder_that_is_off_holds_nothing() {
    let trace = recorded();
    let program = Arc::new(Program::compile(&trace.schedule, 0));
    assert_eq!(Recorder::from(Executor::new(program, trace.layout)).trace(), None);
}

#[test]
fn another_action_is_a_difference() {
    let mut trace = recorded();
    let other = Action::Stage { output: 0, slice: 0 };
    trace.entries[1] = Entry::Out(other.clone());
    let error = trace.replay().expect_err("the executor combines");
    assert!(matches!(error, TraceError::Differs { entry: 2, recorded: Some(o), .. } if o == other));
}

#[test]
fn an_action_that_was_never_recorded_is_a_difference() {
    let mut trace = recorded();
    trace.entries.remove(4);
    let error = trace.replay().expect_err("the signal is missing");
    assert!(matches!(error, TraceError::Differs { entry: 6, recorded: None, replayed: Some(_) }), "{error}");
}

#[test]
fn a_trace_that_was_cut_short_replays_as_far_as_it_goes() {
    let mut trace = recorded();
    while trace.entries.pop().is_some() {
        assert_eq!(trace.replay(), Ok(()));
    }
}

#[test]
fn impossible_events_are_named() {
    let mut trace = recorded();
    trace.entries.insert(1, trace.entries[0].clone());
    let error = trace.replay().expect_err("it arrives twice");
    assert_eq!(
        error.to_string(),
        "entry 2: the executor refuses this event: a piece that has arrived before"
    );
    trace.entries[1] = Entry::In(Event::Finished(0));
    assert_eq!(trace.replay(), Err(TraceError::NotUnderWay { entry: 2, number: 0 }));
}

#[test]
fn files_that_are_no_traces_are_refused_by_line() {
    let with = |from: &str, to: &str| TEXT.replace(from, to).parse::<Trace>().map(|_| ());
    let line = |line, expected| Err(TraceError::Line { line, expected });
    assert!(matches!(with("trace 1", "trace 2"), Err(TraceError::Version { .. })));
    assert!(matches!("".parse::<Trace>(), Err(TraceError::Version { .. })));
    assert!(matches!(with("5fca", "0000"), Err(TraceError::Digest { .. })));
    assert!(matches!(with("send 1 0 1 0 = - -\n", ""), Err(TraceError::Schedule(_))));
    assert_eq!(with("rank 0", "rank 2"), line(6, "a rank of the schedule"));
    assert_eq!(with("layout 100", "layout 0"), line(8, "a layout that fits the schedule"));
    assert_eq!(with("bytes 10", "bytes 10,10"), line(8, "a layout that fits the schedule"));
    assert_eq!(with("< read 0 1", "< read 0 x"), line(14, "a send"));
    assert_eq!(with("> combine 0 0 0 -", "> combine 0 0 0 1"), line(10, "pairs of position and send"));
}

proptest! {
    #[test]
    fn damaged_text_never_panics(at in 0usize..300, to in "[ -~\n]{0,4}") {
        let mut text = TEXT.to_string();
        let at = at.min(text.len() - 1);
        text.replace_range(at..at + 1, &to);
        if let Ok(trace) = text.parse::<Trace>() {
            let _ = trace.replay();
        }
    }
}
