//! Messages that are to be sent over a link, as one stream of bytes.

use std::collections::VecDeque;
use std::sync::Arc;

/// So many messages may wait on a link to a hub. An honest side hears one before it gives cause for many more.
pub const MOST_QUEUED: usize = 64;

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
    /// So many messages may wait.
    most: usize,
    pieces: VecDeque<Piece>,
    /// Bytes of the first that have left.
    left: usize,
    /// Messages that have not left whole: two pieces each, the first of them perhaps gone.
    messages: usize,
}

impl Outbox {
    /// In which at most so many messages may wait.
    pub fn new(most: usize) -> Outbox {
        Outbox { most, pieces: VecDeque::new(), left: 0, messages: 0 }
    }

    /// Enters a message: its length, `head`, and then `body`. `false` if too many wait already.
    pub fn push(&mut self, head: &[u8], body: Option<Body>) -> bool {
        if self.messages >= self.most {
            return false;
        }
        self.messages += 1;
        let more = body.as_ref().map_or(0, |body| (**body).as_ref().len());
        let length = (head.len() + more) as u64;
        self.pieces.push_back(Piece::Own([&length.to_le_bytes(), head].concat()));
        self.pieces.push_back(body.map_or_else(|| Piece::Own(Vec::new()), Piece::Shared));
        true
    }

    /// What is to be sent next, as one piece; `None`: nothing.
    pub fn peek(&mut self) -> Option<&[u8]> {
        while self.pieces.front().is_some_and(|piece| self.left == piece.bytes().len()) {
            self.pieces.pop_front();
            self.left = 0;
            self.messages = self.pieces.len().div_ceil(2);
        }
        if self.pieces.is_empty() {
            self.pieces = VecDeque::new();
        }
        self.pieces.front().map(|piece| &piece.bytes()[self.left..])
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
            assert!(outbox.push(b"task", Some(Arc::clone(&body))) && outbox.push(b"grant", None));
            assert!(outbox.push(b"", Some(Arc::new(Vec::new()))));
            let task = [&b"task"[..], &[7; 20]].concat();
            assert_eq!(drain(&mut outbox, step), [task, b"grant".to_vec(), Vec::new()]);
            assert_eq!(Arc::strong_count(&body), 1);
        }
    }

    #[test]
    fn who_does_not_read_is_not_told_for_ever() {
        let mut outbox = Outbox::new(MOST_QUEUED);
        let entered = (0..1000).filter(|_| outbox.push(b"outcome", None)).count();
        assert_eq!(entered, MOST_QUEUED);
        let first = outbox.peek().unwrap().len();
        outbox.taken(first);
        outbox.peek();
        assert!(outbox.push(b"outcome", None) && !outbox.push(b"outcome", None));
    }
}
