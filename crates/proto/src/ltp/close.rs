//! Early Close: when the receiver of a lossy message stops waiting for the rest of it.
//!
//! | Time since the message's first packet | It closes when |
//! |---|---|
//! | before the threshold | all bytes are there |
//! | from the threshold on | the fraction is there, and all critical bytes |
//! | from the limit on | all critical bytes are there |
//!
//! The threshold of a message size is the shortest time in which this link delivered that size whole in the last
//! epoch; the limit is the threshold of the slowest link, and some slack.
//! Source: LTP (arXiv 2305.04279), as noted in its section 3.4. Own additions: thresholds per size, and what an
//! epoch in which nothing arrived whole leaves behind (see [`CloseThresholds::note_closed`]).

use std::collections::BTreeMap;
use std::time::Duration;

/// How long a receiver waits for a lossy message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Closing {
    /// The share of the bytes that suffices once the threshold has passed, 0 to 1.
    pub fraction: f64,
    /// What the limit allows beyond the slowest link's threshold.
    pub slack: Duration,
    /// No lossy message waits longer, counted from its first packet; `None`: only the slowest link limits it.
    pub deadline: Option<Duration>,
}

impl Default for Closing {
    /// 98 % (the paper has 80 %, near which training takes more steps) and 30 ms of slack.
    fn default() -> Closing {
        Closing { fraction: 0.98, slack: Duration::from_millis(30), deadline: None }
    }
}

/// What to do with an open message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseDecision {
    /// Close it with what is there.
    Close,
    /// Wait; ask again at this time since the first packet, or (`None`) when more has arrived.
    Wait(Option<Duration>),
}

/// What has arrived of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that are in place.
    pub delivered: u32,
    /// Bytes of the whole message.
    pub total: u32,
    /// All critical bytes are in place, and what they are is known.
    pub critical_complete: bool,
}

/// The thresholds of one link, in the direction towards us.
#[derive(Clone, Debug)]
pub struct CloseThresholds {
    closing: Closing,
    sizes: BTreeMap<u32, Times>,
    slowest: Option<Duration>,
    uses: u64,
}

/// What is known about messages of one size.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    threshold: Option<Duration>,
    /// The threshold was measured on this link, not computed from its estimates.
    measured: bool,
    /// Shortest time to arrive whole in this epoch.
    full: Option<Duration>,
    /// Shortest time in which a message that was cut would have been whole, at the pace it came.
    projected: Option<Duration>,
    used: u64,
}

impl Times {
    fn measured(&self) -> Option<Duration> {
        self.threshold.filter(|_| self.measured)
    }

    /// The measured threshold of the next epoch: of this one, or else as it was.
    fn coming(&self) -> Option<Duration> {
        self.full.or(self.projected).or(self.measured())
    }
}

impl CloseThresholds {
    /// Thresholds that know no times yet.
    pub fn new(closing: Closing) -> CloseThresholds {
        CloseThresholds { closing, sizes: BTreeMap::new(), slowest: None, uses: 0 }
    }

    /// A message of `total` bytes begins. `guess` ([`first_guess`]) is its threshold until one has been measured.
    pub fn admit(&mut self, total: u32, guess: Option<Duration>) {
        self.uses += 1;
        let used = self.uses;
        let times = self.times(total);
        times.used = used;
        if !times.measured {
            times.threshold = guess;
        }
    }

    /// Judges a lossy message `elapsed` after its first packet.
    ///
    /// A reliable message does not come here: it closes when all of it is there.
    pub fn decide(&self, elapsed: Duration, progress: Progress) -> CloseDecision {
        let Progress { delivered, total, critical_complete } = progress;
        if !critical_complete {
            return CloseDecision::Wait(None);
        }
        if delivered >= total {
            return CloseDecision::Close;
        }
        let limit = self.limit(total);
        // In parts per million, so that the boundary is exact.
        let share = (self.closing.fraction.clamp(0.0, 1.0) * 1e6).round() as u64;
        let suffices = u64::from(delivered) * 1_000_000 >= share * u64::from(total);
        let threshold = self.threshold(total).filter(|_| suffices);
        match earliest(threshold, limit) {
            Some(at) if at <= elapsed => CloseDecision::Close,
            at => CloseDecision::Wait(at),
        }
    }

    /// A message of `total` bytes was closed `elapsed` after its first packet, with `delivered` of them.
    ///
    /// One that was cut tells how long it would have taken at its pace. Where no message of an epoch arrived whole,
    /// that becomes the threshold: after the path has become slower, nothing would ever arrive whole again.
    pub fn note_closed(&mut self, elapsed: Duration, delivered: u32, total: u32) {
        let times = self.times(total);
        if delivered >= total {
            times.full = earliest(times.full, Some(elapsed));
        } else if delivered > 0 {
            let whole = scale(elapsed, total.into(), delivered.into());
            times.projected = earliest(times.projected, Some(whole));
        }
    }

    /// An epoch ends: the thresholds become what it measured. `slowest` is the largest [`CloseThresholds::coming`] of all
    /// links, asked before any of them ended its epoch, or `None` if this link is alone.
    pub fn end_epoch(&mut self, slowest: Option<Duration>) {
        for times in self.sizes.values_mut() {
            let threshold = times.coming();
            *times = Times { threshold, measured: threshold.is_some(), used: times.used, ..Times::default() };
        }
        self.slowest = slowest;
    }

    /// The largest threshold that this link will have over all sizes once the epoch has ended.
    pub fn coming(&self) -> Option<Duration> {
        self.sizes.values().filter_map(Times::coming).max()
    }

    /// The largest measured threshold of this link over all sizes.
    pub fn slowest(&self) -> Option<Duration> {
        self.sizes.values().filter_map(Times::measured).max()
    }

    /// The time from which the fraction suffices for a message of this size; `None`: not before the limit.
    pub fn threshold(&self, total: u32) -> Option<Duration> {
        self.sizes.get(&total).and_then(|times| times.threshold)
    }

    /// From when on a message of this size closes with whatever has come; `None`: never by time.
    ///
    /// The slowest link is compared at its largest message, where its threshold was taken: smaller messages get
    /// the same multiple of their own threshold. A threshold that was never measured limits nothing, since the
    /// guess may be far off where the two directions differ.
    pub fn limit(&self, total: u32) -> Option<Duration> {
        let paper = self.sizes.get(&total).and_then(Times::measured).map(|own| {
            let largest = self.slowest().unwrap_or(own).max(Duration::from_nanos(1));
            let slowest = self.slowest.unwrap_or(largest).max(largest);
            scale(own, slowest.as_nanos(), largest.as_nanos()) + self.closing.slack
        });
        earliest(paper, self.closing.deadline)
    }

    fn times(&mut self, total: u32) -> &mut Times {
        if self.sizes.len() >= MOST_SIZES && !self.sizes.contains_key(&total) {
            let oldest = self.sizes.iter().min_by_key(|(_, times)| times.used).map(|(&size, _)| size);
            self.sizes.remove(&oldest.unwrap_or(total));
        }
        self.sizes.entry(total).or_default()
    }
}

/// The threshold before anything was measured: one and a half round trips, and the bytes at the link's rate.
///
/// `bandwidth` is in bytes per second. `None` without both estimates: then only the fraction and the limit count.
pub fn first_guess(rtt_min: Option<Duration>, bandwidth: Option<u64>, bytes: u32) -> Option<Duration> {
    let transfer = scale(Duration::from_secs(1), bytes.into(), bandwidth.filter(|&rate| rate > 0)?.into());
    Some(rtt_min? * 3 / 2 + transfer)
}

fn earliest(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    [a, b].into_iter().flatten().min()
}

/// `time * by / of`, without rounding in between.
fn scale(time: Duration, by: u128, of: u128) -> Duration {
    let nanos = time.as_nanos().saturating_mul(by) / of.max(1);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// A training step has some tens of sizes; a peer that invents new ones must not fill our memory.
const MOST_SIZES: usize = 256;
