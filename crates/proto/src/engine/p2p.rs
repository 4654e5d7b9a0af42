//! Numbers of point-to-point operations: the n-th send of a tag meets the n-th receive of that tag.

use std::collections::BTreeMap;

use tweed_schedule::Rank;

use super::operation::{Draft, Key};
use super::request::Operation;

const POINT_TO_POINT: u64 = 1 << 63;
/// The sender's rank is the smaller one: tells the two directions between a pair apart.
const UPWARD: u64 = 1 << 62;
const COUNT_BITS: u32 = 30;

/// How many operations there have been, by peer, tag and direction.
#[derive(Default)]
pub(crate) struct Numbers {
    counts: BTreeMap<(Rank, u64), u64>,
}

impl Numbers {
    pub(crate) fn is_point_to_point(op: u64) -> bool {
        op & POINT_TO_POINT != 0
    }

    /// The key of the next send or receive; `None` for a collective.
    pub(crate) fn take<C>(&mut self, draft: &Draft<C>) -> Option<Key> {
        let me = draft.group.rank;
        let (peer, base) = match draft.request.operation {
            Operation::Send { to, tag } => (to, base(me, to, tag)),
            Operation::Receive { from: Some(from), tag } => (from, base(from, me, tag)),
            _ => return None,
        };
        let op = self.next(peer, base);
        Some(Key { group: draft.group.number, op, peer: Some(peer) })
    }

    /// The operation that `peer` knows by that number has been called here, too.
    pub(crate) fn is_past(&self, peer: Rank, op: u64) -> bool {
        let count = op & ((1 << COUNT_BITS) - 1);
        self.counts.get(&(peer, op - count)).is_some_and(|&called| called > count)
    }

    /// A receive from anybody: the first sender among `early` whose turn it is.
    pub(crate) fn find_sender<'a, C>(
        &mut self,
        draft: &Draft<C>,
        early: impl Iterator<Item = &'a Key>,
    ) -> Option<Key> {
        let Operation::Receive { from: None, tag } = draft.request.operation else { return None };
        let mine = early.filter(|k| k.group == draft.group.number);
        let due = |key: &&Key| {
            let peer = key.peer.unwrap_or(u32::MAX);
            let base = base(peer, draft.group.rank, tag);
            key.peer.is_some() && key.op == base | self.counts.get(&(peer, base)).copied().unwrap_or(0)
        };
        let key = *mine.filter(|k| k.peer != Some(u32::MAX)).find(due)?;
        self.next(key.peer?, base(key.peer?, draft.group.rank, tag));
        Some(key)
    }

    /// The number of the send that a receive from anybody would take from `from`.
    pub(super) fn expected<C>(&self, draft: &Draft<C>, from: Rank) -> Option<u64> {
        let Operation::Receive { from: None, tag } = draft.request.operation else { return None };
        let base = base(from, draft.group.rank, tag);
        Some(base | (self.counts.get(&(from, base)).copied().unwrap_or(0) & ((1 << COUNT_BITS) - 1)))
    }

    fn next(&mut self, peer: Rank, base: u64) -> u64 {
        let count = self.counts.entry((peer, base)).or_default();
        *count += 1;
        base | ((*count - 1) & ((1 << COUNT_BITS) - 1))
    }
}

/// The operations of one lane are begun in order: all collectives of a group, or the sends of one tag from one rank to
/// another. Which lane, and which place in it.
pub(super) fn lane(op: u64) -> (u64, u64) {
    if !Numbers::is_point_to_point(op) {
        return (0, op);
    }
    let place = op & ((1 << COUNT_BITS) - 1);
    (op - place, place)
}

fn base(from: Rank, to: Rank, tag: u32) -> u64 {
    POINT_TO_POINT | if from < to { UPWARD } else { 0 } | u64::from(tag) << COUNT_BITS
}
