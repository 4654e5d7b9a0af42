//! Whether two ranks can share memory: by their descriptors, before they meet.
//!
//! Same boot of one kernel *and* same network namespace: so a testbed's shaped links are never bypassed.

use crate::connect::descriptor::PeerDescriptor;

impl PeerDescriptor {
    /// Both may share memory: same boot, same network namespace, and both willing.
    pub(crate) fn shares_memory_with(&self, other: &PeerDescriptor) -> bool {
        let willing = !self.wire_only && !other.wire_only;
        willing && !self.network_differs(other)
    }

    /// Each can open what the other has mapped, by its number: so numbers of processes count alike for both.
    pub(crate) fn shows_memory_to(&self, other: &PeerDescriptor) -> bool {
        self.shares_memory_with(other) && self.pids == other.pids
    }

    /// They run on different machines, or in different network namespaces.
    pub(crate) fn network_differs(&self, other: &PeerDescriptor) -> bool {
        self.boot != other.boot || self.network != other.network
    }
}

/// The kernel's name for this boot.
pub(crate) fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map_or_else(|_| String::new(), |s| s.trim().to_owned())
}
