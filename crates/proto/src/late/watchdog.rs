//! The watch over one operation: when to ask, when to warn, when to give up.

use std::time::Duration;

use super::Limits;

/// What is due for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask the others how they stand.
    Ask,
    /// They have had their time to answer: say what is known.
    Warn,
    /// The operation has failed.
    Fail,
}

/// Steps come in order, and at least as far apart as planned: a process that was stopped meanwhile must hear the
/// others before it judges them.
#[derive(Clone, Copy, Debug)]
pub struct Watchdog {
    /// What it goes by.
    pub limits: Limits,
    taken: usize,
    shift: Duration,
}

impl Watchdog {
    /// Watches over an operation that has just begun.
    pub fn new(limits: Limits) -> Watchdog {
        Watchdog { limits, taken: 0, shift: Duration::ZERO }
    }

    /// When the next step is due, counted from the beginning of the operation.
    pub fn next(&self) -> Duration {
        self.plan().0.saturating_add(self.shift)
    }

    /// The step that is due after `waited`, if any.
    #[must_use]
    pub fn poll(&mut self, waited: Duration) -> Option<Step> {
        let (at, step) = self.plan();
        let late = waited.checked_sub(at.saturating_add(self.shift))?;
        if step != Step::Fail {
            self.taken += 1;
            self.shift += late;
        }
        Some(step)
    }

    /// It has asked again, half-way to its end.
    pub fn is_half_over(&self) -> bool {
        self.taken > 2
    }

    /// Asks twice: what was answered early may no longer hold at the end.
    fn plan(&self) -> (Duration, Step) {
        let Limits { notice, answer, fail, .. } = self.limits;
        match self.taken {
            0 => (notice, Step::Ask),
            1 => (notice + answer, Step::Warn),
            2 => (notice + (fail - notice) / 2, Step::Ask),
            _ => (fail, Step::Fail),
        }
    }
}
