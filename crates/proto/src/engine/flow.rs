//! Back-pressure on wires: how far a rank may run ahead of a peer.
//!
//! What comes for an operation that the receiver has not begun lies in the receiver's memory. So a sender counts, for
//! each peer and group, the bytes of operations that the peer is not known to have begun, and holds values back once
//! there are [`MOST_AHEAD_BYTES`] of them. Operations are begun in order: all collectives of a group one after the other,
//! and the sends with one tag to one rank one after the other (a *lane*). So any message of the peer about an operation
//! shows that it has begun that one, and those before it in its lane. Where the peer would send none in time, it sends
//! `Begun`: for a large operation, and whenever something comes early of a peer that may not know how far this rank is.
//!
//! What has begun is never held back: otherwise a rank that waits for an early operation could wait for ever behind later
//! ones. A peer that has begun nothing gets at least one value.

use std::collections::{BTreeMap, VecDeque};

use super::host::Ticket;
use super::p2p::lane;

/// A peer may be sent so much that it has not asked for.
pub const MOST_AHEAD_BYTES: u64 = 64 << 20;
/// A receiver sends `Begun` for an operation that brings it so many bytes from one peer, and after as many bytes of
/// smaller ones as make up a quarter of what the sender may be ahead.
const LARGE_BYTES: u64 = 256 << 10;

/// What one peer was sent.
#[derive(Debug, Default)]
struct Ahead {
    /// For each lane, the operation below which it has begun all.
    begun: BTreeMap<u64, u64>,
    /// Bytes by lane and operation that it is not known to have begun; and their sum.
    unbegun: BTreeMap<(u64, u64), u64>,
    bytes: u64,
    held: VecDeque<(u64, u64, Ticket)>,
}

/// What came from one peer.
#[derive(Debug, Default)]
struct Behind {
    /// Bytes of operations that were begun since the peer was last shown how far this rank has come.
    unshown: u64,
    /// The latest of these operations, by lane.
    latest: BTreeMap<u64, u64>,
}

/// The flow of one group's values, by peer.
#[derive(Debug)]
pub(super) struct Flow {
    most: u64,
    ahead: BTreeMap<usize, Ahead>,
    behind: BTreeMap<usize, Behind>,
}

impl Flow {
    /// A peer may be sent so many bytes that it has not asked for.
    pub(super) fn new(most: u64) -> Flow {
        Flow { most, ahead: BTreeMap::new(), behind: BTreeMap::new() }
    }

    /// A value of operation `op` wants to leave. `false`: it is held back, and comes out of [`Flow::handle_begun`].
    #[must_use]
    pub(super) fn admit(&mut self, peer: usize, op: u64, bytes: u64, ticket: Ticket) -> bool {
        let ahead = self.ahead.entry(peer).or_default();
        if ahead.has_begun(op) || ahead.fits(bytes, self.most) {
            ahead.count(op, bytes);
            return true;
        }
        ahead.held.push_back((op, bytes, ticket));
        false
    }

    /// The peer has sent something about operation `op`. What may leave now.
    #[must_use]
    pub(super) fn handle_begun(&mut self, peer: usize, op: u64) -> Vec<Ticket> {
        // Also of a peer that was sent nothing yet: it will not say so again.
        let ahead = self.ahead.entry(peer).or_default();
        if !ahead.begin(op) {
            return Vec::new();
        }
        let mut free = Vec::new();
        for (op, bytes, ticket) in std::mem::take(&mut ahead.held) {
            if ahead.has_begun(op) || (ahead.held.is_empty() && ahead.fits(bytes, self.most)) {
                ahead.count(op, bytes);
                free.push(ticket);
            } else {
                ahead.held.push_back((op, bytes, ticket));
            }
        }
        free
    }

    /// An operation has failed: its values leave no more.
    pub(super) fn forget(&mut self, run: u64) {
        self.ahead.values_mut().for_each(|ahead| ahead.held.retain(|(.., ticket)| ticket.run != run));
    }

    /// The peer is lost. What was held back for it leaves no more.
    #[must_use]
    pub(super) fn drop_peer(&mut self, peer: usize) -> Vec<Ticket> {
        let ahead = self.ahead.remove(&peer).unwrap_or_default();
        ahead.held.into_iter().map(|(.., ticket)| ticket).collect()
    }

    /// This rank begins an operation that brings it `bytes` bytes from `peer`, which is known to be `ahead`. The operations
    /// that the peer must be sent `Begun` for.
    #[must_use]
    pub(super) fn begin(&mut self, peer: usize, op: u64, bytes: u64, ahead: bool) -> Vec<u64> {
        let behind = self.behind.entry(peer).or_default();
        behind.unshown += bytes;
        behind.latest.insert(lane(op).0, op);
        match ahead || bytes >= LARGE_BYTES.min(self.most) || behind.unshown >= self.most / 4 {
            true => self.show(peer),
            false => Vec::new(),
        }
    }

    /// The peer is ahead: it may be holding values back. The operations that it must be sent `Begun` for.
    #[must_use]
    pub(super) fn show(&mut self, peer: usize) -> Vec<u64> {
        let Some(behind) = self.behind.get_mut(&peer) else { return Vec::new() };
        behind.unshown = 0;
        std::mem::take(&mut behind.latest).into_values().collect()
    }

    /// Some value is held back.
    pub(super) fn holds(&self) -> bool {
        self.ahead.values().any(|ahead| !ahead.held.is_empty())
    }
}

impl Ahead {
    fn has_begun(&self, op: u64) -> bool {
        let (lane, index) = lane(op);
        self.begun.get(&lane).is_some_and(|&begun| index < begun)
    }

    fn fits(&self, bytes: u64, most: u64) -> bool {
        self.bytes == 0 || self.bytes + bytes <= most
    }

    fn count(&mut self, op: u64, bytes: u64) {
        if !self.has_begun(op) {
            *self.unbegun.entry(lane(op)).or_default() += bytes;
            self.bytes += bytes;
        }
    }

    /// `false` if that was known.
    fn begin(&mut self, op: u64) -> bool {
        if self.has_begun(op) {
            return false;
        }
        let (lane, index) = lane(op);
        self.begun.insert(lane, index + 1);
        let done: Vec<(u64, u64)> = self.unbegun.range((lane, 0)..=(lane, index)).map(|(&k, _)| k).collect();
        self.bytes -= done.iter().filter_map(|key| self.unbegun.remove(key)).sum::<u64>();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(run: u64) -> Ticket {
        Ticket { run, send: 0, output: 0, slice: 0, to: 0 }
    }

    #[test]
    fn what_the_peer_has_not_begun_is_held_back_in_order() {
        let (mut flow, half) = (Flow::new(MOST_AHEAD_BYTES), MOST_AHEAD_BYTES / 2);
        let left: Vec<bool> = (0..4).map(|op| flow.admit(1, op, half, ticket(op))).collect();
        assert_eq!(left, [true, true, false, false]);
        assert_eq!(flow.handle_begun(1, 0), [ticket(2)]);
        assert_eq!(flow.handle_begun(1, 3), [ticket(3)]);
        assert!(!flow.holds());
    }

    #[test]
    fn what_has_begun_leaves_however_much_is_ahead() {
        let mut flow = Flow::new(MOST_AHEAD_BYTES);
        assert!(flow.admit(1, 7, 10 * MOST_AHEAD_BYTES, ticket(7)), "the first value always leaves");
        assert!(!flow.admit(1, 8, 1, ticket(8)));
        assert!(flow.handle_begun(1, 5).is_empty());
        assert!(flow.admit(1, 5, MOST_AHEAD_BYTES, ticket(5)));
        flow.forget(8);
        assert!(flow.handle_begun(1, 9).is_empty());
    }

    #[test]
    fn what_the_peer_has_begun_counts_even_before_it_was_sent_anything() {
        let mut flow = Flow::new(MOST_AHEAD_BYTES);
        assert!(flow.handle_begun(1, 0).is_empty());
        assert!(flow.admit(1, 1, 8, ticket(1)), "a later operation goes first");
        assert!(flow.admit(1, 0, 2 * MOST_AHEAD_BYTES, ticket(0)));
    }

    #[test]
    fn receivers_show_how_far_they_are() {
        let mut flow = Flow::new(MOST_AHEAD_BYTES);
        assert_eq!(flow.begin(1, 0, 8, true), [0]);
        assert_eq!(flow.begin(1, 1, LARGE_BYTES, false), [1]);
        let shown = (2..).find(|&op| !flow.begin(1, op, LARGE_BYTES - 1, false).is_empty());
        let expected = 1 + (MOST_AHEAD_BYTES / 4).div_ceil(LARGE_BYTES - 1);
        assert_eq!(shown, Some(expected));
    }
}
