//! Back-pressure on wires: how far a rank may run ahead of a peer.
//!
//! What comes for an operation that the receiver has not begun lies in the receiver's memory. So a sender counts, for
//! each peer and group, the bytes of operations that the peer is not known to have begun, and holds values back once
//! there are [`MOST_AHEAD_BYTES`] of them. Operations are begun in order: all collectives of a group one after the other,
//! and the sends with one tag to one rank one after the other (a *lane*). So any message of the peer about an operation
//! shows that it has begun that one, and those before it in its lane. Where the peer would send none in time, it sends
//! `Begun`: for a large operation, and whenever something comes early of a peer that may not know how far this rank is.
//!
//! Of what is held back, the most urgent is the first to leave.
//!
//! What has begun is never held back: otherwise a rank that waits for an early operation could wait for ever behind later
//! ones. A peer that has begun nothing gets at least one value.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::host::Ticket;
use super::p2p::lane;

/// A peer may be sent so much that it has not asked for.
pub const MOST_AHEAD_BYTES: u64 = 64 << 20;
/// A receiver sends `Begun` for an operation that brings it so many bytes from one peer, and after as many bytes of
/// smaller ones as make up a quarter of what the sender may be ahead.
const LARGE_BYTES: u64 = 256 << 10;

/// A value that wants to leave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value {
    /// Its operation, whose urgency it has.
    pub(super) op: u64,
    pub(super) urgency: i32,
    pub(super) bytes: u64,
    pub(super) ticket: Ticket,
}

/// What one peer was sent.
#[derive(Debug, Default)]
struct Ahead {
    /// For each lane, the operation below which it has begun all.
    begun: BTreeMap<u64, u64>,
    /// Bytes by lane and operation that it is not known to have begun; and their sum.
    unbegun: BTreeMap<(u64, u64), u64>,
    bytes: u64,
    /// The most urgent first.
    held: Vec<Value>,
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

    /// A value wants to leave. `false`: it is held back, and comes out of [`Flow::handle_begun`].
    #[must_use]
    pub(super) fn admit(&mut self, peer: usize, value: Value) -> bool {
        let ahead = self.ahead.entry(peer).or_default();
        if ahead.has_begun(value.op) || ahead.fits(value.bytes, self.most) {
            ahead.count(value.op, value.bytes);
            return true;
        }
        let place = ahead.held.partition_point(|before| before.urgency >= value.urgency);
        ahead.held.insert(place, value);
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
        for value in std::mem::take(&mut ahead.held) {
            let fits = ahead.held.is_empty() && ahead.fits(value.bytes, self.most);
            if fits || ahead.has_begun(value.op) {
                ahead.count(value.op, value.bytes);
                free.push(value.ticket);
            } else {
                ahead.held.push(value);
            }
        }
        free
    }

    /// An operation has failed: its values leave no more.
    pub(super) fn forget(&mut self, run: u64) {
        self.ahead.values_mut().for_each(|ahead| ahead.held.retain(|value| value.ticket.run != run));
    }

    /// Values of an operation become so urgent.
    pub(super) fn lift(&mut self, run: u64, urgency: i32) {
        for held in self.ahead.values_mut().map(|ahead| &mut ahead.held) {
            held.iter_mut().filter(|value| value.ticket.run == run).for_each(|value| value.urgency = urgency);
            held.sort_by_key(|value| Reverse(value.urgency));
        }
    }

    /// The peer is lost. What was held back for it leaves no more.
    #[must_use]
    pub(super) fn drop_peer(&mut self, peer: usize) -> Vec<Ticket> {
        let ahead = self.ahead.remove(&peer).unwrap_or_default();
        ahead.held.into_iter().map(|value| value.ticket).collect()
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

    fn value(op: u64, bytes: u64) -> Value {
        Value { op, urgency: 0, bytes, ticket: ticket(op) }
    }

    #[test]
    fn of_what_is_held_back_the_most_urgent_leaves_first() {
        let mut flow = Flow::new(8);
        let urgent = |op, urgency| Value { urgency, ..value(op, 8) };
        assert!(flow.admit(1, value(0, 8)));
        let held = [urgent(1, 0), urgent(2, 1), urgent(3, 0), urgent(4, 1)];
        assert!(held.into_iter().all(|value| !flow.admit(1, value)));
        flow.lift(3, 2);
        assert_eq!(flow.handle_begun(1, 0), [ticket(3)]);
        assert_eq!(flow.handle_begun(1, 3), [2, 4, 1].map(ticket), "there is room for one more");
        assert!(!flow.holds());
    }

    #[test]
    fn what_the_peer_has_not_begun_is_held_back_in_order() {
        let (mut flow, half) = (Flow::new(MOST_AHEAD_BYTES), MOST_AHEAD_BYTES / 2);
        let left: Vec<bool> = (0..4).map(|op| flow.admit(1, value(op, half))).collect();
        assert_eq!(left, [true, true, false, false]);
        assert_eq!(flow.handle_begun(1, 0), [ticket(2)]);
        assert_eq!(flow.handle_begun(1, 3), [ticket(3)]);
        assert!(!flow.holds());
    }

    #[test]
    fn what_has_begun_leaves_however_much_is_ahead() {
        let mut flow = Flow::new(MOST_AHEAD_BYTES);
        assert!(flow.admit(1, value(7, 10 * MOST_AHEAD_BYTES)), "the first value always leaves");
        assert!(!flow.admit(1, value(8, 1)));
        assert!(flow.handle_begun(1, 5).is_empty());
        assert!(flow.admit(1, value(5, MOST_AHEAD_BYTES)));
        flow.forget(8);
        assert!(flow.handle_begun(1, 9).is_empty());
    }

    #[test]
    fn what_the_peer_has_begun_counts_even_before_it_was_sent_anything() {
        let mut flow = Flow::new(MOST_AHEAD_BYTES);
        assert!(flow.handle_begun(1, 0).is_empty());
        assert!(flow.admit(1, value(1, 8)), "a later operation goes first");
        assert!(flow.admit(1, value(0, 2 * MOST_AHEAD_BYTES)));
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
