//! Links to peers: shared memory within a host, TCP between hosts.

mod blocks;
pub(crate) mod buffer_pool;
pub(crate) mod fork;
pub(crate) mod futex;
pub(crate) mod lease;
pub(crate) mod reader;
pub(crate) mod shared_memory;
pub(crate) mod shm_queue;
pub(crate) mod sockopt;
pub(crate) mod stats;
pub(crate) mod stream;
pub(crate) mod tcp_timeouts;
pub(crate) mod wakeup;
pub(crate) mod withdrawn;
