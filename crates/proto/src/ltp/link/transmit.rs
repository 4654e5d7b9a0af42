//! What leaves next.
//!
//! A packet's particulars go through many hands. What is written field by field and read as a whole right after, as a
//! struct is that a function takes or returns, makes the processor wait until all stores before it have reached the
//! cache, and so until the values of the packet before are copied: a third of a sender's time, as measured. So the
//! functions on the way of each packet are inlined (`#[inline(always)]`), and nothing is moved that can be referred to.

use std::time::Duration;

use super::tail::{Item, Weather, SMALL_PACKETS};
use super::{Link, MessageId};
use crate::ltp::frame::Frame;
use crate::ltp::packet::{DataHead, Header, Kind, RepairHead, BODY_HEAD_BYTES, HEADER_BYTES};
use crate::ltp::sent::{ControlFrame, Load};

/// A packet that is to leave now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// A stretch of a message. Several in a row are mostly neighbours of equal length.
    Data {
        /// Number of the packet.
        number: u64,
        /// The values must arrive.
        critical: bool,
        /// The first pass of the message ends with it, or has ended.
        last: bool,
        /// Nothing follows until it is acknowledged.
        prompt: bool,
        /// The number of the message.
        message: MessageId,
        /// The round of the message.
        round: u32,
        /// Where the values lie in it, in bytes.
        offset: u32,
        /// Its length, in bytes.
        total: u32,
        /// How many bytes of values.
        len: u32,
    },
    /// A packet of control frames.
    Control {
        /// Number of the packet.
        number: u64,
        /// Everything after the header.
        body: Vec<u8>,
    },
    /// A parity shard, which the message's code makes of its bytes.
    Repair {
        /// Number of the packet.
        number: u64,
        /// Nothing follows until it is acknowledged.
        prompt: bool,
        /// Which one, of which message.
        head: RepairHead,
    },
}

impl Transmit {
    /// The header of the packet; `link` is the number that the receiver chose.
    pub fn header(&self, link: u32) -> [u8; HEADER_BYTES] {
        let header = match *self {
            Transmit::Data { number, critical, last, prompt, .. } => {
                Header { kind: Kind::Data, critical, last, prompt, link, number }
            }
            Transmit::Control { number, .. } => {
                Header { kind: Kind::Control, critical: false, last: false, prompt: false, link, number }
            }
            Transmit::Repair { number, prompt, .. } => {
                Header { kind: Kind::Repair, critical: false, last: false, prompt, link, number }
            }
        };
        header.encode()
    }

    /// The message that it carries bytes of, or that they follow from; `None` of a CONTROL packet.
    pub fn message(&self) -> Option<MessageId> {
        match *self {
            Transmit::Data { message, .. } => Some(message),
            Transmit::Repair { head, .. } => Some(MessageId(head.message)),
            Transmit::Control { .. } => None,
        }
    }

    /// What stands between the header and the values, or the shard; `None` of a CONTROL packet.
    pub fn body_head(&self) -> Option<[u8; BODY_HEAD_BYTES]> {
        match *self {
            Transmit::Data { message, round, offset, total, .. } => {
                Some(DataHead { message: message.0, round, offset, total }.encode())
            }
            Transmit::Repair { head, .. } => Some(head.encode()),
            Transmit::Control { .. } => None,
        }
    }
}

impl Link {
    /// The next packet that may leave now.
    #[must_use]
    pub fn poll_transmit(&mut self, now: Duration) -> Option<Transmit> {
        // Before data is taken, so that the announcement of a message goes ahead of its bytes.
        while let Some(message) = self.outbox.begin() {
            self.control_frames.push_back(ControlFrame::Open(message));
        }
        let frames = !self.control_frames.is_empty() || !self.inbox.control_frames.is_empty();
        if frames || self.seen.due.is_some_and(|due| due <= now) {
            if let Some(control) = self.next_control(now, false) {
                return Some(control);
            }
        }
        if let data @ Some(_) = self.next_data(now) {
            return data;
        }
        self.next_parity(now).or_else(|| self.next_copy(now)).or_else(|| self.next_probe(now))
    }

    /// A packet of data may leave, as far as window and pacing are concerned.
    pub(super) fn may_send(&self, now: Duration) -> bool {
        self.credit > 0 || self.rate.may_send(now, self.log.in_flight)
    }

    /// Bytes of frames, or of values and what stands before them, that a packet takes.
    fn body_bytes(&self) -> u32 {
        self.search.size() - HEADER_BYTES as u32 - self.seal
    }

    fn next_data(&mut self, now: Duration) -> Option<Transmit> {
        if !self.outbox.ready() {
            // With the window full it is the path that limits, and not what there is to send.
            if self.log.in_flight < self.rate.window() {
                self.rate.idle(self.log.in_flight);
            }
            return None;
        }
        if !self.may_send(now) {
            return None;
        }
        let most = self.body_bytes() - BODY_HEAD_BYTES as u32;
        let cut = self.outbox.take(most, self.loss())?;
        self.credit = self.credit.saturating_sub(1);
        let (offset, len) = (cut.piece.range.start, cut.piece.range.end - cut.piece.range.start);
        let (message, critical, last, again) = (cut.message, cut.piece.critical, cut.last, cut.piece.again);
        let load = Load::Data { message, offset, len, critical, again };
        let small = cut.total <= SMALL_PACKETS.saturating_mul(most);
        if last || again || small {
            let (weather, head) = (self.weather(), (message, cut.round, cut.total));
            if again || small || !self.parity.push(now, head, most, &weather) {
                let copy = Load::Data { message, offset, len, critical, again: true };
                self.tail.push(now, Item::Data(copy), &weather);
            }
        }
        let number = self.push(now, BODY_HEAD_BYTES as u32 + len, load);
        // Nothing follows until an acknowledgement comes: it must not be held back for more packets.
        let prompt = !self.outbox.ready() || self.log.in_flight >= self.rate.window();
        let (message, round, total) = (MessageId(message), cut.round, cut.total);
        Some(Transmit::Data { number, critical, last, prompt, message, round, offset, total, len })
    }

    /// Parity of what has left, while nothing else is to leave.
    fn next_parity(&mut self, now: Duration) -> Option<Transmit> {
        if self.outbox.ready() || !self.parity.waits() || !self.may_send(now) {
            return None;
        }
        let (outbox, most) = (&self.outbox, self.body_bytes() - BODY_HEAD_BYTES as u32);
        // The path may have begun to drop larger packets.
        let wanted =
            |head: &RepairHead| u32::from(head.code.shard) <= most && outbox.head(head.message).is_some();
        let head = self.parity.take(now, wanted)?;
        let number = self.push(now, BODY_HEAD_BYTES as u32 + u32::from(head.code.shard), Load::Repair);
        Some(Transmit::Repair { number, prompt: !self.parity.waits(), head })
    }

    /// What left before, once more, while nothing else is to leave.
    fn next_copy(&mut self, now: Duration) -> Option<Transmit> {
        if self.outbox.ready() || self.tail.due().is_none_or(|due| due > now) || !self.may_send(now) {
            return None;
        }
        let weather = self.weather();
        let (outbox, inbox, most) = (&self.outbox, &self.inbox, self.body_bytes() - BODY_HEAD_BYTES as u32);
        let wanted = |item: &Item| match item {
            // The path may have begun to drop larger packets.
            Item::Data(Load::Data { len, .. }) if *len > most => false,
            Item::Data(load) => outbox.wants(load),
            Item::Frame(ControlFrame::Open(message)) => outbox.is_unannounced(*message),
            Item::Frame(ControlFrame::Close { message, part }) => inbox.frame(*message, *part).is_some(),
            Item::Frame(ControlFrame::Ping | ControlFrame::Cancel(_)) => false,
        };
        match self.tail.take(now, &weather, wanted)? {
            Item::Frame(frame) => {
                self.control_frames.push_back(frame);
                self.next_control(now, true)
            }
            Item::Data(load) => {
                let Load::Data { message, offset, len, critical, .. } = load else { return None };
                let (round, total) = self.outbox.head(message)?;
                let number = self.push(now, BODY_HEAD_BYTES as u32 + len, load);
                let message = MessageId(message);
                Some(Transmit::Data {
                    number,
                    critical,
                    last: true,
                    prompt: true,
                    message,
                    round,
                    offset,
                    total,
                    len,
                })
            }
        }
    }

    /// What the path has been like.
    fn weather(&self) -> Weather {
        let rtt = self.rate.rtt_smoothed().unwrap_or_default();
        let burst = self.rate.loss_burst().max(self.seen.lost_in_a_row());
        Weather { loss: self.loss(), burst, rtt }
    }

    /// The share of packets that the path has lost.
    fn loss(&self) -> f64 {
        self.rate.loss().max(self.seen.lost())
    }

    /// Frames that wait, as many as fit; `None` if nothing is left to say. `copy`: they have left before.
    fn next_control(&mut self, now: Duration, copy: bool) -> Option<Transmit> {
        let most = self.body_bytes() as usize;
        let mut body = Vec::with_capacity(64);
        if self.seen.due.is_some() {
            // Half of the packet stays for frames that must arrive.
            self.seen.write(now, most / 2, &mut body);
        }
        let mut control_frames = Vec::new();
        while let Some(note) =
            self.control_frames.pop_front().or_else(|| self.inbox.control_frames.pop_front())
        {
            let Some(frame) = self.frame(note) else { continue };
            let before = body.len();
            frame.encode(&mut body);
            if body.len() > most {
                body.truncate(before);
                self.control_frames.push_front(note);
                break;
            }
            control_frames.push(note);
        }
        if body.is_empty() {
            return None;
        }
        let load = if control_frames.is_empty() { Load::Nothing } else { Load::Control };
        if load == Load::Control {
            let weather = self.weather();
            let copied = |frame: &&ControlFrame| {
                !copy && matches!(frame, ControlFrame::Open(_) | ControlFrame::Close { .. })
            };
            for &frame in control_frames.iter().filter(copied) {
                self.tail.push(now, Item::Frame(frame), &weather);
            }
            self.log.attach(control_frames);
        }
        let number = self.push(now, body.len() as u32, load);
        Some(Transmit::Control { number, body })
    }

    fn frame(&self, note: ControlFrame) -> Option<Frame> {
        match note {
            ControlFrame::Ping => Some(Frame::Ping),
            ControlFrame::Open(message) => {
                self.outbox.open(message, self.rate.bandwidth().unwrap_or(0)).map(Frame::Open)
            }
            ControlFrame::Close { message, part } => self.inbox.frame(message, part).map(Frame::Close),
            ControlFrame::Cancel(message) => Some(Frame::Cancel(message)),
        }
    }

    /// A padded packet that tries a larger size, once the round trip is known.
    fn next_probe(&mut self, now: Duration) -> Option<Transmit> {
        if self.probe.is_some() || self.rate.rtt_min().is_none() || !self.may_send(now) {
            return None;
        }
        let size = self.search.probe(now)?;
        let mut body = Vec::with_capacity(size as usize);
        Frame::Ping.encode(&mut body);
        body.resize(size as usize - HEADER_BYTES - self.seal as usize, 0);
        self.probe = Some(size);
        let number = self.push(now, body.len() as u32, Load::Probe);
        Some(Transmit::Control { number, body })
    }

    /// Notes a packet with a body of so many bytes; returns its number.
    #[inline(always)] // why: above
    fn push(&mut self, now: Duration, body: u32, load: Load) -> u64 {
        let bytes = HEADER_BYTES as u32 + body + self.seal;
        let number = self.log.next();
        let (counted, mark) = match load {
            Load::Data { .. } | Load::Control | Load::Repair => {
                (bytes, Some(self.rate.sent(now, bytes, self.log.in_flight)))
            }
            // A size that is tried says nothing about the rate, and is mostly lost.
            Load::Probe | Load::Nothing => (0, None),
        };
        self.log.push(now, counted, mark, load);
        self.metrics.sent_packets += 1;
        self.metrics.sent_bytes += u64::from(bytes);
        number
    }
}
