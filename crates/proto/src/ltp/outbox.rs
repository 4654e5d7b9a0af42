//! All messages that are being sent on one link, and which of them goes next.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use super::frame::{Close, Open};
use super::open_limit::{OpenLimit, OpenMessages};
use super::outgoing::{Outgoing, Piece, Sending};
use super::packet::BadPacket;
use super::sent::Load;

/// A piece of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) message: u32,
    pub(crate) round: u32,
    pub(crate) total: u32,
    pub(crate) piece: Piece,
    /// The first pass ends with it, or has ended.
    pub(crate) last: bool,
}

/// Messages wait until the one before has left for the first time; so each has the link for itself, and the receiver
/// can tell from its first packet how long it takes. So the most urgent of those that wait begins next, and interrupts
/// none that has begun.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    seed: u64,
    /// The share of a lossy message that its receiver may close it without.
    bearable: f64,
    limit: OpenLimit,
    /// What may be open at the receiver.
    open_messages: OpenMessages,
    next: u32,
    /// The most urgent first.
    waiting: VecDeque<(u32, Sending)>,
    begun: BTreeMap<u32, Sending>,
    /// Lengths of messages that were given up, until the receiver knows.
    leaving: BTreeMap<u32, u32>,
    /// The message that is in its first pass.
    filling: Option<u32>,
    /// Messages with critical bytes to send.
    urgent: BTreeSet<u32>,
    /// Messages with other bytes to send.
    ready: BTreeSet<u32>,
}

impl Outbox {
    pub(crate) fn new(seed: u64, bearable: f64, limit: OpenLimit) -> Outbox {
        Outbox { seed, bearable, limit, ..Outbox::default() }
    }

    pub(crate) fn push(&mut self, what: Outgoing) -> u32 {
        let bytes = what.bytes;
        assert!(u64::from(bytes) <= self.limit.bytes, "a message of {bytes} bytes was never agreed on");
        let message = self.next;
        self.next = message.checked_add(1).expect("a link ends long before its four billionth message");
        let place = self.waiting.partition_point(|(_, before)| before.urgency() >= what.urgency);
        self.waiting.insert(place, (message, Sending::new(what, self.seed)));
        message
    }

    /// Gives a message up. True if the receiver may know of it.
    pub(crate) fn cancel(&mut self, message: u32) -> bool {
        self.waiting.retain(|(waiting, _)| *waiting != message);
        let Some(sending) = self.end(message) else { return false };
        // The receiver may hold it open until it knows: so long it counts within the limit.
        self.leaving.insert(message, sending.total());
        true
    }

    /// The receiver knows that a message was given up.
    pub(crate) fn cancelled(&mut self, message: u32) {
        if let Some(total) = self.leaving.remove(&message) {
            self.open_messages.remove(total);
        }
    }

    /// Messages have begun that their receiver has not closed, or are waiting.
    pub(crate) fn is_empty(&self) -> bool {
        self.begun.is_empty() && self.waiting.is_empty()
    }

    /// Begins the next message if it is its turn.
    pub(crate) fn begin(&mut self) -> Option<u32> {
        let next = self.waiting.front().filter(|_| self.filling.is_none())?.1.total();
        if !self.open_messages.fits(next, &self.limit) {
            return None;
        }
        self.open_messages.add(next);
        let (message, sending) = self.waiting.pop_front()?;
        self.filling = Some(message);
        self.begun.insert(message, sending);
        self.sort(message);
        Some(message)
    }

    /// What announces the message, unless that is over.
    pub(crate) fn open(&self, message: u32, pace: u64) -> Option<Open> {
        Some(self.begun.get(&message)?.open(message, pace))
    }

    /// Something is to be sent.
    pub(crate) fn ready(&self) -> bool {
        !self.urgent.is_empty() || !self.ready.is_empty()
    }

    /// Takes the next piece of at most `most` bytes: critical ones of all messages, then the oldest message's. With a
    /// share of `loss` that the receiver does not close without, what was lost does not wait for the end of the first
    /// pass: then it would be lost again, and again, and each time cost a round trip.
    pub(crate) fn take(&mut self, most: u32, loss: f64) -> Option<Cut> {
        let message = *self.urgent.first().or_else(|| self.ready.first())?;
        let sending = self.begun.get_mut(&message)?;
        let piece = sending.take(most, !sending.bears(loss, self.bearable))?;
        let last = !sending.first_pass();
        // Critical bytes leave first, so that nothing but the end of a queue changes what is to be done next.
        let changed =
            last && self.filling == Some(message) || !sending.ready() || piece.critical != sending.urgent();
        let cut = Cut { message, round: sending.round(), total: sending.total(), piece, last };
        if changed {
            self.sort(message);
        }
        Some(cut)
    }

    /// This was lost on its way.
    pub(crate) fn requeue(&mut self, load: Load) {
        self.change(load, Sending::requeue);
    }

    /// This has left more than once, or was deemed lost, and has arrived.
    pub(crate) fn arrived(&mut self, load: Load) {
        self.change(load, Sending::arrived);
    }

    /// Whether the receiver lacks this, as far as is known.
    pub(crate) fn wants(&self, load: &Load) -> bool {
        let Load::Data { message, offset, len, .. } = *load else { return false };
        self.begun.get(&message).is_some_and(|sending| sending.wants(&(offset..offset + len)))
    }

    /// Round and length of a message that has begun.
    pub(crate) fn head(&self, message: u32) -> Option<(u32, u32)> {
        self.begun.get(&message).map(|sending| (sending.round(), sending.total()))
    }

    /// The receiver has the announcement of a message.
    pub(crate) fn announced(&mut self, message: u32) {
        if let Some(sending) = self.begun.get_mut(&message) {
            sending.announced();
        }
    }

    /// The receiver may not know what a message is.
    pub(crate) fn is_unannounced(&self, message: u32) -> bool {
        self.begun.get(&message).is_some_and(Sending::is_unannounced)
    }

    /// The receiver closed a message, or said a part of it. `Some` once it is over.
    pub(crate) fn close(&mut self, close: Close) -> Result<Option<Vec<Range<u32>>>, BadPacket> {
        let message = close.message;
        if message >= self.next {
            return Err(BadPacket::Contradiction(message));
        }
        let Some(sending) = self.begun.get_mut(&message) else { return Ok(None) };
        let missing = sending.close(close)?;
        self.sort(message);
        if missing.is_some() {
            let total = self.end(message).map_or(0, |sending| sending.total());
            self.open_messages.remove(total);
        }
        Ok(missing)
    }

    fn change(&mut self, load: Load, change: impl FnOnce(&mut Sending, Piece)) {
        let Load::Data { message, offset, len, critical, again } = load else { return };
        if let Some(sending) = self.begun.get_mut(&message) {
            change(sending, Piece { range: offset..offset + len, critical, again });
            self.sort(message);
        }
    }

    fn end(&mut self, message: u32) -> Option<Sending> {
        let sending = self.begun.remove(&message);
        self.sort(message);
        sending
    }

    /// Puts the message into the sets in which it belongs now.
    fn sort(&mut self, message: u32) {
        let sending = self.begun.get(&message);
        set(&mut self.urgent, message, sending.is_some_and(Sending::urgent));
        set(&mut self.ready, message, sending.is_some_and(Sending::ready));
        // Once all of it has left for the first time, the next message may begin.
        let fills = sending.is_some_and(|sending| sending.urgent() || sending.first_pass());
        self.filling.take_if(|filling| *filling == message && !fills);
    }
}

fn set(set: &mut BTreeSet<u32>, message: u32, belongs: bool) {
    match belongs {
        true => set.insert(message),
        false => set.remove(&message),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_urgent_of_those_that_wait_begins_next_and_interrupts_none() {
        let mut outbox = Outbox::new(0, 0.0, OpenLimit { bytes: 1 << 20, messages: 16 });
        let push = |outbox: &mut Outbox, urgency| {
            let (critical, lossy) = (Vec::new(), false);
            outbox.push(Outgoing { round: 0, tag: [0; 48], bytes: 100, value: 1, critical, lossy, urgency })
        };
        let first = push(&mut outbox, 0);
        assert_eq!(outbox.begin(), Some(first));
        let [bulk, urgent, most, also] = [0, 1, 2, 1].map(|urgency| push(&mut outbox, urgency));
        for next in [most, urgent, also, bulk] {
            assert_eq!(outbox.begin(), None, "the one before fills the link");
            while outbox.take(50, 0.0).is_some() {}
            assert_eq!(outbox.begin(), Some(next));
        }
    }
}
