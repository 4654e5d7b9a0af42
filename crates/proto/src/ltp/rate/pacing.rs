//! Pacing: packets leave at a rate, in bursts that are worth one system call.

use std::time::Duration;

/// When the next packet may leave.
#[derive(Clone, Debug, Default)]
pub(super) struct Pacer {
    /// When what was sent so far is paid for, at the rates that held.
    paid: Duration,
    /// A burst is under way: it may run ahead of the payment by its length.
    bursting: bool,
}

impl Pacer {
    /// May a packet leave now, in bursts of `burst` (time at the current rate)?
    ///
    /// A new burst waits until the last one is paid for: so packets come in full bursts, not one by one.
    pub(super) fn may_send(&self, now: Duration, burst: Duration) -> bool {
        match self.bursting {
            true => self.paid < now + burst,
            false => self.paid <= now,
        }
    }

    pub(super) fn next_send(&self, burst: Duration) -> Duration {
        match self.bursting {
            true => (self.paid + Duration::from_nanos(1)).saturating_sub(burst),
            false => self.paid,
        }
    }

    /// A packet left that takes `cost` at the current rate. A late caller catches up by one burst at most.
    pub(super) fn sent(&mut self, now: Duration, cost: Duration, burst: Duration) {
        self.paid = self.paid.max(now.saturating_sub(burst)) + cost;
        self.bursting = self.paid < now + burst;
    }
}
