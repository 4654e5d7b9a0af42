//! What a packet begins with, and why one is refused.

use thiserror::Error;

use super::repair::{Code, MOST_SHARDS};

/// Version of the wire format, in the upper half of a packet's first byte.
pub const VERSION: u8 = 2;
/// Length of [`Header`] on the wire.
pub const HEADER_BYTES: usize = 16;
/// Length of what stands before the values in the body of a DATA packet, and before the shard in that of REPAIR.
pub const BODY_HEAD_BYTES: usize = 16;

/// What the body of a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A stretch of one message.
    Data,
    /// A packet of control frames.
    Control,
    /// A parity shard of one message.
    Repair,
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Kind::Data => 1,
            Kind::Control => 2,
            Kind::Repair => 3,
        }
    }
}

/// The first 16 bytes of every packet. They travel in the clear; sealing authenticates them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the body is.
    pub kind: Kind,
    /// The values in it must arrive. Only DATA.
    pub critical: bool,
    /// The first pass of its message ends with it, or has ended: what is missing now was lost. Only DATA.
    pub last: bool,
    /// The sender has nothing more to send, or may not: it is to be acknowledged at once.
    pub prompt: bool,
    /// Which link of the receiver it belongs to; the receiver chose the number.
    pub link: u32,
    /// Counts up and is never used again: the nonce of sealing.
    pub number: u64,
}

/// Packet numbers stay below: a sender does not come so far, and sums with them cannot overflow.
const NUMBERS: u64 = 1 << 62;

const CRITICAL: u8 = 1;
const PROMPT: u8 = 2;
const LAST: u8 = 4;

impl Header {
    /// The header as it stands on the wire.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0] = VERSION << 4 | self.kind.code();
        let flags = [(self.critical, CRITICAL), (self.prompt, PROMPT), (self.last, LAST)];
        out[1] = flags.into_iter().filter(|(set, _)| *set).map(|(_, bit)| bit).sum();
        out[4..8].copy_from_slice(&self.link.to_le_bytes());
        out[8..].copy_from_slice(&self.number.to_le_bytes());
        out
    }

    /// Reads the beginning of `packet`.
    pub fn decode(packet: &[u8]) -> Result<Header, BadPacket> {
        let bytes = packet.first_chunk::<HEADER_BYTES>().ok_or(BadPacket::Short)?;
        let kind = match (bytes[0] >> 4, bytes[0] & 15) {
            (VERSION, 1) => Kind::Data,
            (VERSION, 2) => Kind::Control,
            (VERSION, 3) => Kind::Repair,
            (VERSION, _) => return Err(BadPacket::Kind(bytes[0] & 15)),
            (other, _) => return Err(BadPacket::Version(other)),
        };
        let allowed = if kind == Kind::Data { CRITICAL | PROMPT | LAST } else { PROMPT };
        if bytes[1] & !allowed != 0 || bytes[2..4] != [0, 0] {
            return Err(BadPacket::Flags);
        }
        let (link, number) = (word(bytes, 4), u64::from(word(bytes, 8)) | u64::from(word(bytes, 12)) << 32);
        if number >= NUMBERS {
            return Err(BadPacket::Number);
        }
        let flag = |bit| bytes[1] & bit != 0;
        Ok(Header { kind, critical: flag(CRITICAL), prompt: flag(PROMPT), last: flag(LAST), link, number })
    }
}

/// What stands before the values of a DATA packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHead {
    /// The message it belongs to.
    pub message: u32,
    /// The round that the sender gave the message.
    pub round: u32,
    /// Where the values begin in the message, in bytes.
    pub offset: u32,
    /// Length of the whole message, in bytes.
    pub total: u32,
}

impl DataHead {
    /// The head as it stands on the wire.
    pub fn encode(&self) -> [u8; BODY_HEAD_BYTES] {
        let mut out = [0; BODY_HEAD_BYTES];
        for (at, value) in [self.message, self.round, self.offset, self.total].into_iter().enumerate() {
            out[4 * at..4 * at + 4].copy_from_slice(&value.to_le_bytes());
        }
        out
    }

    /// Reads the body of a DATA packet: where its values lie in the message, and how many bytes they are.
    pub fn decode(body: &[u8]) -> Result<(DataHead, u32), BadPacket> {
        let bytes = body.first_chunk::<BODY_HEAD_BYTES>().ok_or(BadPacket::Short)?;
        let head = DataHead {
            message: word(bytes, 0),
            round: word(bytes, 4),
            offset: word(bytes, 8),
            total: word(bytes, 12),
        };
        let len = u32::try_from(body.len() - BODY_HEAD_BYTES).map_err(|_| BadPacket::Bounds)?;
        match head.offset.checked_add(len) {
            Some(end) if end <= head.total && len > 0 => Ok((head, len)),
            _ => Err(BadPacket::Bounds),
        }
    }
}

/// What stands before the shard in a REPAIR packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairHead {
    /// The message it belongs to.
    pub message: u32,
    /// The round that the sender gave the message.
    pub round: u32,
    /// How the message is coded.
    pub code: Code,
    /// Which of the parity shards it is.
    pub index: u8,
}

impl RepairHead {
    /// The head as it stands on the wire.
    pub fn encode(&self) -> [u8; BODY_HEAD_BYTES] {
        let mut out = [0; BODY_HEAD_BYTES];
        let Code { total, shard, parity } = self.code;
        let rest = u32::from(shard) | u32::from(parity) << 16 | u32::from(self.index) << 24;
        for (at, value) in [self.message, self.round, total, rest].into_iter().enumerate() {
            out[4 * at..4 * at + 4].copy_from_slice(&value.to_le_bytes());
        }
        out
    }

    /// Reads the body of a REPAIR packet; what follows is the shard. Refuses codes that there are not, or that would
    /// take more memory than the message.
    pub fn decode(body: &[u8]) -> Result<RepairHead, BadPacket> {
        let bytes = body.first_chunk::<BODY_HEAD_BYTES>().ok_or(BadPacket::Short)?;
        let rest = word(bytes, 12);
        let code = Code { total: word(bytes, 8), shard: rest as u16, parity: (rest >> 16) as u8 };
        let head =
            RepairHead { message: word(bytes, 0), round: word(bytes, 4), code, index: (rest >> 24) as u8 };
        let whole = body.len() - BODY_HEAD_BYTES == usize::from(code.shard);
        let even = code.shard > 0 && code.shard.is_multiple_of(2);
        let fits = whole && even && code.total > 0 && head.index < code.parity;
        match fits && code.shards() <= MOST_SHARDS && u32::from(code.parity) <= code.shards() {
            true => Ok(head),
            false => Err(BadPacket::Code),
        }
    }
}

fn word(bytes: &[u8; 16], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Why a packet is refused. Of one that was authenticated it means that the peer breaks the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadPacket {
    /// It ends in the middle of something.
    #[error("the packet ends too early")]
    Short,
    /// Another version of the protocol.
    #[error("the packet is of version {0} of the protocol, and this side speaks {VERSION}")]
    Version(u8),
    /// Neither DATA nor CONTROL nor REPAIR.
    #[error("{0} is no kind of packet")]
    Kind(u8),
    /// Bits that must be zero are not.
    #[error("bits are set in the header that have no meaning")]
    Flags,
    /// No sender comes so far.
    #[error("the packet's number is too large to be true")]
    Number,
    /// There is no such frame.
    #[error("{0} is no type of frame")]
    Frame(u8),
    /// A stretch of a message reaches beyond its end, or is empty.
    #[error("a stretch of a message is empty or reaches beyond its end")]
    Bounds,
    /// A message cannot be coded like that.
    #[error("a message is coded in a way that there is not")]
    Code,
    /// Ranges are not in order, or too many.
    #[error("ranges are out of order, empty or too many")]
    Ranges,
    /// An acknowledgement of a packet that was never sent.
    #[error("packet {0} is acknowledged, but was never sent")]
    NeverSent(u64),
    /// With this message, more would be open than both sides agreed on.
    #[error("with a message of {0} bytes, more is open than was agreed on")]
    TooMuch(u32),
    /// What is said about a message contradicts what was said before.
    #[error("packets of message {0} contradict each other")]
    Contradiction(u32),
}
