//! Round trip time: the minimum over some seconds, and the smoothed value with its variation (RFC 9002, 5.3).
//!
//! The minimum is forgotten only after the path was emptied to see it again. Otherwise senders that share a queue take it
//! for the path's own before they look, and make it longer each time.
//!
//! Where another sender fills a deep queue, the minimum of an empty path says nothing any more: a window made of it is a
//! shrinking part of what is under way, and so is the rate that it measures. Round trips that no window of ours can have
//! made are the path's after a second.

use std::time::Duration;

/// What is known about the path's round trip.
#[derive(Clone, Debug, Default)]
pub(super) struct Rtt {
    pub(super) smoothed: Option<Duration>,
    pub(super) variation: Duration,
    /// Minimum of the current half of the window, and of the one before.
    halves: [Option<Duration>; 2],
    half_since: Duration,
    /// When a sample was last near the minimum.
    empty_at: Duration,
    /// When a sample was last so short that a queue of our own could explain it, and the minimum of those since.
    own_at: Duration,
    least: Option<Duration>,
}

impl Rtt {
    pub(super) fn add(&mut self, now: Duration, sample: Duration) {
        self.age(now);
        let known = self.min();
        self.halves[0] = Some(self.halves[0].map_or(sample, |half| half.min(sample)));
        if known.is_none_or(|min| sample <= min + min / 16 + NOISE) {
            self.empty_at = now;
        }
        self.smooth(sample);
        self.look_for_others(now, sample);
    }

    /// Takes the round trip with others' queue for the path's, once it has lasted.
    fn look_for_others(&mut self, now: Duration, sample: Duration) {
        let (Some(min), Some(smoothed)) = (self.min(), self.smoothed) else { return };
        if sample <= min.mul_f64(MOST_OWN).max(SHORTEST_QUEUE) {
            (self.own_at, self.least) = (now, None);
            return;
        }
        let least = self.least.map_or(sample, |least| least.min(sample));
        self.least = Some(least);
        if now.saturating_sub(self.own_at) >= (smoothed * OTHERS_FOR).max(OTHERS_AT_LEAST) {
            self.halves = [self.least.take(), None];
            (self.half_since, self.own_at) = (now, now);
        }
    }

    pub(super) fn min(&self) -> Option<Duration> {
        self.halves.into_iter().flatten().min()
    }

    /// For so long, no packet has seen an empty path: the minimum may be the queue's, or out of date.
    pub(super) fn stale(&self, now: Duration) -> bool {
        now.saturating_sub(self.empty_at) >= WINDOW
    }

    /// The path is being emptied, or was idle: the minimum counts as seen.
    pub(super) fn refresh(&mut self, now: Duration) {
        self.empty_at = now;
    }

    /// `stale` comes before a minimum is forgotten. A half without samples is not begun: idle time must not make us forget.
    fn age(&mut self, now: Duration) {
        if now.saturating_sub(self.half_since) >= WINDOW && self.halves[0].is_some() {
            self.halves = [None, self.halves[0]];
            self.half_since = now;
        }
    }

    fn smooth(&mut self, sample: Duration) {
        let Some(smoothed) = self.smoothed else {
            self.smoothed = Some(sample);
            self.variation = sample / 2;
            return;
        };
        self.variation = (self.variation * 3 + smoothed.abs_diff(sample)) / 4;
        self.smoothed = Some((smoothed * 7 + sample) / 8);
    }
}

/// As BBRv2: routes change rarely, and emptying the path costs throughput.
const WINDOW: Duration = Duration::from_secs(5);

/// Multiples of the minimum: the window is two of them, and several senders together hold little more.
const MOST_OWN: f64 = 2.5;

/// On short paths least windows alone, of many senders, make longer queues.
const SHORTEST_QUEUE: Duration = Duration::from_millis(5);

/// Round trips for which nothing shorter is seen, and a time: an interruption is no queue.
const OTHERS_FOR: u32 = 20;
const OTHERS_AT_LEAST: Duration = Duration::from_secs(1);

/// What a scheduler adds to a round trip without any queue.
const NOISE: Duration = Duration::from_micros(20);
