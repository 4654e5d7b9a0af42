//! How much may be open at a time.

/// A limit on the messages that are open in one direction; the sender keeps to it, the receiver holds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpenLimit {
    pub(crate) messages: usize,
    /// Bytes of all of them.
    pub(crate) bytes: u64,
}

/// The messages that are open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpenMessages {
    messages: usize,
    bytes: u64,
}

impl OpenMessages {
    /// One more message of `total` bytes keeps within the limit.
    pub(crate) fn fits(&self, total: u32, limit: &OpenLimit) -> bool {
        self.messages < limit.messages && self.bytes + u64::from(total) <= limit.bytes
    }

    pub(crate) fn add(&mut self, total: u32) {
        self.messages += 1;
        self.bytes += u64::from(total);
    }

    pub(crate) fn remove(&mut self, total: u32) {
        self.messages -= 1;
        self.bytes -= u64::from(total);
    }
}
