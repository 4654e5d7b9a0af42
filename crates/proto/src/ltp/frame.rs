//! What CONTROL packets are made of.

use std::ops::{Range, RangeInclusive};

use super::packet::BadPacket;

/// Length of the tag that a message carries: the caller's words to the other side's caller.
pub const TAG_BYTES: usize = 48;
/// No CLOSE frame lists more ranges; a longer list comes in parts.
pub const CLOSE_RANGES: usize = 128;
/// No ACK frame lists more ranges.
pub const ACK_RANGES: usize = 256;

/// What announces a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// The number of the message.
    pub message: u32,
    /// The round that the sender gave it.
    pub round: u32,
    /// Its length in bytes.
    pub total: u32,
    /// How many of its bytes are critical: they come in DATA packets that say so.
    pub critical: u32,
    /// Normal bytes of it may stay lost.
    pub lossy: bool,
    /// The rate in bytes per second at which the sender expects to send it; 0: unknown.
    pub pace: u64,
    /// What the caller says with it.
    pub tag: [u8; TAG_BYTES],
}

/// One part of what says that a message is closed, and what of it is missing for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    /// The number of the message.
    pub message: u32,
    /// Which part this is, from 0.
    pub part: u32,
    /// How many parts there are, at least 1.
    pub parts: u32,
    /// Missing ranges of bytes, ascending, at most [`CLOSE_RANGES`].
    pub missing: Vec<Range<u32>>,
}

/// Which packets have arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// How long ago the newest of them arrived, in microseconds.
    pub delay_us: u32,
    /// Their numbers, newest first; at least one range, at most [`ACK_RANGES`].
    pub ranges: Vec<RangeInclusive<u64>>,
}

/// One frame of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Asks for an acknowledgement.
    Ping,
    /// Which packets have arrived.
    Ack(Ack),
    /// A message begins here.
    Open(Open),
    /// A message is closed by its receiver.
    Close(Close),
    /// A message is given up by its sender.
    Cancel(u32),
}

/// The longest a number below 2^62 gets, see [`put_varint`].
const VARINT_BYTES: usize = 9;

const PADDING: u8 = 0;
const PING: u8 = 1;
const ACK: u8 = 2;
const OPEN: u8 = 3;
const CLOSE: u8 = 4;
const CANCEL: u8 = 5;

impl Frame {
    /// The packet that carries it is to be acknowledged.
    pub fn elicits(&self) -> bool {
        !matches!(self, Frame::Ack(_))
    }

    /// Appends it to the body of a CONTROL packet.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Frame::Ping => out.push(PING),
            Frame::Ack(ack) => encode_ack(ack.delay_us, ack.ranges.iter().cloned(), usize::MAX, out),
            Frame::Open(open) => encode_open(open, out),
            Frame::Close(close) => encode_close(close, out),
            Frame::Cancel(message) => {
                out.push(CANCEL);
                put(out, [*message]);
            }
        }
    }

    /// Reads all frames of a body. Any error refuses the whole packet.
    pub fn decode(body: &[u8]) -> Result<Vec<Frame>, BadPacket> {
        let mut reader = Reader(body);
        let mut frames = Vec::new();
        while let Some((&kind, rest)) = reader.0.split_first() {
            reader.0 = rest;
            match kind {
                PADDING => reader.0 = &rest[rest.iter().take_while(|&&byte| byte == PADDING).count()..],
                PING => frames.push(Frame::Ping),
                ACK => frames.push(Frame::Ack(reader.ack()?)),
                OPEN => frames.push(Frame::Open(reader.open()?)),
                CLOSE => frames.push(Frame::Close(reader.close()?)),
                CANCEL => frames.push(Frame::Cancel(reader.u32()?)),
                other => return Err(BadPacket::Frame(other)),
            }
        }
        Ok(frames)
    }
}

/// Appends an ACK frame. `ranges` newest first, as in [`Ack`]; those that do not fit into a body of `most` bytes are
/// left out.
pub(crate) fn encode_ack(
    delay_us: u32,
    ranges: impl Iterator<Item = RangeInclusive<u64>>,
    most: usize,
    out: &mut Vec<u8>,
) {
    out.push(ACK);
    put(out, [delay_us]);
    let count_at = out.len();
    out.extend_from_slice(&[0; 2]);
    let (mut below, mut count) = (None, 0_u16);
    for range in ranges.take(ACK_RANGES) {
        if out.len() + 2 * VARINT_BYTES > most && count > 0 {
            break;
        }
        match below {
            None => out.extend_from_slice(&range.end().to_le_bytes()),
            // Two ranges are at least one number apart.
            Some(below) => put_varint(out, below - range.end() - 2),
        }
        put_varint(out, range.end() - range.start());
        below = Some(*range.start());
        count += 1;
    }
    out[count_at..count_at + 2].copy_from_slice(&count.to_le_bytes());
}

fn encode_open(open: &Open, out: &mut Vec<u8>) {
    out.push(OPEN);
    put(out, [open.message, open.round, open.total, open.critical]);
    out.push(open.lossy.into());
    out.extend_from_slice(&open.pace.to_le_bytes());
    out.extend_from_slice(&open.tag);
}

fn encode_close(close: &Close, out: &mut Vec<u8>) {
    out.push(CLOSE);
    put(out, [close.message, close.part, close.parts]);
    out.push(close.missing.len() as u8);
    for range in &close.missing {
        put(out, [range.start, range.end]);
    }
}

fn put<const N: usize>(out: &mut Vec<u8>, values: [u32; N]) {
    for value in values {
        out.extend_from_slice(&value.to_le_bytes());
    }
}

/// Seven bits a byte, lowest first; the top bit says that more follow (LEB128).
fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], BadPacket> {
        let (bytes, rest) = self.0.split_first_chunk::<N>().ok_or(BadPacket::Short)?;
        self.0 = rest;
        Ok(*bytes)
    }

    fn u8(&mut self) -> Result<u8, BadPacket> {
        Ok(self.take::<1>()?[0])
    }

    fn u32(&mut self) -> Result<u32, BadPacket> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn u64(&mut self) -> Result<u64, BadPacket> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    fn varint(&mut self) -> Result<u64, BadPacket> {
        let mut value = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(BadPacket::Ranges)
    }

    fn ack(&mut self) -> Result<Ack, BadPacket> {
        let delay_us = self.u32()?;
        let count = usize::from(u16::from_le_bytes(self.take()?));
        if count == 0 || count > ACK_RANGES {
            return Err(BadPacket::Ranges);
        }
        let mut end = self.u64()?;
        let mut ranges = Vec::with_capacity(count);
        for at in 0..count {
            if at > 0 {
                let gap = self.varint()? + 2;
                end = end.checked_sub(gap).ok_or(BadPacket::Ranges)?;
            }
            let start = end.checked_sub(self.varint()?).ok_or(BadPacket::Ranges)?;
            ranges.push(start..=end);
            end = start;
        }
        Ok(Ack { delay_us, ranges })
    }

    fn open(&mut self) -> Result<Open, BadPacket> {
        let [message, round, total, critical] = [self.u32()?, self.u32()?, self.u32()?, self.u32()?];
        let lossy = match self.u8()? {
            0 => false,
            1 => true,
            _ => return Err(BadPacket::Flags),
        };
        if critical > total {
            return Err(BadPacket::Bounds);
        }
        Ok(Open { message, round, total, critical, lossy, pace: self.u64()?, tag: self.take()? })
    }

    fn close(&mut self) -> Result<Close, BadPacket> {
        let [message, part, parts] = [self.u32()?, self.u32()?, self.u32()?];
        let count = usize::from(self.u8()?);
        if part >= parts || count > CLOSE_RANGES {
            return Err(BadPacket::Ranges);
        }
        let mut missing: Vec<Range<u32>> = Vec::with_capacity(count);
        for _ in 0..count {
            let range = self.u32()?..self.u32()?;
            if range.is_empty() || missing.last().is_some_and(|last| last.end >= range.start) {
                return Err(BadPacket::Ranges);
            }
            missing.push(range);
        }
        Ok(Close { message, part, parts, missing })
    }
}
