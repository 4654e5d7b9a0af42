//! Messages from one peer that are on their way: memory in which their values are put together.

use std::collections::BTreeMap;
use std::ops::Range;

use tweed_proto::ltp::{MessageId, Place};

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Landing {
    open: BTreeMap<MessageId, Vec<u8>>,
}

impl Landing {
    /// Gives a message memory; what is in it does not matter.
    pub(super) fn begin(&mut self, place: &Place, mut memory: Vec<u8>) {
        memory.resize(place.total as usize, 0);
        self.open.insert(place.message, memory);
    }

    /// Puts values in their place; `body` is that of the packet. `false` if the message has no memory yet.
    pub(super) fn put(&mut self, place: &Place, body: &[u8]) -> bool {
        let Some(memory) = self.open.get_mut(&place.message) else { return false };
        let (offset, len) = (place.offset as usize, place.len as usize);
        memory[offset..][..len].copy_from_slice(&body[place.at..][..len]);
        true
    }

    /// The message is over. Its memory, with zeros where nothing has arrived; `None` if nothing has arrived at all.
    pub(super) fn end(&mut self, message: MessageId, missing: &[Range<u32>]) -> Option<Vec<u8>> {
        let mut memory = self.open.remove(&message)?;
        for range in missing {
            memory[range.start as usize..range.end as usize].fill(0);
        }
        Some(memory)
    }
}
