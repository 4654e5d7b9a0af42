//! The log of packets that were sent: what became of them (RFC 9002, with the names used there).
//!
//! A packet is acknowledged, or deemed lost because packets sent later were acknowledged. Lost packets are not sent
//! again as they were: what they carried is queued anew, in a new packet with a new number.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::time::Duration;

use super::packet::BadPacket;
use super::rate::Mark;

/// What a packet carried that must not be lost with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// Bytes of a message. `again`: another packet with them has left before.
    Data { message: u32, offset: u32, len: u32, critical: bool, again: bool },
    /// Control frames; see [`ControlFrame`].
    Control,
    /// Parity of a message.
    Repair,
    /// A padded packet that tries a size.
    Probe,
    /// Nothing that anybody waits for.
    Nothing,
}

/// A frame that must arrive. What it says is looked up again when it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ControlFrame {
    Ping,
    Open(u32),
    Close { message: u32, part: u32 },
    Cancel(u32),
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    sent: Duration,
    bytes: u32,
    /// None of a packet that the rate control does not know of.
    mark: Option<Mark>,
    load: Load,
    /// Neither acknowledged nor lost.
    open: bool,
}

/// What was found to be lost may yet turn up.
#[derive(Clone, Copy, Debug)]
struct Lost {
    at: Duration,
    load: Load,
}

/// What an acknowledgement or a timer settled. Kept and filled anew, so that it takes no memory each time.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    /// A packet was newly acknowledged.
    pub(crate) anything: bool,
    pub(crate) acked_bytes: u64,
    /// The mark of the newest packet acknowledged.
    pub(crate) newest: Option<Mark>,
    /// When the largest packet number acknowledged was sent, if it is newly so.
    pub(crate) largest_sent: Option<Duration>,
    /// What became of the padded packet that tries a size, if that is known now.
    pub(crate) probe: Option<bool>,
    /// Bytes of the largest packet acknowledged.
    pub(crate) largest_bytes: u32,
    /// Frames that have arrived.
    pub(crate) control_frames: Vec<ControlFrame>,
    /// Data that was sent more than once and has arrived.
    pub(crate) again: Vec<Load>,
    /// Data that was deemed lost and has arrived after all.
    pub(crate) late: Vec<Load>,
    /// What is lost, with the packets' bytes, but padded packets.
    pub(crate) lost: Vec<(Load, u32)>,
    /// How many bursts the lost packets make.
    pub(crate) lost_bursts: u64,
    /// Frames that are lost.
    pub(crate) lost_control_frames: Vec<ControlFrame>,
}

impl Settled {
    pub(crate) fn clear(&mut self) {
        self.control_frames.clear();
        self.again.clear();
        self.late.clear();
        self.lost.clear();
        self.lost_control_frames.clear();
        (self.acked_bytes, self.largest_bytes, self.lost_bursts) = (0, 0, 0);
        (self.newest, self.largest_sent, self.probe, self.anything) = (None, None, None, false);
    }
}

/// Times by which losses are judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// A packet sent this much before one that was acknowledged is lost.
    pub(crate) loss: Duration,
    /// For so long a late acknowledgement of a lost packet is still of use.
    pub(crate) memory: Duration,
}

/// The packets under way.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// Number of the oldest packet in `packets`.
    base: u64,
    /// The packets by number, without gaps; the first is open.
    packets: VecDeque<Packet>,
    control_frames: BTreeMap<u64, Vec<ControlFrame>>,
    lost: BTreeMap<u64, Lost>,
    /// The last packet deemed lost.
    last_lost: Option<u64>,
    /// Bytes that were sent, are to be acknowledged and are neither acknowledged nor lost.
    pub(crate) in_flight: u64,
    /// Packets that were sent, are to be acknowledged and are neither acknowledged nor lost.
    pub(crate) waiting: usize,
    largest_acked: Option<u64>,
    /// When a packet was sent last that is to be acknowledged.
    pub(crate) last_sent: Duration,
    /// When a packet will be deemed lost by time.
    pub(crate) loss_time: Option<Duration>,
    /// How many packets sent later must be acknowledged before one is lost; grows where the network reorders.
    threshold: u64,
}

/// The value of RFC 9002, 6.1.1.
const PACKET_THRESHOLD: u64 = 3;
/// A network that reorders over more packets is left to the time threshold.
const MOST_REORDERED: u64 = 1000;

impl Log {
    pub(crate) fn new() -> Log {
        Log { threshold: PACKET_THRESHOLD, ..Log::default() }
    }

    /// The number of the next packet.
    pub(crate) fn next(&self) -> u64 {
        self.base + self.packets.len() as u64
    }

    /// A packet leaves now; it gets the number [`Log::next`]. `bytes` and `mark` are what the rate control knows of.
    #[inline(always)] // why: `link/transmit.rs`
    pub(crate) fn push(&mut self, now: Duration, bytes: u32, mark: Option<Mark>, load: Load) {
        let open = load != Load::Nothing;
        if open {
            self.in_flight += u64::from(bytes);
            self.waiting += 1;
            self.last_sent = now;
        }
        self.packets.push_back(Packet { sent: now, bytes, mark, load, open });
        if !open {
            // The first packet of the log is an open one, and nobody acknowledges this.
            self.forget_settled();
        }
    }

    /// The packet that leaves now carries these frames. To be called before [`Log::push`].
    pub(crate) fn attach(&mut self, control_frames: Vec<ControlFrame>) {
        self.control_frames.insert(self.next(), control_frames);
    }

    /// The peer has these packets; ranges newest first.
    pub(crate) fn acked(
        &mut self,
        ranges: &[RangeInclusive<u64>],
        settled: &mut Settled,
    ) -> Result<(), BadPacket> {
        let largest = ranges.first().map_or(0, |range| *range.end());
        if largest >= self.next() {
            return Err(BadPacket::NeverSent(largest));
        }
        for range in ranges {
            // A peer's range may begin before all that is remembered: only what is still in the log is looked at.
            self.take_late(range.clone(), settled);
            for number in (*range.start().max(&self.base)..range.end() + 1).rev() {
                self.take(number, number == largest, settled);
            }
        }
        self.largest_acked = self.largest_acked.max(Some(largest));
        Ok(())
    }

    /// Finds what is lost by now. To be called after [`Log::acked`], and at [`Log::loss_time`].
    pub(crate) fn find_lost(&mut self, now: Duration, patience: Patience, settled: &mut Settled) {
        self.loss_time = None;
        let Some(largest) = self.largest_acked else { return };
        let behind = (largest + 1).saturating_sub(self.base).min(self.packets.len() as u64);
        for at in 0..behind as usize {
            let packet = &self.packets[at];
            if !packet.open {
                continue;
            }
            let due = packet.sent + patience.loss;
            if due > now && self.base + at as u64 + self.threshold > largest {
                // What follows was sent later.
                self.loss_time = Some(due);
                break;
            }
            self.lose(now, at, settled);
        }
        self.forget_settled();
        while self.lost.first_key_value().is_some_and(|(_, lost)| lost.at + patience.memory < now) {
            self.lost.pop_first();
        }
    }

    /// Nothing was heard for too long: gives up the newest packets under way, at most so many, so that what they
    /// carried can be sent again at once.
    pub(crate) fn give_up_newest(&mut self, now: Duration, most: u32, settled: &mut Settled) {
        for _ in 0..most {
            let Some(at) = self.packets.iter().rposition(|packet| packet.open) else { break };
            self.lose(now, at, settled);
            self.forget_settled();
        }
    }

    fn take(&mut self, number: u64, largest: bool, settled: &mut Settled) {
        let packet = &mut self.packets[(number - self.base) as usize];
        if !std::mem::take(&mut packet.open) {
            return;
        }
        self.waiting -= 1;
        settled.anything = true;
        settled.acked_bytes += u64::from(packet.bytes);
        settled.largest_bytes = settled.largest_bytes.max(packet.bytes);
        self.in_flight -= u64::from(packet.bytes);
        // Numbers come newest first.
        settled.newest = settled.newest.or(packet.mark);
        if largest {
            settled.largest_sent = Some(packet.sent);
        }
        match packet.load {
            Load::Control => {
                settled.control_frames.extend(self.control_frames.remove(&number).unwrap_or_default())
            }
            Load::Probe => settled.probe = Some(true),
            Load::Data { again: true, .. } => settled.again.push(packet.load),
            Load::Data { .. } | Load::Repair | Load::Nothing => {}
        }
    }

    /// A lost packet that has arrived: the network reorders more than we thought.
    fn take_late(&mut self, numbers: RangeInclusive<u64>, settled: &mut Settled) {
        while let Some((&number, lost)) = self.lost.range(numbers.clone()).next() {
            settled.late.push(lost.load);
            self.lost.remove(&number);
            let distance = self.largest_acked.unwrap_or(0).saturating_sub(number);
            self.threshold = self.threshold.max(distance + 1).min(MOST_REORDERED);
        }
    }

    fn lose(&mut self, now: Duration, at: usize, settled: &mut Settled) {
        let number = self.base + at as u64;
        let packet = &mut self.packets[at];
        packet.open = false;
        self.waiting -= 1;
        self.in_flight -= u64::from(packet.bytes);
        settled.lost_bursts += u64::from(self.last_lost != number.checked_sub(1));
        self.last_lost = Some(number);
        match packet.load {
            Load::Control => {
                settled.lost_control_frames.extend(self.control_frames.remove(&number).unwrap_or_default())
            }
            Load::Probe => settled.probe = Some(false),
            load => drop(self.lost.insert(number, Lost { at: now, load })),
        }
        if !matches!(packet.load, Load::Probe) {
            settled.lost.push((packet.load, packet.bytes));
        }
    }

    fn forget_settled(&mut self) {
        while self.packets.front().is_some_and(|packet| !packet.open) {
            self.packets.pop_front();
            self.base += 1;
        }
    }
}
