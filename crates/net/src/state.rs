//! What the threads of a node have in common.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;

use tweed_proto::engine::{Engine, EngineError};

use crate::connect::admission::listener::Listener;
use crate::connect::admission::pending::Pending;
use crate::connect::admission::{Keys, Refusals};
use crate::connect::descriptor::PeerDescriptor;
use crate::connect::directory::Directory;
use crate::connect::tcp_handshake::Link;
use crate::engine::callbacks::Callbacks;
use crate::engine::live::{Inbox, Live};
use crate::engine::watcher::Post;
use crate::link::buffer_pool::BufferPool;
use crate::link::shared_memory::Arena;
use crate::link::withdrawn::Withdrawn;
use crate::ltp::endpoints::DatagramEndpoints;
use crate::node::NodeOptions;
use crate::sync::{Condvar, Mutex};

/// What the threads of a node have in common.
pub(crate) struct Inner {
    pub(crate) options: NodeOptions,
    pub(crate) card: PeerDescriptor,
    pub(crate) process: u32,
    pub(crate) arena: Arc<Arena>,
    /// Where the page lies that peers see.
    pub(crate) page: u64,
    pub(crate) began: Instant,
    pub(crate) engine: Mutex<Engine<Live>>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) endpoints: Arc<DatagramEndpoints>,
    pub(crate) watcher: Arc<Post>,
    pub(crate) pool: Arc<BufferPool>,
    pub(crate) withdrawn: Arc<Withdrawn>,
    pub(crate) callbacks: Callbacks,
    /// Held by the caller that drives while it waits.
    pub(crate) seat: Mutex<()>,
    /// Held while a group is joined.
    pub(crate) joining: Mutex<()>,
    /// `None` without a secret.
    pub(crate) keys: Option<Keys>,
    /// `None` if it only dials out.
    pub(crate) listener: Option<Arc<Listener>>,
    /// Which processes it has met, by which calls.
    pub(crate) directory: Mutex<Directory>,
    /// How many calls it has made.
    pub(crate) attempts: AtomicU64,
    /// Who has called and was not named by a group yet.
    pub(crate) pending: Mutex<Pending<Link>>,
    /// A connection became pending, or a peer.
    pub(crate) met: Condvar,
    pub(crate) refusals: Refusals,
    pub(crate) stopping: AtomicBool,
}

impl Inner {
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    pub(crate) fn alloc(&self, bytes: u64) -> Option<*mut u8> {
        self.arena.lend(bytes)
    }

    pub(crate) fn free(&self, address: *mut u8) {
        if self.check_process().is_err() {
            return;
        }
        let Some(offset) = self.arena.mapping().offset_of(address, 0) else { return };
        let Some(bytes) = self.arena.length(offset) else { return };
        // A block that a stopped peer may still write to is never used again.
        if !self.withdrawn.contains(offset, bytes) {
            self.arena.free(address);
        }
    }

    pub(crate) fn wire_settings(&self) -> String {
        let system =
            || std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap_or_default();
        let congestion = self.options.congestion.clone().unwrap_or_else(system);
        let sealed = if self.keys.is_some() { "sealed" } else { "not sealed" };
        let streams = self.options.streams;
        format!("{streams} TCP streams per pair, {sealed}, congestion control {}", congestion.trim())
    }

    /// Refuses to work in a fork of the process that started the engine.
    pub(crate) fn check_process(&self) -> Result<(), EngineError> {
        let here = std::process::id();
        if here == self.process {
            return Ok(());
        }
        Err(EngineError::Forked(format!(
            "process {here} is a fork of process {}, which had started the engine: its threads and links did not come along. \
             Fork first and call init_process_group in the child, or start ranks with spawn or forkserver",
            self.process
        )))
    }
}
