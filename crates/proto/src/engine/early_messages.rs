//! What faster peers have said of operations, or of groups, that this rank has not come to yet.

use std::collections::BTreeMap;

use super::group_number::GroupNumber;
use super::landed::Received;
use super::message::{Message, MESSAGE_BYTES};
use super::operation::Key;

/// A message, from whom, and what it carried.
pub(super) type EarlyMessage = (usize, Message, Received);

/// An honest peer waits long before (see `flow`): one that is further ahead than this waits for nobody.
pub(super) const MOST_BYTES: u64 = 1 << 30;

#[derive(Default)]
pub(super) struct EarlyMessages {
    /// The messages, by group and by operation; without one, what is said of a group that is not open here.
    held: BTreeMap<(GroupNumber, Option<Key>), Vec<EarlyMessage>>,
    bytes: BTreeMap<usize, u64>,
    most_bytes: u64,
}

impl EarlyMessages {
    /// Holds at most so much of each peer.
    pub(super) fn new(most_bytes: u64) -> EarlyMessages {
        EarlyMessages { most_bytes, ..EarlyMessages::default() }
    }

    /// Keeps what is said of an operation, or of a group. `false` if that is too much from one peer.
    #[must_use]
    pub(super) fn keep(&mut self, key: Option<Key>, message: EarlyMessage) -> bool {
        let bytes = self.bytes.entry(message.0).or_default();
        *bytes += weight(&message);
        let fits = *bytes <= self.most_bytes;
        self.held.entry((message.1.group, key)).or_default().push(message);
        fits
    }

    /// All that was said of an operation, or of a group before it was opened, in order.
    pub(super) fn take(&mut self, group: GroupNumber, key: Option<Key>) -> Vec<EarlyMessage> {
        let held = self.held.remove(&(group, key)).unwrap_or_default();
        for one in &held {
            *self.bytes.entry(one.0).or_default() -= weight(one);
        }
        held
    }

    /// The peer is lost: what it had sent for later is of no use.
    pub(super) fn drop_peer(&mut self, peer: usize) {
        self.held.values_mut().for_each(|held| held.retain(|one| one.0 != peer));
        self.held.retain(|_, held| !held.is_empty());
        self.bytes.remove(&peer);
    }

    /// The group is closed: nobody will ask for it.
    pub(super) fn drop_group(&mut self, number: GroupNumber) {
        let of_group: Vec<_> = self.held.keys().filter(|(group, _)| *group == number).copied().collect();
        of_group.into_iter().for_each(|(group, key)| drop(self.take(group, key)));
    }

    /// Something of that peer is held.
    pub(super) fn holds_of(&self, peer: usize) -> bool {
        self.bytes.get(&peer).is_some_and(|&bytes| bytes > 0)
    }

    /// How many bytes are held.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.values().sum()
    }

    /// Whether no message is held.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The operations that somebody has spoken of.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.held.keys().filter_map(|(_, key)| key.as_ref())
    }
}

fn weight((_, _, received): &EarlyMessage) -> u64 {
    (MESSAGE_BYTES + received.bytes.len() + size_of_val(&received.missing[..])) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::message::Kind;

    const GROUP: GroupNumber = GroupNumber::from_bits(1);

    fn held(peer: usize, op: u64, bytes: usize) -> (Key, EarlyMessage) {
        let key = Key { group: GROUP, op, peer: None };
        (key, (peer, Message::new(Kind::Carried, GROUP, op), vec![0; bytes].into()))
    }

    #[test]
    fn a_peer_may_be_so_far_ahead_and_no_further() {
        let mut early = EarlyMessages::new(1000);
        let (key, one) = held(0, 1, 900);
        assert!(early.keep(Some(key), one));
        let (other, two) = held(1, 1, 900);
        assert!(early.keep(Some(other), two), "another peer has its own measure");
        let (late, three) = held(0, 2, 900);
        assert!(!early.keep(Some(late), three));
    }

    #[test]
    fn what_was_taken_weighs_nothing() {
        let mut early = EarlyMessages::new(1000);
        for op in 0..10 {
            let (key, one) = held(0, op, 900);
            assert!(early.keep(Some(key), one));
            assert_eq!(early.take(GROUP, Some(key)).len(), 1);
            let (_, two) = held(0, op, 900);
            assert!(early.keep(None, two));
            assert_eq!(early.take(GROUP, None).len(), 1);
            let (key, three) = held(0, op, 900);
            assert!(early.keep(Some(key), three));
            early.drop_group(GROUP);
            assert!(early.keep(None, held(0, op, 900).1));
            early.drop_group(GROUP);
            assert!(early.is_empty());
        }
    }
}
