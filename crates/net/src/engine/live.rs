//! The engine's [`Host`]: this process.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use tweed_proto::engine::message::Message;
use tweed_proto::engine::striping::{Losses, Striping};
use tweed_proto::engine::{Address, Event, GroupNumber, Host, Lease, Payload, Ticket};
use tweed_proto::late::{Activity, Process, RankStatus};
use tweed_proto::ltp::Outgoing;
use tweed_proto::Trace;
use tweed_schedule::Rank;

use super::peer_status::{activity, PeerStatus};
use super::watcher::{Watch, WatcherHandle};
use crate::link::buffer_pool::BufferPool;
use crate::link::lease::{PeerArea, ProcessPage};
use crate::link::shared_memory::{Arena, Mapping};
use crate::link::shm_queue::ShmQueue;
use crate::link::stream::Stream;
use crate::link::withdrawn::Withdrawn;
use crate::ltp::endpoints::DatagramEndpoints;
use crate::ltp::Datagrams;
use crate::operation::op::Op;
use crate::sync::Mutex;

/// What waits for the engine's lock.
pub(crate) type Inbox = Mutex<Vec<Event<Arc<Op>>>>;

/// The memory of a peer on this host, and the two areas between us.
pub(crate) struct Shared {
    pub(crate) memory: Mapping,
    /// In the peer's memory: ours to put into, and our claim.
    pub(crate) outgoing: *mut PeerArea,
    /// In our memory: ours to take from, and its claim; and where that lies.
    pub(crate) incoming: *mut PeerArea,
    pub(crate) incoming_at: u64,
    /// In the peer's memory.
    pub(crate) page: *const ProcessPage,
}

// SAFETY: the queues are used under the engine's lock only, one side each; all else is atomic.
unsafe impl Send for Shared {}

/// What leads to a peer.
#[derive(Default)]
pub(crate) struct Links {
    pub(crate) shared: Option<Shared>,
    pub(crate) streams: Vec<Arc<Stream>>,
    pub(crate) striping: Striping,
    /// The process that hands on what goes over the stream, by its uid.
    pub(crate) relay: Option<String>,
}

/// Guarded by the engine's lock.
pub(crate) struct Live {
    pub(crate) arena: Arc<Arena>,
    /// Where this process's page lies.
    pub(crate) page: u64,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) endpoints: Arc<DatagramEndpoints>,
    pub(crate) watcher: Arc<WatcherHandle>,
    pub(crate) withdrawn: Arc<Withdrawn>,
    pub(crate) pool: Arc<BufferPool>,
    /// Where to write down how operations went.
    pub(crate) traces: Option<PathBuf>,
    /// The links to each peer.
    pub(crate) links: Vec<Links>,
    /// Streams to be flushed once the engine's lock is given back: sealing takes long.
    pub(crate) unsealed: Vec<Arc<Stream>>,
    /// The datagrams of each endpoint, by its number.
    pub(crate) datagrams: BTreeMap<u64, Arc<Datagrams>>,
    /// The status of each peer, by group and rank.
    pub(crate) status: BTreeMap<GroupNumber, Vec<PeerStatus>>,
    /// From when on times are counted.
    pub(crate) began: Instant,
    /// Some streams are paced.
    pub(crate) paces: bool,
    /// Lines to be printed once the engine's lock is free.
    pub(crate) lines: Vec<String>,
}

impl Live {
    fn page(&self) -> &ProcessPage {
        page_of(&self.arena, self.page)
    }

    /// Something lies in a queue of shared memory.
    pub(crate) fn has_messages(&self) -> bool {
        let mut shared = self.links.iter().filter_map(|links| links.shared.as_ref());
        // SAFETY: the queue lies in our mapped memory.
        shared.any(|s| !unsafe { ShmQueue::is_empty(&raw const (*s.incoming).queue) })
    }

    fn shared(&self, peer: usize) -> Option<&Shared> {
        self.links.get(peer)?.shared.as_ref()
    }
}

/// The page of this process.
pub(crate) fn page_of(arena: &Arena, offset: u64) -> &ProcessPage {
    let bytes = size_of::<ProcessPage>() as u64;
    let address = arena.mapping.at(offset, bytes).expect("the page lies in the arena");
    // SAFETY: the block was taken for the page, is zeroed by the kernel, and lives as long as the arena; all of it is
    // atomic.
    unsafe { &*address.cast::<ProcessPage>() }
}

impl Host for Live {
    type Call = Arc<Op>;

    fn take_events(&mut self) -> Vec<Event<Arc<Op>>> {
        std::mem::take(&mut *self.inbox.lock())
    }

    fn put(&mut self, peer: usize, message: &Message) -> bool {
        // SAFETY: the queue is mapped while `shared` lives, and the engine's lock makes us the only putter.
        self.shared(peer).is_some_and(|s| unsafe { ShmQueue::put(&raw mut (*s.outgoing).queue, message) })
    }

    fn take(&mut self, peer: usize) -> Option<Message> {
        // SAFETY: the queue lies in our memory, and the engine's lock makes us the only taker.
        self.shared(peer).and_then(|s| unsafe { ShmQueue::take(&raw mut (*s.incoming).queue) })
    }

    fn wake(&mut self, peer: usize, messages: u32) {
        // SAFETY: the page lies in the peer's memory, which is mapped while `shared` lives.
        let Some(page) = self.shared(peer).map(|s| unsafe { &*s.page }) else { return };
        match messages {
            0 => page.wakeup.ring_for_read(),
            messages => page.wakeup.ring(messages),
        }
    }

    fn reserve(&mut self, bytes: u64) -> Option<u64> {
        self.arena.take(bytes)
    }

    fn release(&mut self, offset: u64) {
        self.arena.give(offset);
    }

    fn address(&self, offset: u64) -> Address {
        self.arena.mapping.at(offset, 0).map_or(Address::NULL, Address::from)
    }

    fn offset(&self, at: Address, bytes: u64) -> Option<u64> {
        let offset = self.arena.mapping.offset_of(at.as_ptr(), bytes)?;
        (!self.withdrawn.contains(offset, bytes)).then_some(offset)
    }

    fn peer_address(&mut self, peer: usize, offset: u64, bytes: u64) -> Option<Address> {
        self.shared(peer)?.memory.at(offset, bytes).map(Address::from)
    }

    fn make_private(&mut self, at: Address, bytes: u64) {
        let Some(offset) = self.arena.mapping.offset_of(at.as_ptr(), bytes) else { return };
        if let Err(error) = self.withdrawn.withdraw(&self.arena, offset, bytes) {
            // Better no process than wrong numbers.
            crate::stderr::print_and_abort(&format!(
                "tweed: a peer is stopped while it writes to this process's memory, which cannot be taken away from it ({error})"
            ));
        }
    }

    fn grant(&mut self, lease: Lease) {
        self.page().grant(lease);
    }

    fn revoke(&mut self, lease: Lease) {
        self.page().revoke(lease);
    }

    fn is_claimed(&self, peer: usize, lease: Lease) -> bool {
        // SAFETY: the area lies in our memory while `shared` lives; the claim is atomic.
        self.shared(peer).is_some_and(|s| unsafe { (*s.incoming).is_claimed(lease) })
    }

    fn claim(&mut self, peer: usize, lease: Lease) -> bool {
        let Some(shared) = self.shared(peer) else { return false };
        // SAFETY: area and page lie in the peer's memory, which is mapped while `shared` lives; all is atomic.
        unsafe {
            (*shared.outgoing).claim(lease);
            (*shared.page).is_valid(lease)
        }
    }

    fn let_go(&mut self, peer: usize, lease: Lease) {
        let Some(shared) = self.shared(peer) else { return };
        // SAFETY: as in `claim`.
        unsafe {
            (*shared.outgoing).let_go();
            if !(*shared.page).is_valid(lease) {
                // More than any sleeper asks for.
                (*shared.page).wakeup.ring(1 << 16);
            }
        }
    }

    fn send(
        &mut self,
        peer: usize,
        stream: usize,
        message: &Message,
        payload: Payload,
        urgency: Option<i32>,
    ) {
        if let Some(stream) = self.links[peer].streams.get(stream) {
            stream.queue(message, payload, urgency);
        }
    }

    fn lift(&mut self, run: u64, urgency: i32) {
        self.links.iter().flat_map(|links| &links.streams).for_each(|stream| stream.lift(run, urgency));
    }

    fn flush(&mut self, peer: usize, stream: usize) -> Vec<Ticket> {
        match self.links[peer].streams.get(stream) {
            None => Vec::new(),
            Some(stream) if stream.socket.is_sealed() => {
                if !self.unsealed.iter().any(|other| Arc::ptr_eq(other, stream)) {
                    self.unsealed.push(Arc::clone(stream));
                }
                Vec::new()
            }
            Some(stream) => stream.flush(),
        }
    }

    fn held_back(&self) -> Vec<(usize, usize)> {
        if !self.paces {
            return Vec::new();
        }
        let streams = |(peer, links): (usize, &Links)| {
            let held = links.streams.iter().enumerate().filter(|(_, stream)| stream.holds_back());
            held.map(|(stream, _)| (peer, stream)).collect::<Vec<_>>()
        };
        self.links.iter().enumerate().flat_map(streams).collect()
    }

    fn is_lossy(&mut self, peer: usize, left: u64) -> bool {
        let Links { streams, striping, .. } = &mut self.links[peer];
        striping
            .is_lossy(left, self.began.elapsed(), || Losses::of(streams.iter().map(|stream| stream.losses())))
    }

    fn queued_bytes(&self, peer: usize) -> u64 {
        self.links[peer].streams.iter().map(|stream| stream.queued_bytes()).sum()
    }

    fn detach(&mut self, run: u64) {
        self.links.iter().flat_map(|links| &links.streams).for_each(|stream| stream.detach(run));
    }

    fn close_peer(&mut self, peer: usize) -> Vec<Ticket> {
        let streams = std::mem::take(&mut self.links[peer].streams);
        self.watcher.watch(Watch::Forget(peer));
        self.endpoints.drop_peer(peer);
        streams.iter().flat_map(|stream| stream.close()).collect()
    }

    fn unmap(&mut self, peer: usize) {
        if let Some(shared) = self.links[peer].shared.take() {
            self.arena.give(shared.incoming_at);
        }
    }

    fn recycle(&mut self, buffer: Vec<u8>) {
        self.pool.give(buffer);
    }

    fn send_datagrams(&mut self, endpoint: u64, peer: usize, what: Outgoing, at: Address, number: u64) {
        if let Some(datagrams) = self.datagrams.get(&endpoint) {
            // SAFETY: the engine keeps the value as it is until it was delivered or cancelled, or the peer dropped.
            unsafe { datagrams.send(peer, what, at.as_ptr(), number) };
        }
    }

    fn cancel_datagrams(&mut self, endpoint: u64, peer: usize, number: u64) {
        if let Some(datagrams) = self.datagrams.get(&endpoint) {
            datagrams.cancel(peer, number);
        }
    }

    fn end_epoch(&mut self, endpoint: u64) {
        if let Some(datagrams) = self.datagrams.get(&endpoint) {
            datagrams.end_epoch();
        }
    }

    fn keep_offer(&mut self, peer: usize, number: u64, offer: Vec<u8>) {
        self.endpoints.keep(peer, number, offer);
    }

    fn copy(&mut self, from: Address, to: Address, bytes: u64) {
        // SAFETY: both are the caller's memory, of that length; nobody else has been told of the operation.
        unsafe { std::ptr::copy(from.as_ptr(), to.as_ptr(), bytes as usize) };
    }

    fn read(&self, at: Address, bytes: u64) -> Vec<u8> {
        // SAFETY: the range lies within a value that the executor keeps as it is.
        unsafe { std::slice::from_raw_parts(at.as_ptr(), bytes as usize) }.to_vec()
    }

    fn rank_status(&self, group: GroupNumber, rank: Rank) -> RankStatus {
        let status = self.status.get(&group).and_then(|all| all.get(rank as usize));
        let unknown =
            || RankStatus { host: "unknown".into(), pid: 0, link: String::new(), process: Process::Unseen };
        status.map_or_else(unknown, PeerStatus::rank_status)
    }

    fn activity(&self) -> Activity {
        activity()
    }

    fn save_trace(&mut self, name: &str, trace: &Trace) {
        let Some(folder) = &self.traces else { return };
        let saved = std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(folder.join(name), trace.to_string()));
        if let Err(error) = saved {
            self.lines.push(format!("tweed: a trace cannot be written to {}: {error}", folder.display()));
        }
    }

    fn take_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }
}

#[cfg(test)]
mod tests {
    use tweed_proto::{Layout, Reach};
    use tweed_schedule::{Collective, Draft, Schedule};

    use super::super::driver::Driver;
    use super::*;

    fn trace() -> Trace {
        let (collective, sends) = (Collective::AllReduce, Vec::new());
        let draft =
            Draft { name: "alone".into(), collective, root: 0, ranks: 1, chunks: 1, sends, topology: None };
        let reach = vec![Reach::Shared];
        let layout = Layout { chunk_bytes: vec![4], piece: 4, window: 1, in_place: false, reach };
        let schedule = Schedule::new(draft).expect("one rank need send nothing");
        Trace { schedule, rank: 0, layout, entries: Vec::new() }
    }

    /// Whoever reads stderr may be slow, and all ranks would wait for it.
    #[test]
    fn what_is_wrong_with_a_trace_is_said_once_the_lock_is_free() {
        let file = std::env::temp_dir().join(format!("tweed-no-folder-{}", std::process::id()));
        std::fs::write(&file, "").expect("a file can be made");
        let opened = Driver::open(None, Some(file.join("traces")));
        let (driver, _watcher) = opened.expect("a driver can be made");
        let mut engine = driver.engine.lock();
        engine.host.save_trace("a.trace", &trace());
        let lines = engine.take_lines();
        drop(engine);
        std::fs::remove_file(&file).expect("it is there");
        assert!(lines.len() == 1 && lines[0].contains("a trace cannot be written"), "{lines:?}");
    }
}
