//! [`Trace`]: what one rank's executor was told and what it answered, in order.
//!
//! The executor is pure, so the same events always draw the same actions: [`Trace::replay`] proves it for a
//! recorded run, on any machine. A [`Recorder`] writes a trace while the engine runs; the text form
//! ([`Display`](std::fmt::Display), [`FromStr`](std::str::FromStr)) carries all that a replay needs, the
//! schedule included.

mod parse;
mod recorder;
mod text;

use std::sync::Arc;

use tweed_schedule::{Rank, Schedule, ScheduleError};

use crate::executor::{Action, Executor, Ready};
use crate::layout::Layout;
use crate::program::Program;

pub use recorder::Recorder;

/// What an executor was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// What [`Executor::handle_ready`] was given.
    Ready {
        /// The number of the slice.
        slice: u32,
        /// Index of the send in the schedule.
        send: u32,
        /// What is ready there.
        ready: Ready,
    },
    /// What [`Executor::handle_read`] was given.
    Read {
        /// The number of the slice.
        slice: u32,
        /// Index of the send in the schedule.
        send: u32,
    },
    /// What [`Executor::handle_gone`] was given.
    Gone(Rank),
    /// [`Executor::finished`], for the action of this number: those that want an answer count from 0.
    Finished(u32),
}

/// One line of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Something that went in.
    In(Event),
    /// Something came out of [`Executor::poll`].
    Out(Action),
}

/// One rank's run of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// What was run; its topology is not kept.
    pub schedule: Schedule,
    /// The rank that wrote it.
    pub rank: Rank,
    /// The sizes that it ran with.
    pub layout: Layout,
    /// What happened, in order.
    pub entries: Vec<Entry>,
}

/// Why a trace cannot be read, or does not replay. Entries and lines count from 1.
// The texts name the fields.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// Another format, or none at all.
    #[error("this is no trace of version {}, but starts with '{found}'; record it anew with this version of tweed", text::VERSION)]
    Version {
        /// The first line, shortened.
        found: String,
    },
    /// A line that does not say what it should.
    #[error("line {line} of the trace: expected {expected}; the file is damaged, record it anew")]
    Line { line: usize, expected: &'static str },
    /// The schedule that it holds is none.
    #[error("the schedule in the trace is not valid: {0}")]
    Schedule(#[from] ScheduleError),
    /// The schedule that it holds is not the one that was run.
    #[error(
        "the trace was made with schedule {recorded:016x} but holds schedule {held:016x}; record it anew"
    )]
    Digest { recorded: u64, held: u64 },
    /// The executor refused an event.
    #[error("entry {entry}: the executor refuses this event: {reason}")]
    Refused { entry: usize, reason: &'static str },
    /// `finished` for an action that was not under way.
    #[error("entry {entry}: action {number} is not under way")]
    NotUnderWay {
        entry: usize,
        /// The number of the action.
        number: u32,
    },
    /// The executor did something else than what was recorded.
    #[error("entry {entry}: recorded {recorded:?}, replayed {replayed:?}")]
    Differs {
        entry: usize,
        /// What came out when it was recorded; `None` after the last entry.
        recorded: Option<Action>,
        /// What comes out now.
        replayed: Option<Action>,
    },
}

impl Trace {
    /// Feeds the events to a fresh executor and compares what comes out, action by action.
    ///
    /// # Errors
    /// The first difference, by its entry. A trace that was cut short is compared as far as it goes.
    ///
    /// # Cost
    /// That of the run itself, without the bytes.
    pub fn replay(&self) -> Result<(), TraceError> {
        let program = Arc::new(Program::compile(&self.schedule, self.rank));
        let mut replay =
            Replay { executor: Executor::new(program, self.layout.clone()), under_way: Pending::default() };
        for (entry, what) in (1..).zip(&self.entries) {
            match what {
                Entry::In(event) => replay.take(entry, *event)?,
                Entry::Out(action) => replay.compare(entry, action)?,
            }
        }
        replay.end(self.entries.len() + 1)
    }
}

/// Actions that want an answer, numbered as they come.
#[derive(Clone, Debug, Default)]
struct Pending {
    next: u32,
    actions: Vec<(u32, Action)>,
}

impl Pending {
    fn add(&mut self, action: &Action) {
        if !matches!(action, Action::Signal(_)) {
            self.actions.push((self.next, action.clone()));
            self.next += 1;
        }
    }

    fn take(&mut self, number: u32) -> Option<Action> {
        let at = self.actions.iter().position(|a| a.0 == number)?;
        Some(self.actions.swap_remove(at).1)
    }
}

struct Replay {
    executor: Executor,
    under_way: Pending,
}

impl Replay {
    fn take(&mut self, entry: usize, event: Event) -> Result<(), TraceError> {
        let taken = match event {
            Event::Ready { slice, send, ready } => self.executor.handle_ready(slice, send, ready),
            Event::Read { slice, send } => self.executor.handle_read(slice, send),
            Event::Gone(rank) => {
                self.executor.handle_gone(rank);
                Ok(())
            }
            Event::Finished(number) => {
                let action = self.under_way.take(number);
                let action = action.ok_or(TraceError::NotUnderWay { entry, number })?;
                self.executor.finished(&action);
                Ok(())
            }
        };
        taken.map_err(|reason| TraceError::Refused { entry, reason })
    }

    fn compare(&mut self, entry: usize, recorded: &Action) -> Result<(), TraceError> {
        let replayed = self.executor.poll();
        if replayed.as_ref() != Some(recorded) {
            let recorded = Some(recorded.clone());
            return Err(TraceError::Differs { entry, recorded, replayed });
        }
        self.under_way.add(recorded);
        Ok(())
    }

    /// A run that came to its end has nothing more to do.
    fn end(mut self, entry: usize) -> Result<(), TraceError> {
        match self.executor.all_slices_closed().then(|| self.executor.poll()).flatten() {
            None => Ok(()),
            replayed => Err(TraceError::Differs { entry, recorded: None, replayed }),
        }
    }
}
