//! The sender of one message.

use std::collections::BTreeMap;
use std::ops::Range;

use tweed_rng::Rng;

use super::frame::{Close, Open, CLOSE_RANGES, TAG_BYTES};
use super::packet::BadPacket;
use super::ranges::Ranges;

/// A message to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// A number of the caller, the same at both ends: a training step, say. Where the first pass begins depends on it.
    pub round: u32,
    /// The caller's words to the other side.
    pub tag: [u8; TAG_BYTES],
    /// Length of the message.
    pub bytes: u32,
    /// Bytes of one value, at least 1: no packet ends in the middle of one.
    pub value: u8,
    /// Ranges of bytes that must arrive, in any order. They are widened to the units at which packets are cut.
    pub critical: Vec<Range<u32>>,
    /// Values that are not critical may stay lost.
    pub lossy: bool,
    /// Of the messages that wait, the most urgent begins next.
    pub urgency: i32,
}

/// A stretch of a message that leaves in one packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) range: Range<u32>,
    pub(crate) critical: bool,
    /// It may have left before.
    pub(crate) again: bool,
}

/// What of one message has left, and what is to leave (again).
#[derive(Debug)]
pub(crate) struct Sending {
    what: Outgoing,
    /// Packets are cut at multiples of this.
    unit: u32,
    critical_bytes: u32,
    /// Critical, to be sent for the first time or again.
    critical: Ranges,
    /// What is to be sent for the first time.
    fresh: Ranges,
    /// Where the first pass goes on; it goes around.
    cursor: u32,
    /// Lost, to be sent again.
    again: Ranges,
    /// What has arrived of that which was sent more than once.
    arrived: Ranges,
    /// Whether something was lost.
    lost: bool,
    /// What left last was new.
    alternate: bool,
    /// The receiver knows what it is.
    announced: bool,
    /// How many parts the receiver's CLOSE has.
    expected: Option<u32>,
    /// What it has said so far.
    parts: BTreeMap<u32, Vec<Range<u32>>>,
}

/// Packets are cut at multiples of this, where values allow it: 16 bytes hold whole values of 1, 2, 4, 8 and 16.
pub(crate) const UNIT: u32 = 16;

impl Sending {
    /// `seed` and the round say where the first pass begins: what is sent last is what Early Close cuts, and that must
    /// not always be the same layers.
    pub(crate) fn new(mut what: Outgoing, seed: u64) -> Sending {
        let value = u32::from(what.value.max(1));
        let unit = if UNIT.is_multiple_of(value) { UNIT } else { value };
        let mut critical = Ranges::default();
        for range in what.critical.iter().filter(|range| !range.is_empty()) {
            let end = range.end.div_ceil(unit).saturating_mul(unit).min(what.bytes);
            critical.insert(range.start / unit * unit..end);
        }
        what.critical = critical.as_slice().to_vec();
        let mut fresh = Ranges::from(0..what.bytes);
        for range in &what.critical {
            fresh.remove(range.clone());
        }
        let places = u64::from(what.bytes / unit).max(1);
        let cursor = (Rng::new(seed ^ u64::from(what.round)).draw() % places) as u32 * unit;
        let critical_bytes = critical.len();
        Sending {
            what,
            unit,
            critical_bytes,
            critical,
            fresh,
            cursor,
            again: Ranges::default(),
            arrived: Ranges::default(),
            lost: false,
            alternate: false,
            announced: false,
            expected: None,
            parts: BTreeMap::new(),
        }
    }

    /// What announces it to the receiver.
    pub(crate) fn open(&self, message: u32, pace: u64) -> Open {
        let Outgoing { round, tag, bytes: total, lossy, .. } = self.what;
        Open { message, round, total, critical: self.critical_bytes, lossy, pace, tag }
    }

    pub(crate) fn round(&self) -> u32 {
        self.what.round
    }

    pub(crate) fn total(&self) -> u32 {
        self.what.bytes
    }

    /// How early it begins among messages that wait.
    pub(crate) fn urgency(&self) -> i32 {
        self.what.urgency
    }

    /// Not everything has left for the first time.
    pub(crate) fn first_pass(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Something critical is to leave.
    pub(crate) fn urgent(&self) -> bool {
        !self.critical.is_empty()
    }

    /// Something is to leave that is not critical.
    pub(crate) fn ready(&self) -> bool {
        !self.fresh.is_empty() || !self.again.is_empty()
    }

    /// The receiver closes it without what is lost: `bearable` of it at most.
    pub(crate) fn bears(&self, loss: f64, bearable: f64) -> bool {
        self.what.lossy && loss <= bearable
    }

    /// What leaves next, at most `most` bytes: critical, then for the first time, then again; or, with `soon`, again and
    /// for the first time in turns, so that a path that always swallows the same holds nothing else up.
    #[inline(always)] // why: `link/transmit.rs`
    pub(crate) fn take(&mut self, most: u32, soon: bool) -> Option<Piece> {
        let most = (most / self.unit * self.unit).max(self.unit);
        if let Some(range) = self.critical.take(0, most) {
            return Some(Piece { range, critical: true, again: self.lost });
        }
        if soon && self.alternate || self.fresh.is_empty() {
            self.alternate = false;
            if let Some(range) = self.again.take(0, most) {
                return Some(Piece { range, critical: false, again: true });
            }
        }
        if self.fresh.len() + self.critical_bytes == self.what.bytes {
            // The pass begins: cut as shards of parity are, a packet that is lost is one of them.
            self.cursor = self.cursor / most * most;
        }
        let range = self.fresh.take(self.cursor, most)?;
        self.cursor = range.end;
        self.alternate = true;
        Some(Piece { range, critical: false, again: false })
    }

    /// A packet with this was lost.
    pub(crate) fn requeue(&mut self, piece: Piece) {
        if self.expected.is_some() {
            return;
        }
        self.lost = true;
        let queue = if piece.critical { &mut self.critical } else { &mut self.again };
        queue.insert(piece.range.clone());
        // Another packet with the same bytes may have been faster.
        for arrived in self.arrived.within(&piece.range) {
            queue.remove(arrived);
        }
    }

    /// A packet with this has arrived, and others with the same bytes may be under way or wait.
    pub(crate) fn arrived(&mut self, piece: Piece) {
        self.arrived.insert(piece.range.clone());
        let queue = if piece.critical { &mut self.critical } else { &mut self.again };
        queue.remove(piece.range);
    }

    /// Whether these bytes are wanted, as far as is known.
    pub(crate) fn wants(&self, range: &Range<u32>) -> bool {
        self.expected.is_none() && !self.arrived.contains(range.start)
    }

    /// The receiver has its announcement.
    pub(crate) fn announced(&mut self) {
        self.announced = true;
    }

    /// The receiver may not know what it is.
    pub(crate) fn is_unannounced(&self) -> bool {
        !self.announced && self.expected.is_none()
    }

    /// The receiver has closed it: nothing more of it leaves. `Some` with all missing ranges once all parts are there.
    pub(crate) fn close(&mut self, close: Close) -> Result<Option<Vec<Range<u32>>>, BadPacket> {
        let Close { message, part, parts, missing } = close;
        // What arrived lies between any two ranges, at least one unit of it.
        let most = self.what.bytes / self.unit / 2 / CLOSE_RANGES as u32 + 1;
        let as_before = self.expected.is_none_or(|expected| expected == parts);
        if parts > most || !as_before || !self.may_miss(&missing) {
            return Err(BadPacket::Contradiction(message));
        }
        self.expected = Some(parts);
        self.critical.clear();
        self.fresh.clear();
        self.again.clear();
        self.parts.insert(part, missing);
        if (self.parts.len() as u32) < parts {
            return Ok(None);
        }
        let missing: Vec<Range<u32>> = std::mem::take(&mut self.parts).into_values().flatten().collect();
        match missing.windows(2).all(|pair| pair[0].end < pair[1].start) {
            true => Ok(Some(missing)),
            false => Err(BadPacket::Ranges),
        }
    }

    /// The receiver may close the message without these bytes; the ranges are in order.
    fn may_miss(&self, missing: &[Range<u32>]) -> bool {
        let vital = |range: &Range<u32>| {
            self.what.critical.iter().any(|critical| critical.start < range.end && range.start < critical.end)
        };
        let inside = missing.last().is_none_or(|last| last.end <= self.what.bytes);
        inside && (self.what.lossy || missing.is_empty()) && !missing.iter().any(vital)
    }
}
