//! How a process is woken: one word in its shared memory that peers count up.
//!
//! At most two of its threads sleep on it: the *waiter*, a caller that waits for its operation and drives the
//! engine meanwhile, and the *background* thread that drives it otherwise. A peer wakes the waiter if there is
//! one, and only once as many signals have come as the waiter can use: with four ranks on two cores, each
//! needless wake costs as much as the exchange itself.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::link::futex;
use crate::sync::atomic::AtomicU32;

const WAITER: u32 = 1;
const BACKGROUND: u32 = 2;
/// A waiter is driving, asleep or not: the background thread need not be woken.
const ATTENDED: u32 = 4;
/// The waiter sleeps, and could go on after a mere acknowledgement.
const WAITER_READS: u32 = 8;
/// The background thread sleeps, and could go on after a mere acknowledgement.
const BACKGROUND_READS: u32 = 16;

/// The page of a process that its peers see.
#[repr(C, align(64))]
pub(crate) struct Wakeup {
    count: AtomicU32,
    state: AtomicU32,
    wake_at: AtomicU32,
}

impl Wakeup {
    /// How often it has rung.
    pub(crate) fn count(&self) -> u32 {
        self.count.load(SeqCst)
    }

    /// Rings from outside: so many more signals of a peer lie in its queue.
    pub(crate) fn ring(&self, signals: u32) {
        let count = self.count.fetch_add(signals, SeqCst).wrapping_add(signals);
        let state = self.state.load(SeqCst);
        if state & WAITER != 0 {
            let due = count.wrapping_sub(self.wake_at.load(SeqCst)) as i32 >= 0;
            if due {
                futex::wake(&self.count, WAITER);
            }
        } else if state & ATTENDED == 0 && state & BACKGROUND != 0 {
            futex::wake(&self.count, BACKGROUND);
        }
    }

    /// Rings for an acknowledgement, which few wait for.
    pub(crate) fn ring_for_read(&self) {
        let state = self.state.load(SeqCst);
        let wanted = if state & ATTENDED != 0 { WAITER_READS } else { BACKGROUND_READS };
        if state & wanted != 0 {
            self.ring(1);
        }
    }

    /// Wakes whoever sleeps, from within the process.
    pub(crate) fn ring_all(&self) {
        // More than any sleeper asks for.
        self.count.fetch_add(1 << 16, SeqCst);
        futex::wake(&self.count, WAITER | BACKGROUND);
    }

    /// A waiter is driving.
    pub(crate) fn is_attended(&self) -> bool {
        self.state.load(SeqCst) & ATTENDED != 0
    }

    /// A waiter takes over.
    pub(crate) fn attend(&self) {
        self.state.fetch_or(ATTENDED, SeqCst);
    }

    /// The waiter leaves, who last drove when it had rung `seen` times. What has come since has woken nobody, because
    /// he was there: `true` if `pending` says that it still lies there, and somebody else must be woken for it.
    pub(crate) fn leave(&self, seen: u32, pending: impl Fn() -> bool) -> bool {
        self.state.fetch_and(!ATTENDED, SeqCst);
        self.count() != seen && pending()
    }

    /// The waiter sleeps until `need` more rings than `seen`; without a `need` also for acknowledgements, unless
    /// `pending` says that one has come. `false` if a signal interrupted it.
    pub(crate) fn sleep_as_waiter(
        &self,
        seen: u32,
        need: Option<u32>,
        timeout: Duration,
        pending: impl Fn() -> bool,
    ) -> bool {
        let target = seen.wrapping_add(need.unwrap_or(1));
        self.wake_at.store(target, SeqCst);
        let flags = WAITER | if need.is_none() { WAITER_READS } else { 0 };
        self.state.fetch_or(flags, SeqCst);
        let count = self.count();
        let due = count.wrapping_sub(target) as i32 >= 0;
        let work = due || (need.is_none() && pending());
        let undisturbed = work || futex::wait(&self.count, count, WAITER, Some(timeout));
        self.state.fetch_and(!flags, SeqCst);
        undisturbed
    }

    /// The background thread sleeps until the count is no longer `seen`; with `reads` also for acknowledgements.
    pub(crate) fn sleep_in_background(
        &self,
        seen: u32,
        reads: bool,
        timeout: Option<Duration>,
        pending: impl Fn() -> bool,
    ) {
        let flags = BACKGROUND | if reads { BACKGROUND_READS } else { 0 };
        self.state.fetch_or(flags, SeqCst);
        if !(reads && pending()) {
            futex::wait(&self.count, seen, BACKGROUND, timeout);
        }
        self.state.fetch_and(!flags, SeqCst);
    }
}

#[cfg(all(test, loom))]
#[path = "wakeup_model.rs"]
mod model;
