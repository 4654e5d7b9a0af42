//! What the threads that drive the engine have in common.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tweed_proto::engine::{Engine, EngineError, Event, Settings, MOST_AHEAD_BYTES};

use super::callbacks::Callbacks;
use super::live::{page_of, Inbox, Live};
use super::watcher::{Watcher, WatcherHandle};
use crate::link::buffer_pool::BufferPool;
use crate::link::lease::{ProcessPage, MOST_LEASES};
use crate::link::shared_memory::Arena;
use crate::link::withdrawn::Withdrawn;
use crate::ltp::endpoints::DatagramEndpoints;
use crate::ltp::{Handler, PacketMessage};
use crate::operation::op::Op;
use crate::sync::{LockRank, Mutex};

pub(crate) struct Driver {
    /// The process that started it.
    pub(crate) process: u32,
    pub(crate) arena: Arc<Arena>,
    /// Where the page lies that peers see.
    pub(crate) page: u64,
    pub(crate) began: Instant,
    pub(crate) engine: Mutex<Engine<Live>>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) endpoints: Arc<DatagramEndpoints>,
    pub(crate) watcher: Arc<WatcherHandle>,
    pub(super) pool: Arc<BufferPool>,
    withdrawn: Arc<Withdrawn>,
    pub(crate) callbacks: Callbacks,
    /// Held by the caller that drives while it waits.
    pub(super) seat: Mutex<()>,
    pub(crate) stopping: AtomicBool,
}

impl Driver {
    /// No thread runs yet.
    pub(crate) fn open(
        deadline: Option<Duration>,
        traces: Option<PathBuf>,
    ) -> io::Result<(Arc<Driver>, Watcher)> {
        let arena = Arc::new(Arena::new()?);
        let page = arena.take(size_of::<ProcessPage>() as u64).ok_or(io::ErrorKind::OutOfMemory)?;
        let (watcher, handle) = Watcher::new()?;
        let settings = Settings {
            deadline,
            records: traces.is_some(),
            leases: MOST_LEASES,
            ahead_bytes: MOST_AHEAD_BYTES,
        };
        let live = Live {
            arena,
            page,
            inbox: Arc::new(Mutex::new(LockRank::Inbox, Vec::new())),
            endpoints: Arc::default(),
            watcher: Arc::new(handle),
            pool: Arc::default(),
            withdrawn: Arc::default(),
            traces,
            links: Vec::new(),
            unsealed: Vec::new(),
            datagrams: BTreeMap::new(),
            status: BTreeMap::new(),
            began: Instant::now(),
            paces: false,
            lines: Vec::new(),
        };
        let driver = Driver {
            process: std::process::id(),
            arena: Arc::clone(&live.arena),
            page,
            began: live.began,
            inbox: Arc::clone(&live.inbox),
            endpoints: Arc::clone(&live.endpoints),
            watcher: Arc::clone(&live.watcher),
            pool: Arc::clone(&live.pool),
            withdrawn: Arc::clone(&live.withdrawn),
            engine: Mutex::new(LockRank::Engine, Engine::new(live, settings)),
            callbacks: Callbacks::default(),
            seat: Mutex::new(LockRank::Seat, ()),
            stopping: AtomicBool::new(false),
        };
        Ok((Arc::new(driver), watcher))
    }

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
        let Some(offset) = self.arena.mapping.offset_of(address, 0) else { return };
        let Some(bytes) = self.arena.length(offset) else { return };
        // A block that a stopped peer may still write to is never used again.
        if !self.withdrawn.contains(offset, bytes) {
            self.arena.free(address);
        }
    }

    /// What a socket for packets reports to. It holds no driver, as the driver holds the socket.
    pub(crate) fn event_sink(&self) -> Arc<EventSink> {
        let (arena, inbox, pool) = (Arc::clone(&self.arena), Arc::clone(&self.inbox), Arc::clone(&self.pool));
        Arc::new(EventSink { arena, page: self.page, inbox, pool })
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

/// What the thread of a socket for packets has of its node: where to put what has come, and how to wake who drives.
pub(crate) struct EventSink {
    arena: Arc<Arena>,
    page: u64,
    inbox: Arc<Inbox>,
    pool: Arc<BufferPool>,
}

impl EventSink {
    fn post(&self, event: Event<Arc<Op>>) {
        self.inbox.lock().push(event);
        page_of(&self.arena, self.page).wakeup.ring_all();
    }
}

impl Handler for EventSink {
    fn buffer(&self, bytes: usize) -> Vec<u8> {
        self.pool.take(bytes)
    }

    fn received(&self, peer: usize, packet_message: PacketMessage) {
        self.post(Event::Received(peer, packet_message));
    }

    fn delivered(&self, _peer: usize, ticket: u64, missing: Vec<Range<u32>>) {
        self.post(Event::Delivered(ticket, missing));
    }

    fn broken(&self, peer: usize, why: String) {
        self.post(Event::Lost(peer, format!("its packets make no sense: {why}")));
    }
}
