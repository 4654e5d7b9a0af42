//! The words in shared memory by which leases are granted, claimed and revoked; `tweed_proto::engine` says how.
//!
//! The table lies behind the wake-up word, on the page that all peers see. The claim lies behind the queue that the peer
//! puts into: only it writes there. Both sides write their own word before they read the other's, in one total order.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use tweed_proto::engine::Lease;

use super::shm_queue::ShmQueue;
use super::wakeup::Wakeup;

/// So many operations of a process may expose memory at a time.
pub(crate) const MOST_LEASES: u32 = 1 << 14;

/// What a process shows to all its peers. All zero is a process that sleeps, and has granted nothing.
#[repr(C, align(64))]
pub(crate) struct ProcessPage {
    pub(crate) wakeup: Wakeup,
    /// The generation of the valid lease in each slot; 0 where there is none.
    leases: [AtomicU32; MOST_LEASES as usize],
}

impl ProcessPage {
    pub(crate) fn grant(&self, lease: Lease) {
        self.leases[lease.slot as usize].store(lease.generation, SeqCst);
    }

    pub(crate) fn revoke(&self, lease: Lease) {
        self.leases[lease.slot as usize].store(0, SeqCst);
    }

    /// Slots come from peers, too.
    pub(crate) fn is_valid(&self, lease: Lease) -> bool {
        let word = self.leases.get(lease.slot as usize);
        lease.generation != 0 && word.is_some_and(|word| word.load(SeqCst) == lease.generation)
    }
}

/// What lies in a process's memory for one peer. All zero is an empty queue and no claim.
#[repr(C, align(64))]
pub(crate) struct PeerArea {
    /// The peer puts in, the owner takes.
    pub(crate) queue: ShmQueue,
    claim: AtomicU64,
}

impl PeerArea {
    /// The peer is about to touch what the owner has exposed under this lease.
    pub(crate) fn claim(&self, lease: Lease) {
        self.claim.store(token(lease), SeqCst);
    }

    /// It touches it no more.
    pub(crate) fn let_go(&self) {
        self.claim.store(0, SeqCst);
    }

    pub(crate) fn is_claimed(&self, lease: Lease) -> bool {
        self.claim.load(SeqCst) == token(lease)
    }
}

fn token(Lease { slot, generation }: Lease) -> u64 {
    u64::from(slot) << 32 | u64::from(generation)
}
