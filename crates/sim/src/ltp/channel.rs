//! One direction of a path: a queue and a rate, then a delay, and what goes wrong on the way.

use std::time::Duration;

use tweed_rng::Rng;

/// What a channel does to packets. The default does nothing to them but delay.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// Bits per second; `None`: no bound.
    pub rate: Option<u64>,
    /// Bytes that wait for the rate at most; more are dropped.
    pub queue: u64,
    /// From one end to the other, without queue.
    pub delay: Duration,
    /// Added to the delay of each packet, from nothing to this, all equally likely. Keeps the order.
    pub jitter: Duration,
    /// Share of the packets that are lost.
    pub loss: f64,
    /// Mean number of packets that are lost in a row; 1: each by itself.
    pub burst: f64,
    /// Share of the packets that are overtaken: they come later by up to four delays.
    pub reorder: f64,
    /// Share of the packets that come twice, the second as if overtaken.
    pub duplicate: f64,
}

impl Default for Conditions {
    fn default() -> Conditions {
        Conditions {
            rate: None,
            queue: u64::MAX,
            delay: Duration::from_millis(1),
            jitter: Duration::ZERO,
            loss: 0.0,
            burst: 1.0,
            reorder: 0.0,
            duplicate: 0.0,
        }
    }
}

/// The state of one direction of a path.
#[derive(Debug, Default)]
pub(super) struct Channel {
    pub(super) conditions: Conditions,
    /// Whether everything is dropped.
    pub(super) cut: bool,
    /// Packets dropped because the queue was full, and all that came.
    pub(super) overflowed: u64,
    pub(super) offered: u64,
    free_at: Duration,
    last_out: Duration,
    losing: bool,
}

impl Channel {
    pub(super) fn new(conditions: Conditions) -> Channel {
        Channel { conditions, ..Channel::default() }
    }

    /// A packet enters: when it arrives, and when a second copy does. Neither if it is lost.
    pub(super) fn enter(&mut self, now: Duration, bytes: usize, rng: &mut Rng) -> [Option<Duration>; 2] {
        self.offered += 1;
        if self.cut || self.loses(rng) {
            return [None; 2];
        }
        let Some(out) = self.serve(now, bytes as u64) else { return [None; 2] };
        let Conditions { delay, jitter, reorder, duplicate, .. } = self.conditions;
        let late = |rng: &mut Rng| delay.mul_f64(1.0 + 4.0 * rng.uniform());
        let second = (rng.uniform() < duplicate).then(|| out + late(rng));
        if rng.uniform() < reorder {
            return [Some(out + late(rng)), second];
        }
        self.last_out = self.last_out.max(out + delay + jitter.mul_f64(rng.uniform()));
        [Some(self.last_out), second]
    }

    /// When the rate lets it out; `None` if the queue is full.
    fn serve(&mut self, now: Duration, bytes: u64) -> Option<Duration> {
        let Some(rate) = self.conditions.rate else { return Some(now) };
        let time_of =
            |bytes: u64| Duration::from_nanos((u128::from(bytes) * 8_000_000_000 / u128::from(rate)) as u64);
        let waits = self.free_at.saturating_sub(now);
        if self.conditions.queue < u64::MAX && waits > time_of(self.conditions.queue) {
            self.overflowed += 1;
            return None;
        }
        self.free_at = self.free_at.max(now) + time_of(bytes);
        Some(self.free_at)
    }

    /// Two states, one of which loses everything (Gilbert 1960).
    fn loses(&mut self, rng: &mut Rng) -> bool {
        let Conditions { loss, burst, .. } = self.conditions;
        let leave = 1.0 / burst.max(1.0);
        let enter = loss * leave / (1.0 - loss).max(f64::MIN_POSITIVE);
        self.losing = match self.losing {
            true if burst > 1.0 => rng.uniform() >= leave,
            true => rng.uniform() < loss,
            false if burst > 1.0 => rng.uniform() < enter,
            false => rng.uniform() < loss,
        };
        self.losing
    }
}
