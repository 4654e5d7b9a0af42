//! Copies of what a message waits for at its end.
//!
//! # Theory of operation
//!
//! A lost packet costs a round trip, and one that is sent last costs a timer besides, since nothing follows that would
//! show its loss. So what was sent again, the end of a first pass, messages of a few packets, and the frames that open
//! and close a message leave more than once, if the path loses packets: as soon as nothing else waits to be sent, and
//! until one of them is acknowledged. How often follows from the loss, so that one message in a hundred waits for another
//! round trip. The first copy leaves soon, since what it brings is waited for; each further one after twice the time,
//! since what swallowed one packet may swallow the next. Copies wait for window and pace as all else does, and for
//! whatever else there is to send.

use std::collections::VecDeque;
use std::time::Duration;

use crate::ltp::sent::{ControlFrame, Load};

/// What may leave again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Data(Load),
    Frame(ControlFrame),
}

#[derive(Clone, Copy, Debug)]
struct Copies {
    item: Item,
    left: u32,
    sent: u32,
    due: Duration,
}

/// Copies that are to leave, in the order of their times.
#[derive(Debug, Default)]
pub(super) struct Tail {
    copies: VecDeque<Copies>,
}

/// What the path is like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weather {
    /// Share of packets lost.
    pub(super) loss: f64,
    /// Mean number of packets lost in a row.
    pub(super) burst: f64,
    pub(super) rtt: Duration,
}

impl Tail {
    /// This has left; nothing else is known of it.
    pub(super) fn push(&mut self, now: Duration, item: Item, weather: &Weather) {
        let left = copies(weather, self.copies.len() + 1);
        if left == 0 {
            return;
        }
        // The newest are those that arrive last.
        if self.copies.len() >= MOST_PIECES {
            self.copies.pop_front();
        }
        self.add(Copies { item, left, sent: 0, due: now + pause(weather, 0) });
    }

    /// When a copy may leave next.
    pub(super) fn due(&self) -> Option<Duration> {
        self.copies.front().map(|copies| copies.due)
    }

    /// What may leave again now, if `wanted` still.
    pub(super) fn take(
        &mut self,
        now: Duration,
        weather: &Weather,
        wanted: impl Fn(&Item) -> bool,
    ) -> Option<Item> {
        while let Some(copies) = self.copies.pop_front() {
            if copies.due > now {
                self.copies.push_front(copies);
                return None;
            }
            if !wanted(&copies.item) {
                continue;
            }
            let (left, sent) = (copies.left - 1, copies.sent + 1);
            if left > 0 {
                self.add(Copies { left, sent, due: now + pause(weather, sent), ..copies });
            }
            return Some(copies.item);
        }
        None
    }

    fn add(&mut self, copies: Copies) {
        let at = self.copies.partition_point(|other| other.due <= copies.due);
        self.copies.insert(at, copies);
    }
}

/// How many copies of each of so many pieces, besides the first that has left.
fn copies(weather: &Weather, pieces: usize) -> u32 {
    let Weather { loss, burst, .. } = *weather;
    if loss < LEAST_LOSS {
        return 0;
    }
    // So many packets each that the loss of all of one piece is rare ...
    let each = (RARE / pieces as f64).ln() / loss.min(0.5).ln();
    // ... and so many together that they outlast a burst: it lasts for packets, not for a time.
    let outlast = if burst >= 2.0 { 2.0 * burst / pieces as f64 } else { 0.0 };
    (each.ceil() - 1.0).max(outlast.ceil()).clamp(0.0, MOST_COPIES) as u32
}

/// Until the next copy, where so many have left: all within the round trip in which the first is acknowledged.
fn pause(weather: &Weather, sent: u32) -> Duration {
    ((weather.rtt / 32) * (1 << sent.min(3))).max(SHORTEST)
}

/// A message of so many packets has nothing but an end.
pub(super) const SMALL_PACKETS: u32 = 16;

/// Below it, a message of a few thousand packets loses a retransmission in one of ten cases, and waits for a round trip.
const LEAST_LOSS: f64 = 0.003;

/// So many messages wait for another round trip.
const RARE: f64 = 0.01;

/// However bad the path is.
const MOST_COPIES: f64 = 8.0;

/// Pieces that are copied at the end of a message: more are a flight, whose losses show.
const MOST_PIECES: usize = 32;

/// Timers of hosts are not finer.
const SHORTEST: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn weather(loss: f64, burst: f64) -> Weather {
        Weather { loss, burst, rtt: Duration::from_millis(40) }
    }

    #[test]
    fn as_many_copies_as_the_loss_asks_for() {
        let each = |loss, pieces| copies(&weather(loss, 1.0), pieces);
        assert_eq!([0.0, 0.002, 0.01, 0.03, 0.1, 0.2, 0.3].map(|loss| each(loss, 10)), [0, 0, 1, 1, 2, 4, 5]);
        assert_eq!([1, 32].map(|pieces| each(0.03, pieces)), [1, 2]);
        assert_eq!(copies(&weather(0.03, 20.0), 1), MOST_COPIES as u32);
        assert_eq!(copies(&weather(0.03, 20.0), 20), 2);
    }

    #[test]
    fn copies_leave_at_their_times_while_they_are_wanted() {
        let (mut tail, weather) = (Tail::default(), weather(0.1, 1.0));
        let item = |message| Item::Frame(ControlFrame::Open(message));
        let at = Duration::from_millis;
        tail.push(at(0), item(1), &weather);
        tail.push(at(5), item(2), &weather);
        let due = tail.due().expect("a copy waits");
        assert_eq!(tail.take(due - at(1), &weather, |_| true), None);
        assert_eq!(tail.take(due, &weather, |_| true), Some(item(1)));
        // The first message is over.
        let mut left = 0;
        while let Some(due) = tail.due() {
            left += u32::from(tail.take(due, &weather, |other| *other == item(2)).is_some());
        }
        assert_eq!(left, copies(&weather, 2));
    }

    #[test]
    fn the_number_of_pieces_is_bounded() {
        let mut tail = Tail::default();
        for message in 0..1000 {
            tail.push(Duration::ZERO, Item::Frame(ControlFrame::Open(message)), &weather(0.2, 1.0));
        }
        assert_eq!(tail.copies.len(), MOST_PIECES);
    }
}
