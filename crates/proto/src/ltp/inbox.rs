//! All messages that are being received on one link.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::close::{first_guess, Closing, Gate, Verdict};
use super::frame::{Close, Open};
use super::incoming::{Receiving, Telling};
use super::link::Event;
use super::most::{Most, Opened};
use super::packet::{BadPacket, DataHead, Header};
use super::ranges::Ranges;
use super::sent::Note;
use super::MessageId;

/// Numbers are skipped where a message is given up before it begins.
const MOST_HOLES: usize = 1 << 16;
/// A sender begins no message before it knows of the end of an earlier one; we may only learn that later.
const MOST_UNTOLD: usize = 1 << 16;

/// A message is open from its first packet on, until it is closed here; then its sender is told until it knows; then
/// only its number is remembered, so that a late packet never opens it again.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) gate: Gate,
    most: Most,
    opened: Opened,
    open: BTreeMap<u32, Receiving>,
    telling: BTreeMap<u32, Telling>,
    over: Ranges,
    /// CLOSE frames to be sent.
    notes: VecDeque<Note>,
}

impl Inbox {
    pub(crate) fn new(closing: Closing, most: Most) -> Inbox {
        Inbox {
            gate: Gate::new(closing),
            most,
            opened: Opened::default(),
            open: BTreeMap::new(),
            telling: BTreeMap::new(),
            over: Ranges::new(),
            notes: VecDeque::new(),
        }
    }

    /// A DATA packet. False if it comes too late, and its bytes must not be placed.
    pub(crate) fn data(
        &mut self,
        now: Duration,
        header: &Header,
        (head, len): (&DataHead, u32),
        events: &mut VecDeque<Event>,
    ) -> Result<bool, BadPacket> {
        let Some(receiving) = self.enter(now, head.message, head.round, head.total)? else {
            return Ok(false);
        };
        receiving.place(header, head, len)?;
        if receiving.whole() || receiving.early.is_some_and(|early| early <= now) {
            self.judge(now, head.message, events);
        }
        Ok(true)
    }

    /// An OPEN frame. `rtt_min` is this link's.
    pub(crate) fn announce(
        &mut self,
        now: Duration,
        open: Open,
        rtt_min: Option<Duration>,
        events: &mut VecDeque<Event>,
    ) -> Result<(), BadPacket> {
        let Some(receiving) = self.enter(now, open.message, open.round, open.total)? else {
            self.tell_again(open.message);
            return Ok(());
        };
        if receiving.announce(open)? && open.lossy {
            self.gate.admit(open.total, first_guess(rtt_min, Some(open.pace), open.total));
            self.set_times(open.message);
        }
        self.judge(now, open.message, events);
        Ok(())
    }

    /// The sender gives a message up. True if it was open.
    pub(crate) fn cancel(&mut self, message: u32) -> Result<bool, BadPacket> {
        if message == u32::MAX || self.is_full() {
            return Err(BadPacket::Contradiction(message));
        }
        Ok(self.end(message).is_some())
    }

    /// Closes what time closes.
    pub(crate) fn handle_timeout(&mut self, now: Duration, events: &mut VecDeque<Event>) {
        let due = |(&message, receiving): (&u32, &Receiving)| {
            receiving.check.filter(|&at| at <= now).map(|_| message)
        };
        let due: Vec<u32> = self.open.iter().filter_map(due).collect();
        for message in due {
            self.judge(now, message, events);
        }
    }

    /// When a message may be closed by time.
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        self.open.values().filter_map(|receiving| receiving.check).min()
    }

    pub(crate) fn end_epoch(&mut self, slowest: Option<Duration>) {
        self.gate.end_epoch(slowest);
        let open: Vec<u32> =
            self.open.iter().filter(|(_, receiving)| receiving.lossy()).map(|(id, _)| *id).collect();
        for message in open {
            self.set_times(message);
        }
    }

    /// Frames that are waiting to be sent.
    pub(crate) fn take_note(&mut self) -> Option<Note> {
        self.notes.pop_front()
    }

    pub(crate) fn has_notes(&self) -> bool {
        !self.notes.is_empty()
    }

    /// This CLOSE frame was lost.
    pub(crate) fn requeue(&mut self, message: u32, part: u32) {
        self.notes.push_back(Note::Close { message, part });
    }

    /// The CLOSE frame, unless its message's sender knows it.
    pub(crate) fn frame(&self, message: u32, part: u32) -> Option<Close> {
        self.telling.get(&message)?.frame(message, part)
    }

    /// The sender has this CLOSE frame.
    pub(crate) fn told(&mut self, message: u32, part: u32) {
        if self.telling.get_mut(&message).is_some_and(|telling| telling.told(part)) {
            self.telling.remove(&message);
        }
    }

    /// What is remembered of closed messages is more than any honest sender leaves behind.
    fn is_full(&self) -> bool {
        self.over.as_slice().len() >= MOST_HOLES || self.telling.len() >= MOST_UNTOLD
    }

    fn enter(
        &mut self,
        now: Duration,
        message: u32,
        round: u32,
        total: u32,
    ) -> Result<Option<&mut Receiving>, BadPacket> {
        if !self.open.contains_key(&message) {
            if message == u32::MAX {
                return Err(BadPacket::Contradiction(message));
            }
            if self.over.contains(message) {
                return Ok(None);
            }
            if !self.opened.fits(total, &self.most) || self.is_full() {
                return Err(BadPacket::TooMuch(total));
            }
            self.opened.add(total);
            self.open.insert(message, Receiving::new(now, round, total));
        }
        Ok(self.open.get_mut(&message))
    }

    /// Closes the message if it is time.
    fn judge(&mut self, now: Duration, message: u32, events: &mut VecDeque<Event>) {
        let Some(receiving) = self.open.get_mut(&message) else { return };
        let elapsed = now.saturating_sub(receiving.began);
        let limit = self.gate.limit(receiving.progress().total);
        let verdict = match (receiving.whole(), receiving.lossy()) {
            (true, _) => Verdict::Close,
            (false, false) => Verdict::Wait(None),
            // What has not been sent yet is not lost: before the first pass has ended only the limit counts.
            (false, true) if !receiving.passed() && limit.is_none_or(|limit| elapsed < limit) => {
                Verdict::Wait(limit)
            }
            (false, true) => self.gate.decide(elapsed, receiving.progress()),
        };
        match verdict {
            Verdict::Close => self.close(elapsed, message, events),
            Verdict::Wait(until) => {
                let early = receiving.early.filter(|&early| early > now);
                let until = until.map(|until| receiving.began + until);
                receiving.check = early.into_iter().chain(until).min();
            }
        }
    }

    fn close(&mut self, elapsed: Duration, message: u32, events: &mut VecDeque<Event>) {
        let Some(receiving) = self.end(message) else { return };
        if receiving.lossy() {
            self.gate.note_closed(elapsed, receiving.progress().delivered, receiving.progress().total);
        }
        let Some(closed) = receiving.close() else { return };
        let telling = Telling::new(closed.missing.clone());
        self.notes.extend(telling.untold().map(|part| Note::Close { message, part }));
        self.telling.insert(message, telling);
        let (round, tag, total, missing) = (closed.round, closed.tag, closed.total, closed.missing);
        events.push_back(Event::Received { message: MessageId(message), round, tag, total, missing });
    }

    /// Queues what the sender may not know.
    fn tell_again(&mut self, message: u32) {
        let Some(telling) = self.telling.get(&message) else { return };
        for part in telling.untold() {
            let note = Note::Close { message, part };
            if !self.notes.contains(&note) {
                self.notes.push_back(note);
            }
        }
    }

    /// Never opens it again; returns what it was if it was open.
    fn end(&mut self, message: u32) -> Option<Receiving> {
        self.over.insert(message..message + 1);
        let receiving = self.open.remove(&message)?;
        self.opened.remove(receiving.progress().total);
        Some(receiving)
    }

    /// Takes over what the gate knows by now.
    fn set_times(&mut self, message: u32) {
        let Some(receiving) = self.open.get_mut(&message) else { return };
        let total = receiving.progress().total;
        let times = [self.gate.threshold(total), self.gate.limit(total)];
        receiving.early = times.into_iter().flatten().min().map(|at| receiving.began + at);
        receiving.check = receiving.early;
    }
}
