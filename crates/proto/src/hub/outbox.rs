//! Messages that are to be sent over a link, as one stream of bytes.

use std::collections::VecDeque;
use std::sync::Arc;

/// How much may wait on a link before its other end counts as one that does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MostQueued {
    /// How many messages may wait.
    pub messages: usize,
    /// As long as this many of the longest message that was entered, and [`SMALL_BYTES`], wait, no other one joins them.
    pub longest: usize,
}

/// On a link to a hub. An honest side hears one message before it gives cause for many more; of models, one may wait that
/// it was told twice, and the last one behind that.
pub const MOST_QUEUED: MostQueued = MostQueued { messages: 64, longest: 2 };

/// So many bytes may wait in any case: of messages without a model or payload, which have 4 KB at most, 64.
const SMALL_BYTES: usize = 1 << 18;

/// What is to be said to the other end has no place any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it does not read what it is told: {messages} messages of {bytes} bytes wait for it")]
pub struct TooMuch {
    /// How many messages wait.
    pub messages: usize,
    /// How many bytes they have.
    pub bytes: usize,
}

/// The long part of a message, which many links may send at once: nothing copies it.
pub type Body = Arc<dyn AsRef<[u8]> + Send + Sync>;

enum Piece {
    Own(Vec<u8>),
    Shared(Body),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Own(bytes) => bytes,
            Piece::Shared(body) => (**body).as_ref(),
        }
    }
}

/// What is to be sent, in this order. Empty, it holds no memory.
pub struct Outbox {
    most: MostQueued,
    /// Bytes of the longest message so far.
    longest: usize,
    pieces: VecDeque<Piece>,
    /// How many bytes all pieces have: what is held for the other end.
    bytes: usize,
    /// Bytes of the first that have left.
    left: usize,
    /// Messages that have not left whole: two pieces each, the first of them perhaps gone.
    messages: usize,
}

impl Outbox {
    /// In which at most so much may wait.
    pub fn new(most: MostQueued) -> Outbox {
        Outbox { most, longest: 0, pieces: VecDeque::new(), bytes: 0, left: 0, messages: 0 }
    }

    /// Enters a message: its length, `head`, and then `body`; unless too much waits already.
    pub fn push(&mut self, head: &[u8], body: Option<Body>) -> Result<(), TooMuch> {
        let more = body.as_ref().map_or(0, |body| (**body).as_ref().len());
        let length = head.len() + more;
        self.longest = self.longest.max(length);
        let most_bytes = self.longest.saturating_mul(self.most.longest).saturating_add(SMALL_BYTES);
        if self.messages >= self.most.messages || self.bytes > most_bytes {
            return Err(TooMuch { messages: self.messages, bytes: self.bytes });
        }
        self.messages += 1;
        let own = [&(length as u64).to_le_bytes(), head].concat();
        self.bytes += own.len() + more;
        self.pieces.push_back(Piece::Own(own));
        self.pieces.push_back(body.map_or_else(|| Piece::Own(Vec::new()), Piece::Shared));
        Ok(())
    }

    /// What is to be sent next, as one piece; `None`: nothing.
    pub fn peek(&mut self) -> Option<&[u8]> {
        while self.pieces.front().is_some_and(|piece| self.left == piece.bytes().len()) {
            self.pieces.pop_front();
            self.bytes -= self.left;
            self.left = 0;
            self.messages = self.pieces.len().div_ceil(2);
        }
        if self.pieces.is_empty() {
            self.pieces = VecDeque::new();
        }
        self.pieces.front().map(|piece| &piece.bytes()[self.left..])
    }

    /// Bytes that have not left.
    pub fn waiting(&self) -> usize {
        self.bytes - self.left
    }

    /// So many bytes of `peek` have left.
    pub fn taken(&mut self, bytes: usize) {
        self.left += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::Assembly;

    fn drain(outbox: &mut Outbox, step: usize) -> Vec<Vec<u8>> {
        let (mut assembly, mut come) = (Assembly::new(1 << 20), Vec::new());
        while let Some(bytes) = outbox.peek() {
            let bytes = bytes[..bytes.len().min(step)].to_vec();
            outbox.taken(bytes.len());
            assembly.take(&bytes, |message| come.push(message)).unwrap();
        }
        come
    }

    #[test]
    fn what_is_entered_comes_out_in_order_however_much_leaves_at_once() {
        for step in [1, 3, 8, 100] {
            let (mut outbox, body): (_, Body) = (Outbox::new(MOST_QUEUED), Arc::new(vec![7u8; 20]));
            outbox.push(b"task", Some(Arc::clone(&body))).unwrap();
            outbox.push(b"grant", None).unwrap();
            outbox.push(b"", Some(Arc::new(Vec::new()))).unwrap();
            let task = [&b"task"[..], &[7; 20]].concat();
            assert_eq!(drain(&mut outbox, step), [task, b"grant".to_vec(), Vec::new()]);
            assert_eq!((Arc::strong_count(&body), outbox.bytes), (1, 0));
        }
    }

    #[test]
    fn who_does_not_read_is_not_told_for_ever() {
        let mut outbox = Outbox::new(MOST_QUEUED);
        let entered = (0..1000).filter(|_| outbox.push(b"outcome", None).is_ok()).count();
        assert_eq!(entered, MOST_QUEUED.messages);
        let first = outbox.peek().unwrap().len();
        outbox.taken(first);
        outbox.peek();
        assert!(outbox.push(b"outcome", None).is_ok() && outbox.push(b"outcome", None).is_err());
    }

    #[test]
    fn who_does_not_read_models_holds_the_memory_of_three() {
        let (mut outbox, most) = (Outbox::new(MOST_QUEUED), 3 << 20);
        for version in 0..1000 {
            let model: Body = Arc::new(vec![version as u8; (1 << 20) - 4]);
            let _ = outbox.push(b"task", Some(model));
            assert!(outbox.bytes <= most + SMALL_BYTES, "{} bytes after {version}", outbox.bytes);
        }
        let refused = outbox.push(b"task", None).unwrap_err();
        assert_eq!((refused.messages, refused.bytes), (3, outbox.bytes));
        assert_eq!(drain(&mut outbox, 1 << 16).len(), 3);
        assert!(outbox.push(b"task", Some(Arc::new(vec![0u8; 1 << 20]))).is_ok());
    }
}
