//! What is measured of a process's links: the planner chooses trees and blocks by it.
//!
//! Not the cost per message. Blocks are chosen so large that a link hides it: where they are right, a pull takes its bytes over
//! the rate, and shows no more. All pulls of a process have much the same blocks, so bytes and blocks grow together, and no fit
//! tells the one's time from the other's; blocks of other sizes, for a measurement, would be pulls that are slower. What a thread
//! takes to handle a message can be timed, but it leaves out what most of the cost is on processors that others use, too: how
//! long the thread waits for its turn. Blocks by that would be too small.
//!
//! They were also too small by the time that the thread ran and waited for its turn (`/proc/thread-self/schedstat`) per small
//! message, the median of 64: 8 to 79 KB in place of 0.3 to 1.3 MB, between three processes over loopback, where 16 MB took
//! two receivers 80 to 114 ms in place of 49 to 62. A block costs more than that: it wakes threads more than once.

use std::collections::VecDeque;
use std::time::Duration;

use tweed_proto::objects::Costs;

/// A pull of less says more of the latency than of the rate; the first may be smaller, as a guess says nothing at all.
const LEAST_BYTES: u64 = 256 << 10;
const FIRST_BYTES: u64 = 64 << 10;
/// Of so many pulls the fastest counts: time is from the request on, so others have waited for who feeds them, or shared a
/// link, and none seems faster than its link.
const PULLS: usize = 16;

/// Of so many lags the middle one counts: now and then a thread has its processor at once, or not for long.
const LAGS: usize = 15;

/// See above.
#[derive(Debug, Default)]
pub(super) struct Measured {
    round_trip: Option<Duration>,
    /// In bytes per second, the newest last.
    rates: Vec<u64>,
    /// Bytes that were at their receiver and had not been taken in, the newest last.
    lags: VecDeque<u64>,
}

impl Measured {
    /// A link has shown how long a message and its answer take. The nearest process counts: a link that is busy is slower.
    pub(super) fn note_round_trip(&mut self, round_trip: Duration) {
        self.round_trip = Some(self.round_trip.map_or(round_trip, |least| least.min(round_trip)));
    }

    /// So many bytes have come, or have been taken, within that time. Returns whether they say anything.
    pub(super) fn note_pull(&mut self, bytes: u64, within: Duration) -> bool {
        let least = if self.knows_rate() { LEAST_BYTES } else { FIRST_BYTES };
        let says = bytes >= least && !within.is_zero();
        if says {
            self.rates.push(((bytes as f64 / within.as_secs_f64()) as u64).max(1));
            self.rates.drain(..self.rates.len().saturating_sub(PULLS));
        }
        says
    }

    /// When a block had been taken in, so many bytes more were at its receiver: its thread waits for a processor.
    pub(super) fn note_lag(&mut self, bytes: u64) {
        self.lags.push_back(bytes);
        self.lags.drain(..self.lags.len().saturating_sub(LAGS));
    }

    /// How many bytes are at their receiver before it takes them in.
    pub(super) fn lag(&self) -> Option<u64> {
        let mut lags = [0; LAGS];
        let known = &mut lags[..self.lags.len()];
        known.iter_mut().zip(&self.lags).for_each(|(to, lag)| *to = *lag);
        known.sort_unstable();
        known.get(known.len() / 2).copied()
    }

    /// A pull has said what the rate is.
    pub(super) fn knows_rate(&self) -> bool {
        !self.rates.is_empty()
    }

    /// What is known now, in place of what was.
    pub(super) fn costs(&self, before: Costs) -> Costs {
        let latency = self.round_trip.map_or(before.latency, |round_trip| round_trip / 2);
        let rate = self.rates.iter().copied().max().unwrap_or(before.rate);
        Costs { latency, rate, message: before.message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_nearest_link_and_the_fastest_of_the_last_pulls_count() {
        let given = Costs { latency: MS, rate: 7, message: MS };
        let mut measured = Measured::default();
        assert_eq!(measured.costs(given), given);
        measured.note_round_trip(4 * MS);
        measured.note_round_trip(6 * MS);
        assert!(!measured.note_pull(1000, MS) && !measured.knows_rate());
        assert!(measured.note_pull(100_000, 10 * MS) && !measured.note_pull(100_000, 10 * MS));
        assert!(measured.note_pull(1_000_000, 10 * MS));
        for _ in 1..PULLS {
            measured.note_pull(500_000, 10 * MS);
        }
        assert_eq!(measured.costs(given), Costs { latency: 2 * MS, rate: 100_000_000, message: MS });
        measured.note_pull(500_000, 10 * MS);
        assert_eq!(measured.costs(given).rate, 50_000_000);
    }

    #[test]
    fn the_middle_one_of_the_last_lags_counts() {
        let mut measured = Measured::default();
        assert_eq!(measured.lag(), None);
        [0, 9, 2, 1, 8].into_iter().for_each(|bytes| measured.note_lag(bytes));
        assert_eq!(measured.lag(), Some(2));
        (0..LAGS).for_each(|_| measured.note_lag(30));
        assert_eq!(measured.lag(), Some(30));
    }
}
