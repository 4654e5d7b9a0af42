//! A caller's handle on one operation.

use std::sync::atomic::Ordering;
use std::sync::OnceLock;
use std::time::Duration;

use tweed_proto::engine::EngineError;
use tweed_schedule::Rank;

use crate::link::futex;
use crate::sync::atomic::AtomicU32;
use crate::sync::{LockRank, Mutex};

/// What a user has asked to be called.
pub(crate) type Callback = Box<dyn FnOnce() + Send>;

const PENDING: u32 = 0;
const ENDED: u32 = 1;

/// One operation under way or ended.
pub struct Op {
    state: AtomicU32,
    error: OnceLock<EngineError>,
    source: AtomicU32,
    callback: Mutex<Option<Callback>>,
    /// Inputs that were copied beforehand: the engine reads them while the operation lasts.
    _copies: Vec<Vec<u8>>,
}

impl Op {
    pub(crate) fn new(copies: Vec<Vec<u8>>) -> Op {
        Op {
            state: AtomicU32::new(PENDING),
            error: OnceLock::new(),
            source: AtomicU32::new(0),
            callback: Mutex::new(LockRank::Callback, None),
            _copies: copies,
        }
    }

    /// An operation that ended before it began.
    pub(crate) fn failed(error: EngineError) -> Op {
        let op = Op::new(Vec::new());
        let _nobody_waits = op.end(Err(error), None);
        op
    }

    /// It has ended, well or badly.
    pub fn is_ended(&self) -> bool {
        self.state.load(Ordering::Acquire) == ENDED
    }

    /// `None` while it is under way.
    pub fn result(&self) -> Option<Result<(), EngineError>> {
        self.is_ended().then(|| self.error.get().map_or(Ok(()), |e| Err(e.clone())))
    }

    /// The error it ended with, if any.
    pub fn error(&self) -> Option<&EngineError> {
        self.error.get().filter(|_| self.is_ended())
    }

    /// Who sent, for a receive that has ended well.
    pub fn source(&self) -> u32 {
        self.source.load(Ordering::Relaxed)
    }

    /// Calls `callback` when it has ended: at once, on this thread, if it has.
    pub fn on_end(&self, callback: Callback) {
        let mut slot = self.callback.lock();
        if !self.is_ended() {
            *slot = Some(callback);
            return;
        }
        drop(slot);
        callback();
    }

    /// Ends it, and wakes who sleeps on it. Returns what is to be called now, on a worker: it may wait for anything.
    #[must_use]
    pub(crate) fn end(&self, result: Result<(), EngineError>, source: Option<Rank>) -> Option<Callback> {
        if let Err(error) = result {
            let _ = self.error.set(error);
        }
        self.source.store(source.unwrap_or(0), Ordering::Relaxed);
        let callback = {
            let mut slot = self.callback.lock();
            self.state.store(ENDED, Ordering::Release);
            slot.take()
        };
        futex::wake(&self.state, u32::MAX);
        callback
    }

    /// Sleeps until it has ended or `timeout` has passed; `false` if a signal came in.
    pub(crate) fn sleep(&self, timeout: Duration) -> bool {
        futex::wait(&self.state, PENDING, u32::MAX, Some(timeout))
    }
}

#[cfg(all(test, loom))]
#[path = "op_model.rs"]
mod model;
