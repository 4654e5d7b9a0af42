//! A caller's handle on one operation.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::error::EngineError;
use crate::link::futex;
use crate::sync::atomic::AtomicU32;

type Callback = Box<dyn FnOnce() + Send>;

const PENDING: u32 = 0;
const ENDED: u32 = 1;

/// One operation under way or ended.
pub struct Op {
    state: AtomicU32,
    error: OnceLock<EngineError>,
    source: AtomicU32,
    callback: Mutex<Option<Callback>>,
    pub(crate) started: Instant,
    pub(crate) deadline: Instant,
}

impl Op {
    pub(crate) fn new(started: Instant, timeout: Duration) -> Op {
        Op {
            state: AtomicU32::new(PENDING),
            error: OnceLock::new(),
            source: AtomicU32::new(0),
            callback: Mutex::new(None),
            started,
            deadline: started.checked_add(timeout).unwrap_or(started + Duration::from_secs(1 << 30)),
        }
    }

    /// An operation that ended before it began.
    pub(crate) fn failed(error: EngineError) -> Op {
        let op = Op::new(Instant::now(), Duration::ZERO);
        op.end(Err(error));
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

    pub(crate) fn set_source(&self, rank: u32) {
        self.source.store(rank, Ordering::Relaxed);
    }

    /// Calls `callback` when it has ended: at once, on this thread, if it has.
    pub fn on_end(&self, callback: Callback) {
        let mut slot = self.callback.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !self.is_ended() {
            *slot = Some(callback);
            return;
        }
        drop(slot);
        callback();
    }

    /// Ends it. Must not be called with a lock of the engine held: callbacks may take other locks.
    pub(crate) fn end(&self, result: Result<(), EngineError>) {
        if let Err(error) = result {
            let _ = self.error.set(error);
        }
        let callback = {
            let mut slot = self.callback.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            self.state.store(ENDED, Ordering::Release);
            slot.take()
        };
        futex::wake(&self.state, u32::MAX);
        if let Some(callback) = callback {
            callback();
        }
    }

    /// Sleeps until it has ended or `timeout` has passed.
    pub(crate) fn sleep(&self, timeout: Duration) {
        futex::wait(&self.state, PENDING, u32::MAX, Some(timeout));
    }
}

#[cfg(all(test, loom))]
#[path = "op_model.rs"]
mod model;
