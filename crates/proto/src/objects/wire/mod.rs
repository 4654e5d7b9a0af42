//! What processes say to each other about objects, as bytes.
//!
//! A [`Frame`] is a byte that says which, and its fields in order, the lowest byte of a number first. Lists begin with their
//! length. Only a block has more after that: its bytes, which [`Frame::decode`] leaves where they are.
//!
//! Before a frame goes its [`Mark`]; one without a frame says only what was taken. Two frames are about the link that they come
//! over, and have no number: [`Frame::Resume`] and [`Frame::Parted`].
//!
//! What cannot happen: memory is taken for items that have not come; a value that the planner cannot bear (a range that
//! ends before it begins, blocks of no bytes, a tree deeper than its sources allow).

mod codec;
mod values;

use codec::{Reader, Wire};

use super::{Bytes, Mark, Message, Order, Pull, Report, Stream};

/// One thing that a process tells another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The sender takes part from now on; this is its descriptor.
    Hello {
        /// The descriptor, as the driver has it.
        descriptor: Bytes,
    },
    /// A message of the planner.
    Message {
        /// The message that is sent.
        message: Message,
    },
    /// The sender wants bytes.
    Pull {
        /// The asker's number for it.
        stream: Stream,
        /// The bytes that are wanted.
        pull: Pull,
        /// The asker is a neighbour, and maps the memory in which they lie.
        maps: bool,
    },
    /// They are not wanted any more.
    Close {
        /// The stream, by the number that was asked with.
        stream: Stream,
    },
    /// No more of them are to leave; those that have are taken.
    Stop {
        /// The stream, by the number that was asked with.
        stream: Stream,
    },
    /// The answer to that: all that has left was sent before this.
    Stopped {
        /// The stream, by the number that was asked with.
        stream: Stream,
    },
    /// Bytes that were asked for: the rest of what came with this.
    Block {
        /// The stream, by the number that was asked with.
        stream: Stream,
        /// Where the bytes begin.
        begin: u64,
    },
    /// Bytes that a neighbour asked for lie in this file, from its first byte on.
    Mapped {
        /// The stream, by the number that was asked with.
        stream: Stream,
        /// None: they lie in no file, and are to be asked for as blocks.
        file: Option<FileId>,
        /// Up to here they may be read.
        end: u64,
    },
    /// This link stands; the mark before this says from which item on it is to bring them.
    Resume {
        /// The sender has no other link to the one that hears this: what that one sends has to go over this one.
        is_only: bool,
    },
    /// The one that hears this is gone for its sender, and links between the two end.
    Parted,
}

/// Memory that a process of the same host can map: a descriptor of its owner's, and which file that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    /// Its number in the owner.
    pub descriptor: u32,
    /// Random, and part of the file's name: numbers of descriptors are used again, and nobody guesses this one.
    pub tag: u128,
}

/// Bytes that are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes came that are nothing a process says about objects; do all run the same tweed?")]
pub struct Garbled {
    /// How many there were.
    pub bytes: usize,
}

impl Mark {
    /// The mark as bytes; those of a frame follow them.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.put(&mut bytes);
        bytes
    }

    /// Reads a mark, and returns the bytes of the frame that follows it.
    ///
    /// # Errors
    /// There is none.
    pub fn decode(bytes: &[u8]) -> Result<(Mark, &[u8]), Garbled> {
        let mut reader = Reader(bytes);
        let mark = Mark::take(&mut reader).ok_or(Garbled { bytes: bytes.len() })?;
        Ok((mark, reader.0))
    }
}

impl Frame {
    /// The frame as bytes; those of a block follow them.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.put(&mut bytes);
        bytes
    }

    /// Reads a frame, and returns what follows it.
    ///
    /// # Errors
    /// They are none, or more follows than may.
    pub fn decode(bytes: &[u8]) -> Result<(Frame, &[u8]), Garbled> {
        let mut reader = Reader(bytes);
        match (Frame::take(&mut reader).filter(Frame::is_bearable), reader.0) {
            (Some(frame @ Frame::Block { .. }), rest) => Ok((frame, rest)),
            (Some(frame), []) => Ok((frame, &[])),
            _ => Err(Garbled { bytes: bytes.len() }),
        }
    }

    fn is_bearable(&self) -> bool {
        match self {
            Frame::Message { message: Message::Order(Order::Feed { block, .. }) } => values::is_block(*block),
            Frame::Message { message: Message::Report(Report::Holds { rate, .. }) } => *rate != Some(0),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests;
