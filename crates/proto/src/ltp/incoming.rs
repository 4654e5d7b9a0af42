//! The receiver of one message.

use std::ops::Range;
use std::time::Duration;

use super::close::Progress;
use super::frame::{Close, Open, CLOSE_RANGES};
use super::packet::{BadPacket, DataHead, Header, RepairHead};
use super::ranges::Ranges;
use super::repair::{Parity, Repair};

/// What has arrived of one open message.
#[derive(Debug, Default)]
pub(crate) struct Receiving {
    round: u32,
    total: u32,
    /// When its first packet arrived.
    pub(crate) began: Duration,
    pub(crate) announced: Option<Open>,
    pub(crate) placed: Ranges,
    /// What came as critical, a part of `placed`.
    critical: Ranges,
    /// What of it has come in parity shards.
    parity: Option<Parity>,
    /// The sender has sent everything once.
    pub(crate) passed: bool,
    /// From when on any packet may close it, and not only the last: the threshold, or the limit if that is earlier.
    pub(crate) early: Option<Duration>,
    /// When to look whether it is to be closed, if no packet comes.
    pub(crate) check: Option<Duration>,
}

impl Receiving {
    pub(crate) fn new(now: Duration, round: u32, total: u32) -> Receiving {
        Receiving { round, total, began: now, ..Receiving::default() }
    }

    /// An OPEN frame. True if it is the first.
    pub(crate) fn announce(&mut self, open: Open) -> Result<bool, BadPacket> {
        let mut same = self.announced.unwrap_or(open);
        // The sender writes its latest estimate each time that it announces the message.
        same.pace = open.pace;
        if (open.round, open.total) != (self.round, self.total) || same != open {
            return Err(BadPacket::Contradiction(open.message));
        }
        Ok(self.announced.replace(open).is_none())
    }

    /// A DATA packet with `len` bytes of values.
    pub(crate) fn place(&mut self, header: &Header, head: &DataHead, len: u32) -> Result<(), BadPacket> {
        if (head.round, head.total) != (self.round, self.total) {
            return Err(BadPacket::Contradiction(head.message));
        }
        self.placed.insert(head.offset..head.offset + len);
        self.passed |= header.last;
        if header.critical {
            self.critical.insert(head.offset..head.offset + len);
        }
        Ok(())
    }

    /// Keeps what a REPAIR packet brings.
    pub(crate) fn keep(&mut self, head: &RepairHead, shard: &[u8]) -> Result<(), BadPacket> {
        if (head.round, head.code.total) != (self.round, self.total) {
            return Err(BadPacket::Contradiction(head.message));
        }
        // It follows the first pass.
        self.passed = true;
        self.parity.get_or_insert_with(|| Parity::new(head.code)).keep(head, shard)
    }

    /// What it lacks, if that follows from what is there; from now on it counts as placed.
    pub(crate) fn restore(&mut self) -> Option<Repair> {
        let repair = self.parity.as_mut()?.suffices(&self.placed)?;
        self.placed.insert(0..self.total);
        self.critical.insert(0..self.total);
        Some(repair)
    }

    pub(crate) fn lossy(&self) -> bool {
        self.announced.is_some_and(|open| open.lossy)
    }

    pub(crate) fn progress(&self) -> Progress {
        let critical_complete = self.announced.is_some_and(|open| self.critical.len() >= open.critical);
        Progress { delivered: self.placed.len(), total: self.total, critical_complete }
    }

    /// All of it is there, and announced.
    pub(crate) fn whole(&self) -> bool {
        self.announced.is_some() && self.placed.len() == self.total
    }
}

/// What the sender does not know yet of a closed message.
#[derive(Debug)]
pub(crate) struct CloseNotice {
    missing: Vec<Range<u32>>,
    /// Which parts have arrived.
    received: Vec<bool>,
}

impl CloseNotice {
    pub(crate) fn new(missing: Vec<Range<u32>>) -> CloseNotice {
        let parts = missing.len().div_ceil(CLOSE_RANGES).max(1);
        CloseNotice { missing, received: vec![false; parts] }
    }

    /// Parts that the sender may not have.
    pub(crate) fn unacknowledged(&self) -> impl Iterator<Item = u32> + '_ {
        (0..).zip(&self.received).filter(|(_, received)| !**received).map(|(part, _)| part)
    }

    /// The sender has this part. True if it has all.
    pub(crate) fn acknowledged(&mut self, part: u32) -> bool {
        self.received[part as usize] = true;
        self.received.iter().all(|&received| received)
    }

    /// The frame, unless the sender has it.
    pub(crate) fn frame(&self, message: u32, part: u32) -> Option<Close> {
        if self.received[part as usize] {
            return None;
        }
        let missing = self.missing.chunks(CLOSE_RANGES).nth(part as usize).unwrap_or_default().to_vec();
        Some(Close { message, part, parts: self.received.len() as u32, missing })
    }
}
