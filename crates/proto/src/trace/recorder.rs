//! [`Recorder`]: an executor that writes down its run, if asked to.

use std::ops::Deref;

use tweed_schedule::{Rank, Schedule};

use super::{Entry, Event, Pending, Trace};
use crate::executor::{Action, Executor, Ready};

/// An [`Executor`] with the same methods, which may record. One that does not costs a branch per call.
#[derive(Clone, Debug)]
pub struct Recorder {
    executor: Executor,
    log: Option<Box<Log>>,
}

#[derive(Clone, Debug)]
struct Log {
    trace: Trace,
    under_way: Pending,
}

impl From<Executor> for Recorder {
    /// A recorder that keeps no record.
    fn from(executor: Executor) -> Recorder {
        Recorder { executor, log: None }
    }
}

impl Deref for Recorder {
    type Target = Executor;

    fn deref(&self) -> &Executor {
        &self.executor
    }
}

impl Recorder {
    /// Records the run of an executor that is fresh from [`Executor::new`] and runs `schedule`.
    pub fn recording(executor: Executor, schedule: &Schedule) -> Recorder {
        let trace = Trace {
            schedule: schedule.clone(),
            rank: executor.program().rank,
            layout: executor.layout().clone(),
            entries: Vec::new(),
        };
        let under_way = Pending::default();
        Recorder { executor, log: Some(Box::new(Log { trace, under_way })) }
    }

    /// What was recorded so far; `None` if nothing is.
    pub fn trace(&self) -> Option<&Trace> {
        self.log.as_ref().map(|log| &log.trace)
    }

    /// [`Executor::handle_ready`]. An event that is refused is not recorded.
    pub fn handle_ready(&mut self, slice: u32, send: u32, ready: Ready) -> Result<(), &'static str> {
        self.executor.handle_ready(slice, send, ready)?;
        self.note(Event::Ready { slice, send, ready });
        Ok(())
    }

    /// [`Executor::handle_read`]. An event that is refused is not recorded.
    pub fn handle_read(&mut self, slice: u32, send: u32) -> Result<(), &'static str> {
        self.executor.handle_read(slice, send)?;
        self.note(Event::Read { slice, send });
        Ok(())
    }

    /// Records and calls [`Executor::handle_gone`].
    pub fn handle_gone(&mut self, rank: Rank) {
        self.executor.handle_gone(rank);
        self.note(Event::Gone(rank));
    }

    /// Records and calls [`Executor::finished`].
    pub fn finished(&mut self, action: &Action) {
        self.executor.finished(action);
        let Some(log) = &mut self.log else { return };
        if let Some(number) = log.under_way.actions.iter().find(|a| a.1 == *action).map(|a| a.0) {
            log.under_way.take(number);
            log.trace.entries.push(Entry::In(Event::Finished(number)));
        }
    }

    /// Records and calls [`Executor::poll`].
    #[must_use]
    pub fn poll(&mut self) -> Option<Action> {
        let action = self.executor.poll()?;
        if let Some(log) = &mut self.log {
            log.under_way.add(&action);
            log.trace.entries.push(Entry::Out(action.clone()));
        }
        Some(action)
    }

    fn note(&mut self, event: Event) {
        if let Some(log) = &mut self.log {
            log.trace.entries.push(Entry::In(event));
        }
    }
}
