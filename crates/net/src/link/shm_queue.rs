//! A queue of messages in shared memory: one process puts in, one takes out.
//!
//! It lies in the taker's arena. Positions only grow; a slot is `position % SLOTS`.

use std::sync::atomic::Ordering;

use tweed_proto::engine::message::{Message, MESSAGE_BYTES};

use crate::sync::atomic::AtomicU32;
use crate::sync::cell::UnsafeCell;

/// loom walks all ways through a queue, and a short one is full and comes round after two messages.
const SLOTS: u32 = if cfg!(loom) { 2 } else { 512 };

#[repr(C, align(64))]
struct Position(AtomicU32);

#[repr(C, align(64))]
struct Slot(UnsafeCell<[u8; MESSAGE_BYTES]>);

/// The memory of one queue; all zero is an empty one.
#[repr(C)]
pub(crate) struct ShmQueue {
    taken: Position,
    put: Position,
    slots: [Slot; SLOTS as usize],
}

impl ShmQueue {
    /// Puts a message in; `false` if it is full.
    ///
    /// # Safety
    /// `queue` is mapped, and no other thread or process puts into it at the same time.
    pub(crate) unsafe fn put(queue: *mut ShmQueue, message: &Message) -> bool {
        // SAFETY: mapped, by the contract; positions are atomic, and the slot is the putter's until `put` moves on.
        unsafe {
            let put = (*queue).put.0.load(Ordering::Relaxed);
            if put.wrapping_sub((*queue).taken.0.load(Ordering::Acquire)) >= SLOTS {
                return false;
            }
            let slot = &(*queue).slots[(put % SLOTS) as usize].0;
            slot.with_mut(|slot| slot.write(message.encode()));
            (*queue).put.0.store(put.wrapping_add(1), Ordering::SeqCst);
        }
        true
    }

    /// Takes the oldest message; `None` if there is none. One that cannot be read is left out.
    ///
    /// # Safety
    /// `queue` is mapped, and no other thread takes from it at the same time.
    pub(crate) unsafe fn take(queue: *mut ShmQueue) -> Option<Message> {
        // SAFETY: mapped, by the contract; the slot is the taker's until `taken` moves on.
        unsafe {
            loop {
                let taken = (*queue).taken.0.load(Ordering::Relaxed);
                if (*queue).put.0.load(Ordering::Acquire) == taken {
                    return None;
                }
                let bytes = (*queue).slots[(taken % SLOTS) as usize].0.with(|slot| slot.read());
                (*queue).taken.0.store(taken.wrapping_add(1), Ordering::Release);
                if let Some(message) = Message::decode(&bytes) {
                    return Some(message);
                }
            }
        }
    }

    /// Nothing lies in it.
    ///
    /// # Safety
    /// `queue` is mapped.
    pub(crate) unsafe fn is_empty(queue: *const ShmQueue) -> bool {
        // SAFETY: mapped, by the contract.
        unsafe { (*queue).put.0.load(Ordering::SeqCst) == (*queue).taken.0.load(Ordering::Relaxed) }
    }
}

#[cfg(all(test, loom))]
#[path = "shm_queue_model.rs"]
pub(super) mod model;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use tweed_proto::engine::message::Kind;
    use tweed_proto::engine::GroupNumber;

    #[test]
    fn what_goes_in_comes_out_in_order_until_it_is_full() {
        // SAFETY: all zero is an empty queue, and this thread alone uses it.
        unsafe {
            let mut queue: Box<ShmQueue> = Box::new(std::mem::zeroed());
            let queue: *mut ShmQueue = &mut *queue;
            for round in 0..3u64 {
                for i in 0..u64::from(SLOTS) {
                    assert!(ShmQueue::put(
                        queue,
                        &Message::new(Kind::Read, GroupNumber::NONE, round * 1000 + i)
                    ));
                }
                assert!(!ShmQueue::put(queue, &Message::new(Kind::Read, GroupNumber::NONE, 0)));
                for i in 0..u64::from(SLOTS) {
                    assert_eq!(ShmQueue::take(queue).map(|m| m.op), Some(round * 1000 + i));
                }
                assert!(ShmQueue::is_empty(queue) && ShmQueue::take(queue).is_none());
            }
        }
    }
}
