//! Messages out of a stream of bytes: eight bytes of length, the lowest first, then so many.

const HEAD_BYTES: usize = 8;
/// Memory for a message is taken in steps: of this, then of as much as has come.
const FIRST_BYTES: usize = 4096;

/// A message was announced that is longer than any which may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it announced a message of {bytes} bytes, where {most} are allowed")]
pub struct TooLong {
    /// How many bytes were announced.
    pub bytes: u64,
    /// How many bytes may come.
    pub most: u64,
}

/// What has come of the message that comes now. Empty between two messages, so that a link that is silent holds nothing.
#[derive(Debug)]
pub struct Assembly {
    most: u64,
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
    body: Vec<u8>,
}

impl Assembly {
    /// No message may be longer than `most` bytes.
    pub fn new(most: u64) -> Assembly {
        Assembly { most, head: [0; HEAD_BYTES], head_bytes: 0, body: Vec::new() }
    }

    /// Messages may have `most` bytes from now on; one that has been announced already, too.
    pub fn allow(&mut self, most: u64) {
        self.most = most;
    }

    /// Whether nothing of a next message has come.
    pub fn is_empty(&self) -> bool {
        self.head_bytes == 0
    }

    /// Bytes that have come of the message that comes now.
    pub fn come(&self) -> usize {
        self.head_bytes + self.body.len()
    }

    /// Takes what has come next, and calls `each` with every message that is whole by that.
    pub fn take(&mut self, mut bytes: &[u8], mut each: impl FnMut(Vec<u8>)) -> Result<(), TooLong> {
        while !bytes.is_empty() {
            if self.head_bytes < HEAD_BYTES {
                let step = bytes.len().min(HEAD_BYTES - self.head_bytes);
                self.head[self.head_bytes..][..step].copy_from_slice(&bytes[..step]);
                self.head_bytes += step;
                bytes = &bytes[step..];
            }
            let Some(length) = self.length()? else { return Ok(()) };
            let step = bytes.len().min(length - self.body.len());
            self.grow(length, step);
            self.body.extend_from_slice(&bytes[..step]);
            bytes = &bytes[step..];
            if self.body.len() == length {
                self.head_bytes = 0;
                each(std::mem::take(&mut self.body));
            }
        }
        Ok(())
    }

    /// The length of the message that comes now, if that is known.
    fn length(&self) -> Result<Option<usize>, TooLong> {
        if self.head_bytes < HEAD_BYTES {
            return Ok(None);
        }
        let bytes = u64::from_le_bytes(self.head);
        match usize::try_from(bytes) {
            Ok(length) if bytes <= self.most => Ok(Some(length)),
            _ => Err(TooLong { bytes, most: self.most }),
        }
    }

    /// Makes room for `step` bytes more of `length`: at most twice what has come, and never more than will.
    fn grow(&mut self, length: usize, step: usize) {
        let needed = self.body.len() + step;
        if needed > self.body.capacity() {
            let room = needed.max(2 * self.body.len()).max(FIRST_BYTES).min(length);
            self.body.reserve_exact(room - self.body.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn framed(messages: &[Vec<u8>]) -> Vec<u8> {
        messages.iter().flat_map(|m| [&(m.len() as u64).to_le_bytes()[..], m].concat()).collect()
    }

    proptest! {
        #[test]
        fn messages_come_as_they_were_sent_however_the_stream_is_cut(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8),
            cut in 1usize..50,
        ) {
            let (mut assembly, mut come) = (Assembly::new(64), Vec::new());
            for piece in framed(&messages).chunks(cut) {
                assembly.take(piece, |message| come.push(message)).unwrap();
            }
            prop_assert_eq!(come, messages);
        }
    }

    #[test]
    fn what_is_too_long_is_refused_before_memory_is_taken() {
        let mut assembly = Assembly::new(1 << 10);
        let claimed = (4u64 << 30).to_le_bytes();
        let refused = assembly.take(&claimed, |_| panic!("no message is there"));
        assert_eq!(refused, Err(TooLong { bytes: 4 << 30, most: 1 << 10 }));
        assert_eq!(assembly.body.capacity(), 0);
    }

    #[test]
    fn memory_grows_with_what_has_come_and_is_given_away_with_the_message() {
        let mut assembly = Assembly::new(1 << 30);
        assembly.take(&(1u64 << 30).to_le_bytes(), |_| {}).unwrap();
        assembly.take(&[7; 10_000], |_| {}).unwrap();
        assert_eq!(assembly.come(), 10_008);
        assert!(assembly.body.capacity() <= 20_000, "{}", assembly.body.capacity());
        let mut assembly = Assembly::new(1 << 30);
        assembly.take(&framed(&[vec![1; 50_000]]), |_| {}).unwrap();
        assert_eq!(assembly.body.capacity(), 0);
    }

    #[test]
    fn a_limit_may_change_between_messages() {
        let mut assembly = Assembly::new(4);
        assembly.allow(100);
        let mut come = 0;
        assembly.take(&framed(&[vec![0; 100]]), |_| come += 1).unwrap();
        assembly.allow(4);
        assert!(assembly.take(&framed(&[vec![0; 5]]), |_| come += 1).is_err());
        assert_eq!(come, 1);
    }
}
