//! The queue under loom: one thread puts in, one takes out, in all interleavings.

use loom::sync::Arc;
use loom::thread;

use super::*;
use tweed_proto::engine::message::Kind;
use tweed_proto::engine::GroupNumber;

/// A queue in memory that loom knows.
pub(in crate::link) struct Shared(std::cell::UnsafeCell<ShmQueue>);

// SAFETY: the queue is made to be used by one putter and one taker at a time; loom checks what they touch.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    pub(in crate::link) fn new() -> Arc<Shared> {
        let position = || Position(AtomicU32::new(0));
        let slots = std::array::from_fn(|_| Slot(UnsafeCell::new([0; MESSAGE_BYTES])));
        Arc::new(Shared(std::cell::UnsafeCell::new(ShmQueue { taken: position(), put: position(), slots })))
    }

    pub(in crate::link) fn put(&self, kind: Kind, number: u64) -> bool {
        // SAFETY: the memory lives as long as `self`, and each test has one putter per queue.
        unsafe { ShmQueue::put(self.0.get(), &Message::new(kind, GroupNumber::NONE, number)) }
    }

    pub(in crate::link) fn take(&self) -> Option<Message> {
        // SAFETY: as above, and one taker.
        unsafe { ShmQueue::take(self.0.get()) }
    }

    pub(in crate::link) fn is_empty(&self) -> bool {
        // SAFETY: as above.
        unsafe { ShmQueue::is_empty(self.0.get()) }
    }
}

/// More messages than there are slots, so that it is full and comes round.
#[test]
fn messages_come_whole_once_and_in_order() {
    loom::model(|| {
        let queue = Shared::new();
        let putter = queue.clone();
        let thread = thread::spawn(move || {
            for number in 0..3 {
                while !putter.put(Kind::Placed, number) {
                    thread::yield_now();
                }
            }
        });
        for number in 0..3 {
            let message = loop {
                match queue.take() {
                    Some(message) => break message,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(message, Message::new(Kind::Placed, GroupNumber::NONE, number));
        }
        thread.join().expect("it ends");
        assert!(queue.take().is_none() && queue.is_empty());
    });
}
