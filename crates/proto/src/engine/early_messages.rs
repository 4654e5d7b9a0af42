//! What faster peers have said of operations, or of groups, that this rank has not come to yet.

use std::collections::BTreeMap;

use super::landed::Received;
use super::message::{Message, MESSAGE_BYTES};
use super::operation::Key;

/// A message, from whom, and what it carried.
pub(super) type EarlyMessage = (usize, Message, Received);

/// An honest peer waits long before (see `flow`): one that is further ahead than this waits for nobody.
pub(super) const MOST_BYTES: u64 = 1 << 30;

#[derive(Default)]
pub(super) struct EarlyMessages {
    early: BTreeMap<Key, Vec<EarlyMessage>>,
    unopened: BTreeMap<u32, Vec<EarlyMessage>>,
    bytes: BTreeMap<usize, u64>,
    most_bytes: u64,
}

impl EarlyMessages {
    /// Holds at most so much of each peer.
    pub(super) fn new(most_bytes: u64) -> EarlyMessages {
        EarlyMessages { most_bytes, ..EarlyMessages::default() }
    }

    /// Keeps what is said of an operation. `false` if that is too much from one peer.
    #[must_use]
    pub(super) fn keep(&mut self, key: Key, held: EarlyMessage) -> bool {
        let fits = self.weigh(&held);
        self.early.entry(key).or_default().push(held);
        fits
    }

    /// Keeps what is said of a group that is not open here. `false` if that is too much from one peer.
    #[must_use]
    pub(super) fn keep_for_group(&mut self, held: EarlyMessage) -> bool {
        let fits = self.weigh(&held);
        self.unopened.entry(held.1.group).or_default().push(held);
        fits
    }

    /// All that was said of an operation, in order.
    pub(super) fn take(&mut self, key: &Key) -> Vec<EarlyMessage> {
        let held = self.early.remove(key).unwrap_or_default();
        self.forget(&held);
        held
    }

    /// All that was said of a group before it was opened, in order.
    pub(super) fn take_group(&mut self, number: u32) -> Vec<EarlyMessage> {
        let held = self.unopened.remove(&number).unwrap_or_default();
        self.forget(&held);
        held
    }

    /// The peer is lost: what it had sent for later is of no use.
    pub(super) fn drop_peer(&mut self, peer: usize) {
        self.early.values_mut().for_each(|held| held.retain(|one| one.0 != peer));
        self.unopened.values_mut().for_each(|held| held.retain(|one| one.0 != peer));
        self.early.retain(|_, held| !held.is_empty());
        self.unopened.retain(|_, held| !held.is_empty());
        self.bytes.remove(&peer);
    }

    /// The group is closed: nobody will ask for it.
    pub(super) fn drop_group(&mut self, number: u32) {
        let keys: Vec<Key> = self.keys().filter(|key| key.group == number).copied().collect();
        keys.iter().for_each(|key| drop(self.take(key)));
        self.take_group(number);
    }

    /// Something of that peer is held.
    pub(super) fn holds_of(&self, peer: usize) -> bool {
        self.bytes.get(&peer).is_some_and(|&bytes| bytes > 0)
    }

    /// What is held.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.values().sum()
    }

    /// Nothing is held.
    pub(super) fn is_empty(&self) -> bool {
        self.early.is_empty() && self.unopened.is_empty()
    }

    /// The operations that somebody has spoken of.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.early.keys()
    }

    fn weigh(&mut self, held: &EarlyMessage) -> bool {
        let bytes = self.bytes.entry(held.0).or_default();
        *bytes += weight(held);
        *bytes <= self.most_bytes
    }

    fn forget(&mut self, held: &[EarlyMessage]) {
        for one in held {
            *self.bytes.entry(one.0).or_default() -= weight(one);
        }
    }
}

fn weight((_, _, received): &EarlyMessage) -> u64 {
    (MESSAGE_BYTES + received.bytes.len() + size_of_val(&received.missing[..])) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::message::Kind;

    fn held(peer: usize, op: u64, bytes: usize) -> (Key, EarlyMessage) {
        let key = Key { group: 1, op, peer: None };
        (key, (peer, Message::new(Kind::Carried, 1, op), vec![0; bytes].into()))
    }

    #[test]
    fn a_peer_may_be_so_far_ahead_and_no_further() {
        let mut early = EarlyMessages::new(1000);
        let (key, one) = held(0, 1, 900);
        assert!(early.keep(key, one));
        let (other, two) = held(1, 1, 900);
        assert!(early.keep(other, two), "another peer has its own measure");
        let (late, three) = held(0, 2, 900);
        assert!(!early.keep(late, three));
    }

    #[test]
    fn what_was_taken_weighs_nothing() {
        let mut early = EarlyMessages::new(1000);
        for op in 0..10 {
            let (key, one) = held(0, op, 900);
            assert!(early.keep(key, one));
            assert_eq!(early.take(&key).len(), 1);
            let (_, two) = held(0, op, 900);
            assert!(early.keep_for_group(two));
            assert_eq!(early.take_group(1).len(), 1);
            let (key, three) = held(0, op, 900);
            assert!(early.keep(key, three));
            early.drop_group(1);
            assert!(early.keep_for_group(held(0, op, 900).1));
            early.drop_group(1);
            assert!(early.is_empty());
        }
    }
}
