//! What ranks send each other: one record of fixed size, the same in shared memory and on a wire.

use super::group_number::GroupNumber;
use super::host::Lease;

/// Its size in bytes.
pub const MESSAGE_BYTES: usize = 48;

/// In place of an operation's number: the message is about all of the group.
pub const WHOLE_GROUP: u64 = u64::MAX;

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A value can be read, at an offset in the sender's arena.
    Readable = 1,
    /// As `Readable`, and the answer may be written there.
    Writable = 2,
    /// The value has been written into the receiver's buffer.
    Placed = 3,
    /// The sender of this message has read the value.
    Read = 4,
    /// A value follows as payload.
    Carried = 5,
    /// Text follows: what the sender called, because somebody called something else.
    Describe = 6,
    /// Text follows: why the operation failed at the sender.
    Failed = 7,
    /// The sender leaves in good order.
    Bye = 8,
    /// The sender waits in the operation: how does the receiver stand in it?
    Ask = 9,
    /// Text follows: the answer to `Ask`.
    State = 10,
    /// The sender leaves the group.
    Leave = 11,
    /// Text follows: metrics of the sender, left at rank 0.
    Note = 12,
    /// Bytes follow: how to send packets to the sender, for the endpoint whose number stands in `at`.
    Invite = 13,
    /// Bytes follow: ranges that the sender lacks of a value which came in packets.
    Missing = 14,
    /// The sender has begun the operation: values of it may come.
    Begun = 15,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        use Kind::*;
        [
            Readable, Writable, Placed, Read, Carried, Describe, Failed, Bye, Ask, State, Leave, Note,
            Invite, Missing, Begun,
        ]
        .into_iter()
        .find(|&k| k as u8 == byte)
    }

    /// `bytes` of payload follow on a stream.
    pub fn has_payload(self) -> bool {
        use Kind::{Carried, Describe, Failed, Invite, Missing, Note, State};
        matches!(self, Carried | Describe | Failed | State | Note | Invite | Missing)
    }
}

/// One message between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// What it is about.
    pub kind: Kind,
    /// The number of the group.
    pub group: GroupNumber,
    /// The operation within the group.
    pub op: u64,
    /// Where the value lies.
    pub at: u64,
    /// Index of the send in the schedule.
    pub send: u32,
    /// The number of the slice.
    pub slice: u32,
    /// Length of the piece, or of the text.
    pub bytes: u32,
    /// Equal where ranks called the same thing.
    pub signature: u32,
    /// Under which lease of the sender the value lies there.
    pub lease: Lease,
}

impl Message {
    /// A message of `kind` on operation `op` of `group`, all else zero.
    pub fn new(kind: Kind, group: GroupNumber, op: u64) -> Message {
        Message { kind, group, op, at: 0, send: 0, slice: 0, bytes: 0, signature: 0, lease: Lease::default() }
    }

    /// Over which of `streams` it goes. Messages on one piece of one send keep their order; small values of several
    /// sends, a piece each, do not all queue in one stream.
    pub fn stream(&self, streams: usize) -> usize {
        self.send.wrapping_add(self.slice) as usize % streams
    }

    /// The message as it lies in a queue, or goes over a stream.
    pub fn encode(&self) -> [u8; MESSAGE_BYTES] {
        let mut out = [0; MESSAGE_BYTES];
        out[..8].copy_from_slice(&(self.group.bits() << 8 | self.kind as u64).to_le_bytes());
        out[8..16].copy_from_slice(&self.op.to_le_bytes());
        out[16..24].copy_from_slice(&self.at.to_le_bytes());
        let Lease { slot, generation } = self.lease;
        let words = [self.send, self.slice, self.bytes, self.signature, slot, generation];
        for (place, value) in (24..).step_by(4).zip(words) {
            out[place..place + 4].copy_from_slice(&value.to_le_bytes());
        }
        out
    }

    /// `None` for a kind that this version does not know.
    pub fn decode(bytes: &[u8; MESSAGE_BYTES]) -> Option<Message> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        Some(Message {
            kind: Kind::from_byte(bytes[0])?,
            group: GroupNumber::from_bits(long(0) >> 8),
            op: long(8),
            at: long(16),
            send: word(24),
            slice: word(28),
            bytes: word(32),
            signature: word(36),
            lease: Lease { slot: word(40), generation: word(44) },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_values_of_several_sends_use_all_streams() {
        let over = |send, slice| {
            Message { send, slice, ..Message::new(Kind::Carried, GroupNumber::NONE, 1) }.stream(4)
        };
        assert_eq!([0, 1, 2, 3].map(|send| over(send, 0)), [0, 1, 2, 3]);
        assert_eq!([0, 1, 2, 3].map(|slice| over(6, slice)), [2, 3, 0, 1]);
        assert_eq!(over(u32::MAX, u32::MAX), 2);
    }

    #[test]
    fn a_message_survives_the_wire() {
        let message = Message {
            at: 1 << 40,
            send: 7,
            slice: 9,
            bytes: 65536,
            signature: 3,
            lease: Lease { slot: 8, generation: 11 },
            ..Message::new(Kind::Placed, GroupNumber::new(u64::MAX, Some(7)), 1 << 63)
        };
        assert_eq!(Message::decode(&message.encode()), Some(message));
    }

    #[test]
    fn an_unknown_kind_is_refused() {
        assert_eq!(Message::decode(&[99; MESSAGE_BYTES]), None);
    }
}
