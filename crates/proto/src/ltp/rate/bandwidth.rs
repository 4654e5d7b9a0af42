//! Delivery rate: samples of it, and their maximum over the last rounds.
//!
//! A sample is what was delivered between the sending of a packet and its acknowledgement, over the longer of the
//! time in which it was sent and the time in which it was acknowledged (draft-cheng-iccrg-delivery-rate-estimation).
//! The first packets after a pause have no acknowledgement before them: such a sample would count the round trip as
//! transfer time. There the stream of acknowledgements itself is measured, from the first one on.

/// What was known when a packet was sent; the caller keeps it with the packet. All times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub(super) sent: u64,
    /// Bytes acknowledged by then.
    pub(super) delivered: u64,
    /// When the last of them was acknowledged; `None` in the first flight after a pause.
    delivered_at: Option<u64>,
    /// When the packet was sent whose acknowledgement came last; after a pause, when the flight began.
    first_sent: u64,
    limited: bool,
}

/// One measurement of the delivery rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// The rate in bytes per second.
    pub(super) rate: u64,
    /// The rate may be lower than the path's: the sender had less to send.
    pub(super) limited: bool,
}

/// Makes marks and samples.
#[derive(Clone, Debug, Default)]
pub(super) struct Sampler {
    pub(super) delivered: u64,
    delivered_at: Option<u64>,
    first_sent: u64,
    /// Samples of packets that were sent before this much was delivered are limited.
    limited_until: u64,
    train: Option<Train>,
}

/// The acknowledgements of a flight that began after a pause.
#[derive(Clone, Copy, Debug)]
struct Train {
    first_acked: u64,
    first_sent: u64,
    delivered: u64,
}

impl Sampler {
    /// A packet leaves; `alone` if nothing else is in flight.
    pub(super) fn sent(&mut self, now: u64, alone: bool) -> Mark {
        if alone {
            self.first_sent = now;
            self.delivered_at = None;
            self.train = None;
        }
        Mark {
            sent: now,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            limited: self.delivered < self.limited_until,
        }
    }

    /// Packets were acknowledged, `newest` last of them. `enough` bytes make a measurement of a first flight.
    pub(super) fn acked(&mut self, now: u64, bytes: u64, newest: &Mark, enough: u64) -> Option<Sample> {
        self.delivered += bytes;
        self.delivered_at = Some(now);
        self.first_sent = self.first_sent.max(newest.sent);
        let Some(delivered_at) = newest.delivered_at else { return self.first_flight(now, newest, enough) };
        let span = (now - delivered_at).max(newest.sent - newest.first_sent);
        let rate = per_second(self.delivered - newest.delivered, span)?;
        Some(Sample { rate, limited: newest.limited })
    }

    /// Nothing more to send, with this much under way: what is sent from now on measures the sender, not the path.
    pub(super) fn limit(&mut self, in_flight: u64) {
        self.limited_until = self.delivered + in_flight.max(1);
    }

    fn first_flight(&mut self, now: u64, newest: &Mark, enough: u64) -> Option<Sample> {
        let at_least = per_second(self.delivered - newest.delivered, now - newest.first_sent)?;
        let Some(train) = self.train else {
            let first = Train { first_acked: now, first_sent: newest.sent, delivered: self.delivered };
            self.train = Some(first);
            return Some(Sample { rate: at_least, limited: true });
        };
        let bytes = self.delivered - train.delivered;
        let span = (now - train.first_acked).max(newest.sent.saturating_sub(train.first_sent));
        match per_second(bytes, span).filter(|_| bytes >= enough) {
            Some(rate) => Some(Sample { rate: rate.max(at_least), limited: false }),
            None => Some(Sample { rate: at_least, limited: true }),
        }
    }
}

fn per_second(bytes: u64, nanos: u64) -> Option<u64> {
    (nanos > 0).then(|| (u128::from(bytes) * 1_000_000_000 / u128::from(nanos)) as u64)
}

/// The largest rate of the last [`ROUNDS`] rounds that measured the path.
#[derive(Clone, Debug, Default)]
pub(super) struct MaxFilter {
    rounds: [u64; ROUNDS],
    at: usize,
    measured: bool,
}

impl MaxFilter {
    /// Takes a sample. A limited one never makes the estimate forget a larger one.
    pub(super) fn add(&mut self, sample: Sample) {
        self.rounds[self.at] = self.rounds[self.at].max(sample.rate);
        self.measured |= !sample.limited;
    }

    /// A round trip has passed. Did it measure the path? One that did not, does not count.
    pub(super) fn end_round(&mut self) -> bool {
        let measured = std::mem::take(&mut self.measured);
        if measured {
            self.at = (self.at + 1) % ROUNDS;
            self.rounds[self.at] = 0;
        }
        measured
    }

    /// Bytes per second; `None` before the first sample.
    pub(super) fn max(&self) -> Option<u64> {
        self.rounds.iter().copied().max().filter(|&rate| rate > 0)
    }
}

/// As BBR: longer than a cycle of probing, so that the slow phases do not lower the estimate.
const ROUNDS: usize = 10;
