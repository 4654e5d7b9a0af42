//! All messages that are being received on one link.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::close::{first_guess, CloseDecision, CloseThresholds, Closing};
use super::frame::{Close, Open};
use super::incoming::{CloseNotice, Receiving};
use super::link::Event;
use super::open_limit::{OpenLimit, OpenMessages};
use super::packet::{BadPacket, DataHead, Header, RepairHead};
use super::ranges::Ranges;
use super::sent::ControlFrame;
use super::MessageId;

/// Numbers are skipped where a message is given up before it begins.
const MOST_HOLES: usize = 1 << 16;
/// A sender begins no message before it knows of the end of an earlier one; we may only learn that later.
const MOST_UNACKNOWLEDGED: usize = 1 << 16;

/// A message is open from its first packet on, until it is closed here; then its sender is told until it knows; then
/// only its number is remembered, so that a late packet never opens it again.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) thresholds: CloseThresholds,
    limit: OpenLimit,
    open_messages: OpenMessages,
    open: BTreeMap<u32, Receiving>,
    close_notices: BTreeMap<u32, CloseNotice>,
    over: Ranges,
    /// CLOSE frames to be sent.
    pub(crate) control_frames: VecDeque<ControlFrame>,
}

impl Inbox {
    pub(crate) fn new(closing: Closing, limit: OpenLimit) -> Inbox {
        Inbox {
            thresholds: CloseThresholds::new(closing),
            limit,
            open_messages: OpenMessages::default(),
            open: BTreeMap::new(),
            close_notices: BTreeMap::new(),
            over: Ranges::default(),
            control_frames: VecDeque::new(),
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
        let entered = self.enter(now, head.message, head.round, head.total)?;
        let Some(receiving) = entered else { return Ok(false) };
        receiving.place(header, head, len)?;
        Inbox::restore(head.message, receiving, events);
        // Before the threshold only the packet that completes it can close it, so most are not judged.
        if receiving.whole() || receiving.early.is_some_and(|early| early <= now) {
            self.judge(now, head.message, events);
        }
        Ok(true)
    }

    /// Takes a REPAIR packet in.
    pub(crate) fn repair(
        &mut self,
        now: Duration,
        head: &RepairHead,
        shard: &[u8],
        events: &mut VecDeque<Event>,
    ) -> Result<(), BadPacket> {
        let Some(receiving) = self.enter(now, head.message, head.round, head.code.total)? else {
            return Ok(());
        };
        receiving.keep(head, shard)?;
        Inbox::restore(head.message, receiving, events);
        self.judge(now, head.message, events);
        Ok(())
    }

    fn restore(message: u32, receiving: &mut Receiving, events: &mut VecDeque<Event>) {
        if let Some(repair) = receiving.restore() {
            events.push_back(Event::Restored { message: MessageId(message), repair });
        }
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
            // Its sender would not announce it again if it had all CLOSE frames.
            self.repeat_close(open.message);
            return Ok(());
        };
        if receiving.announce(open)? && open.lossy {
            self.thresholds.admit(open.total, first_guess(rtt_min, Some(open.pace), open.total));
            self.set_times(open.message);
        }
        self.judge(now, open.message, events);
        Ok(())
    }

    /// The sender gives a message up. True if it was open.
    pub(crate) fn cancel(&mut self, message: u32) -> Result<bool, BadPacket> {
        // What is over is kept as ranges, whose ends lie one beyond the last number.
        if message == u32::MAX || self.is_full() {
            return Err(BadPacket::Contradiction(message));
        }
        Ok(self.end(message).is_some())
    }

    /// Closes what time closes.
    pub(crate) fn handle_timeout(&mut self, now: Duration, events: &mut VecDeque<Event>) {
        let due = |receiving: &Receiving| receiving.check.is_some_and(|at| at <= now);
        let due: Vec<u32> = self.open.iter().filter(|(_, r)| due(r)).map(|(&message, _)| message).collect();
        due.into_iter().for_each(|message| self.judge(now, message, events));
    }

    /// When a message may be closed by time.
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        self.open.values().filter_map(|receiving| receiving.check).min()
    }

    pub(crate) fn end_epoch(&mut self, slowest: Option<Duration>) {
        self.thresholds.end_epoch(slowest);
        // What is open goes by the new thresholds at once: after the path has changed, the old ones would cut it.
        let lossy = self.open.iter().filter(|(_, receiving)| receiving.lossy()).map(|(&message, _)| message);
        lossy.collect::<Vec<u32>>().into_iter().for_each(|message| self.set_times(message));
    }

    /// The CLOSE frame, unless its message's sender knows it.
    pub(crate) fn frame(&self, message: u32, part: u32) -> Option<Close> {
        self.close_notices.get(&message)?.frame(message, part)
    }

    /// The sender has this CLOSE frame.
    pub(crate) fn acknowledged(&mut self, message: u32, part: u32) {
        if self.close_notices.get_mut(&message).is_some_and(|notice| notice.acknowledged(part)) {
            self.close_notices.remove(&message);
        }
    }

    /// What is remembered of closed messages is more than any honest sender leaves behind.
    fn is_full(&self) -> bool {
        self.over.as_slice().len() >= MOST_HOLES || self.close_notices.len() >= MOST_UNACKNOWLEDGED
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
            if !self.open_messages.fits(total, &self.limit) || self.is_full() {
                return Err(BadPacket::TooMuch(total));
            }
            self.open_messages.add(total);
            self.open.insert(message, Receiving::new(now, round, total));
        }
        Ok(self.open.get_mut(&message))
    }

    /// Closes the message if it is time.
    fn judge(&mut self, now: Duration, message: u32, events: &mut VecDeque<Event>) {
        let Some(receiving) = self.open.get_mut(&message) else { return };
        let elapsed = now.saturating_sub(receiving.began);
        let limit = self.thresholds.limit(receiving.progress().total);
        let verdict = match (receiving.whole(), receiving.lossy()) {
            (true, _) => CloseDecision::Close,
            (false, false) => CloseDecision::Wait(None),
            // What has not been sent yet is not lost: before the first pass has ended only the limit counts.
            (false, true) if !receiving.passed && limit.is_none_or(|limit| elapsed < limit) => {
                CloseDecision::Wait(limit)
            }
            (false, true) => self.thresholds.decide(elapsed, receiving.progress()),
        };
        match verdict {
            CloseDecision::Close => self.close(elapsed, message, events),
            CloseDecision::Wait(until) => {
                let early = receiving.early.filter(|&early| early > now);
                let until = until.map(|until| receiving.began + until);
                receiving.check = early.into_iter().chain(until).min();
            }
        }
    }

    fn close(&mut self, elapsed: Duration, message: u32, events: &mut VecDeque<Event>) {
        let Some(receiving) = self.end(message) else { return };
        // A reliable message waits for what was lost: its time does not show how long a lossy one should wait.
        if receiving.lossy() {
            self.thresholds.note_closed(elapsed, receiving.progress().delivered, receiving.progress().total);
        }
        let Some(Open { round, tag, total, .. }) = receiving.announced else { return };
        let missing = receiving.placed.missing(total);
        let notice = CloseNotice::new(missing.clone());
        self.control_frames.extend(notice.unacknowledged().map(|part| ControlFrame::Close { message, part }));
        self.close_notices.insert(message, notice);
        events.push_back(Event::Received { message: MessageId(message), round, tag, total, missing });
    }

    /// Queues what the sender may not know.
    fn repeat_close(&mut self, message: u32) {
        let Some(notice) = self.close_notices.get(&message) else { return };
        for part in notice.unacknowledged() {
            let frame = ControlFrame::Close { message, part };
            if !self.control_frames.contains(&frame) {
                self.control_frames.push_back(frame);
            }
        }
    }

    /// Never opens it again; returns what it was if it was open.
    fn end(&mut self, message: u32) -> Option<Receiving> {
        self.over.insert(message..message + 1);
        let receiving = self.open.remove(&message)?;
        self.open_messages.remove(receiving.progress().total);
        Some(receiving)
    }

    /// Takes over what the thresholds know by now.
    fn set_times(&mut self, message: u32) {
        let Some(receiving) = self.open.get_mut(&message) else { return };
        let total = receiving.progress().total;
        let times = [self.thresholds.threshold(total), self.thresholds.limit(total)];
        receiving.early = times.into_iter().flatten().min().map(|at| receiving.began + at);
        receiving.check = receiving.early;
    }
}
