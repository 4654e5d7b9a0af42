//! Who may touch what an operation has exposed in shared memory, and when it may be used for something else.
//!
//! Each operation that exposes memory holds one lease: a word in the owner's shared memory, which contains a generation
//! while the lease is valid. The messages that announce values carry slot and generation. A peer that is about to touch
//! such memory first writes into a word of its own, next to the owner's queue, that it does (the claim), and then looks
//! at the lease; only if that is still valid does it go on, and clears the claim afterwards. An owner that ends an
//! operation changes the lease's word, and then looks at the claims. Each side writes before it reads, so at least one
//! of them sees the other: either the peer finds the lease revoked and touches nothing, or the owner finds the claim and
//! keeps the memory as it is until the peer has let go or is gone.
//!
//! What cannot happen: a peer that was late, or stopped, reads a block that holds another operation's values by then,
//! or writes into it.

use super::host::{Address, Host, Lease, Time};
use super::peers::Peers;

/// A peer that holds on to a caller's memory for longer is stopped: the memory is taken away from it.
pub(super) const HOLD: Time = Time::from_millis(100);

/// What a peer still touches, although its operation has ended here.
pub(super) struct Kept<E> {
    lease: Lease,
    peers: Vec<usize>,
    block: Option<u64>,
    caller: Option<Caller<E>>,
}

/// A caller whose memory was exposed.
struct Caller<E> {
    exposed: Vec<(Address, u64)>,
    /// He waits until then at most.
    until: Time,
    end: E,
}

/// The slots of this process's table of leases, and what cannot be given back yet.
pub(super) struct Leases<E> {
    free: Vec<u32>,
    /// The generation of each slot.
    generations: Vec<u32>,
    most: u32,
    kept: Vec<Kept<E>>,
}

/// What an operation that has ended leaves behind.
pub(super) struct Leftover<E> {
    pub(super) lease: Option<Lease>,
    /// The processes that could touch it.
    pub(super) peers: Vec<usize>,
    /// Its block of shared memory.
    pub(super) block: Option<u64>,
    /// The caller's memory that peers could touch.
    pub(super) exposed: Vec<(Address, u64)>,
    /// The caller's result, if he has none yet.
    pub(super) end: Option<E>,
}

impl<E> Leases<E> {
    pub(super) fn new(most: u32) -> Leases<E> {
        Leases { free: Vec::new(), generations: Vec::new(), most, kept: Vec::new() }
    }

    /// A lease for an operation that begins; `None` if all slots are taken.
    pub(super) fn grant(&mut self, host: &mut impl Host) -> Option<Lease> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.generations.len() as u32 == self.most => return None,
            None => {
                self.generations.push(0);
                self.generations.len() as u32 - 1
            }
        };
        let generation = &mut self.generations[slot as usize];
        *generation = generation.wrapping_add(1).max(1);
        let lease = Lease { slot, generation: *generation };
        host.grant(lease);
        Some(lease)
    }

    /// An operation has ended: gives its memory back, now or when nobody touches it any more. Returns what the caller is
    /// to be told, if that is now.
    #[must_use]
    pub(super) fn end(
        &mut self,
        left: Leftover<E>,
        now: Time,
        peers: &Peers,
        host: &mut impl Host,
    ) -> Option<E> {
        let Leftover { lease, peers: mut readers, block, exposed, end } = left;
        let Some(lease) = lease else {
            block.into_iter().for_each(|block| host.release(block));
            return end;
        };
        host.revoke(lease);
        readers.retain(|&peer| !peers.is_lost(peer) && host.is_claimed(peer, lease));
        if readers.is_empty() {
            self.give_back(lease, block, host);
            return end;
        }
        let (caller, due) = match end {
            Some(end) if !exposed.is_empty() => (Some(Caller { exposed, until: now + HOLD, end }), None),
            end => (None, end),
        };
        self.kept.push(Kept { lease, peers: readers, block, caller });
        due
    }

    fn give_back(&mut self, lease: Lease, block: Option<u64>, host: &mut impl Host) {
        block.into_iter().for_each(|block| host.release(block));
        self.free.push(lease.slot);
    }

    /// Gives back what nobody touches any more. Returns what callers are to be told now.
    #[must_use]
    pub(super) fn tend(&mut self, now: Time, peers: &Peers, host: &mut impl Host) -> Vec<E> {
        let mut ended = Vec::new();
        for mut kept in std::mem::take(&mut self.kept) {
            kept.peers.retain(|&peer| !peers.is_lost(peer) && host.is_claimed(peer, kept.lease));
            if kept.peers.is_empty() {
                self.give_back(kept.lease, kept.block, host);
                ended.extend(kept.caller.map(|caller| caller.end));
                continue;
            }
            if let Some(caller) = kept.caller.take_if(|caller| now >= caller.until) {
                caller.exposed.into_iter().for_each(|(at, bytes)| host.make_private(at, bytes));
                ended.push(caller.end);
            }
            self.kept.push(kept);
        }
        ended
    }

    /// When a caller has waited long enough for a peer that holds his memory.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.kept.iter().filter_map(|kept| kept.caller.as_ref().map(|caller| caller.until)).min()
    }

    /// Nothing is held back.
    pub(super) fn is_idle(&self) -> bool {
        self.kept.is_empty()
    }
}
