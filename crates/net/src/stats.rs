//! What has gone over each link: counters that only grow.

use crate::message::{Kind, Message};

/// What a process and one of its peers have told each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) bytes_out: u64,
    pub(crate) bytes_in: u64,
    pub(crate) messages_out: u64,
    pub(crate) messages_in: u64,
}

impl Traffic {
    /// A message leaves.
    pub(crate) fn sent(&mut self, message: &Message) {
        self.messages_out += 1;
        self.bytes_out += value_bytes(message);
    }

    /// A message has come.
    pub(crate) fn received(&mut self, message: &Message) {
        self.messages_in += 1;
        self.bytes_in += value_bytes(message);
    }
}

/// Bytes of the value that a message carries, or that it says can be read.
fn value_bytes(message: &Message) -> u64 {
    let moves = matches!(message.kind, Kind::Readable | Kind::Writable | Kind::Placed | Kind::Carried);
    if moves {
        u64::from(message.bytes)
    } else {
        0
    }
}
