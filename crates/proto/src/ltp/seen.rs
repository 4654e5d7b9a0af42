//! What has arrived of the peer's packets, and when to report it.

use std::collections::VecDeque;
use std::time::Duration;

use super::frame::{encode_ack, ACK_RANGES};

/// After so many packets an acknowledgement is due.
const EVERY_PACKETS: u32 = 16;
/// Or after so many bytes: large packets fill a window sooner.
const EVERY_BYTES: u32 = 48 << 10;
/// Or this long after the first packet that is not acknowledged yet.
pub(crate) const DELAY: Duration = Duration::from_millis(1);
/// A range is reported so often and then forgotten. Losing as many acknowledgements in a row costs needless
/// retransmissions, nothing else; and an ACK frame lists what is recent, not everything since the beginning.
const REPORTS: u8 = 10;

#[derive(Clone, Debug)]
struct Span {
    first: u64,
    last: u64,
    reports: u8,
}

/// The numbers that have arrived, as far as the peer may not know of them yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Ascending, apart from each other.
    spans: VecDeque<Span>,
    newest_at: Duration,
    loss: Loss,
    packets: u32,
    bytes: u32,
    /// When an acknowledgement is due.
    pub(crate) due: Option<Duration>,
}

/// How many of the peer's packets have not come.
#[derive(Clone, Copy, Debug, Default)]
struct Loss {
    /// The share of the numbers before `since` that was lost.
    share: f64,
    /// How many were lost in a row among them.
    burst: f64,
    since: u64,
    came: u64,
    gaps: u64,
}

impl Loss {
    /// A packet has come; `gap`: some before it have not.
    fn came(&mut self, number: u64, gap: bool) {
        self.came += 1;
        self.gaps += u64::from(gap);
        if number >= self.since + LOSS_PACKETS {
            let all = number + 1 - self.since;
            let lost = all.saturating_sub(self.came) as f64;
            (self.share, self.burst) = (lost / all as f64, lost / self.gaps.max(1) as f64);
            (self.since, self.came, self.gaps) = (number + 1, 0, 0);
        }
    }
}

/// Packets over which loss is counted.
const LOSS_PACKETS: u64 = 512;

/// How a packet wants to be acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AckRequest {
    /// Not for its own sake.
    None,
    /// It is acknowledged together with others.
    Soon,
    /// It is acknowledged at once.
    Now,
}

impl Seen {
    /// Packet `number` of `bytes` has arrived and was understood.
    pub(crate) fn note(&mut self, now: Duration, number: u64, bytes: u32, ack_request: AckRequest) {
        let newest = self.spans.back().map(|span| span.last);
        let in_order = newest.is_none_or(|newest| number == newest + 1);
        if newest.is_none_or(|newest| number > newest) {
            self.newest_at = now;
        }
        self.insert(number);
        self.loss.came(number, newest.is_some_and(|newest| number > newest + 1));
        if ack_request == AckRequest::None {
            return;
        }
        self.packets += 1;
        self.bytes += bytes;
        let full = self.packets >= EVERY_PACKETS || self.bytes >= EVERY_BYTES;
        let soon = self.due.unwrap_or(now + DELAY);
        // A gap may be a loss, and the sender finds it by what came after it: that should not wait.
        self.due = Some(if full || !in_order || ack_request == AckRequest::Now { now } else { soon });
    }

    /// The share of the peer's packets that were lost.
    pub(crate) fn lost(&self) -> f64 {
        self.loss.share
    }

    /// Mean number of them in a row; 0 where none was.
    pub(crate) fn lost_in_a_row(&self) -> f64 {
        self.loss.burst
    }

    /// Appends an ACK frame to a body that may have `most` bytes.
    pub(crate) fn write(&mut self, now: Duration, most: usize, out: &mut Vec<u8>) {
        let delay = now.saturating_sub(self.newest_at).as_micros();
        let ranges = self.spans.iter().rev().map(|span| span.first..=span.last);
        encode_ack(u32::try_from(delay).unwrap_or(u32::MAX), ranges, most, out);
        (self.packets, self.bytes, self.due) = (0, 0, None);
        // The newest span still grows, so what is in it may never have been reported.
        for span in self.spans.iter_mut().rev().skip(1) {
            span.reports += 1;
        }
        self.spans.retain(|span| span.reports < REPORTS);
    }

    fn insert(&mut self, number: u64) {
        let fresh = Span { first: number, last: number, reports: 0 };
        let Some(newest) = self.spans.back_mut() else {
            return self.spans.push_back(fresh);
        };
        if number == newest.last + 1 {
            newest.last = number;
        } else if number > newest.last {
            self.spans.push_back(fresh);
            if self.spans.len() > ACK_RANGES {
                self.spans.pop_front();
            }
        } else {
            self.insert_late(fresh);
        }
    }

    fn insert_late(&mut self, fresh: Span) {
        // The first span that ends right before the number, or after it.
        let at = self.spans.iter().rposition(|span| span.last + 1 < fresh.first).map_or(0, |at| at + 1);
        let Some(span) = self.spans.get_mut(at) else { return };
        if span.last + 1 == fresh.first {
            span.last = fresh.last;
        } else if fresh.first + 1 == span.first {
            span.first = fresh.first;
        } else if fresh.first < span.first {
            if self.spans.len() < ACK_RANGES {
                self.spans.insert(at, fresh);
            }
            return;
        }
        span.reports = 0;
        if self.spans.get(at + 1).is_some_and(|next| next.first == self.spans[at].last + 1) {
            self.spans[at].last = self.spans[at + 1].last;
            self.spans.remove(at + 1);
        }
    }
}
