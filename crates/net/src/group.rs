//! A group of ranks, and how it turns calls into operations.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use tweed_proto::engine::delivery::Delivery;
use tweed_proto::engine::members::{Members, Plan};
use tweed_proto::engine::metrics::RankStats;
use tweed_proto::engine::request::{Operation, Request};
use tweed_proto::engine::{Draft, EngineError, Event};
use tweed_proto::Reach;
use tweed_schedule::{Collective, Rank};

use crate::connect::connector::Connector;
use crate::connect::descriptor::host_name;
use crate::engine::driver::Driver;
use crate::link::stats::{LinkStats, Packets, Wires};
use crate::operation::compute::{copy_overwritten, prescale};
use crate::operation::op::Op;
use crate::operation::plans::{PlanRow, Plans};
use crate::sync::{LockRank, Mutex};

/// Up to so many bytes, an asynchronous call sends its part on the caller's thread.
const INLINE_BYTES: u64 = 64 << 10;

/// A note may have so many bytes.
const MAX_NOTE: usize = 64 << 10;

/// A rank's handle on a group.
pub struct Group {
    connector: Arc<Connector>,
    driver: Arc<Driver>,
    pub(crate) members: Arc<Members>,
    plans: Mutex<Plans>,
    /// The thread that called first; 0: none has. By the address of something that is its own.
    caller: AtomicUsize,
    /// Another one has called, too.
    several_callers: AtomicBool,
}

impl Group {
    pub(crate) fn new(connector: Arc<Connector>, members: Arc<Members>, plans: Plans) -> Group {
        let (caller, several_callers) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (driver, plans) = (Arc::clone(&connector.driver), Mutex::new(LockRank::Plans, plans));
        Group { connector, driver, members, plans, caller, several_callers }
    }

    /// Runs later calls by these rows. All ranks must do so between the same two calls.
    pub fn adopt(&self, rows: Vec<PlanRow>) -> Result<(), EngineError> {
        *self.plans.lock() = Plans::new(rows, &self.members.config)?;
        Ok(())
    }

    /// This process's rank in the group.
    pub fn rank(&self) -> Rank {
        self.members.rank
    }

    /// The epoch of members that come and go, if the group is of such; `None`: it is not.
    pub fn epoch(&self) -> Option<u64> {
        self.members.epoch
    }

    /// How many take part.
    pub fn ranks(&self) -> u32 {
        self.members.ranks()
    }

    /// How each rank is reached: `self`, `shm`, `tcp`, `ltp` or `relay`.
    pub fn links(&self) -> Vec<&'static str> {
        (0..self.ranks()).map(|rank| self.link(rank)).collect()
    }

    fn link(&self, rank: Rank) -> &'static str {
        match self.members.reach[rank as usize] {
            _ if rank == self.members.rank => "self",
            Reach::Shared => "shm",
            Reach::Relayed => "relay",
            Reach::Wire => self.members.wire(),
        }
    }

    /// What went over the links to each rank, and how late each came.
    pub fn stats(&self) -> Vec<LinkStats> {
        let engine = self.driver.engine.lock();
        let rows = engine.stats(self.members.number);
        let rows = (0..).zip(rows).map(|(rank, row)| {
            let host = row.peer.and_then(|p| engine.peers.get(p)).map_or_else(host_name, |p| p.host.clone());
            let streams = row.peer.map(|p| engine.host.links[p].streams.clone()).unwrap_or_default();
            (rank, row, host, streams)
        });
        let rows: Vec<_> = rows.collect();
        let packets = self.members.endpoint.and_then(|e| engine.host.datagrams.get(&e).cloned());
        // The kernel is asked without the engine's lock.
        drop(engine);
        rows.into_iter()
            .map(|(rank, row, host, streams)| {
                let RankStats { peer, traffic, times_last, lateness } = row;
                let link = self.link(rank);
                let packets = packets.as_ref().filter(|_| link == "ltp").zip(peer);
                let metrics = packets.and_then(|(packets, peer)| packets.metrics(peer));
                let packets = metrics.map(Packets::from).unwrap_or_default();
                let wires = Wires::of(&streams);
                LinkStats { rank, host, link, traffic, wires, packets, times_last, lateness }
            })
            .collect()
    }

    /// For how long at least one operation has been under way here.
    pub fn under_way(&self) -> Duration {
        self.driver.engine.lock().under_way(self.members.number)
    }

    /// Leaves a short text at rank 0, over the one left before.
    pub fn set_note(&self, text: &[u8]) -> Result<(), EngineError> {
        if text.len() > MAX_NOTE {
            let text = format!("a note of {} bytes; at most {MAX_NOTE} can be left", text.len());
            return Err(EngineError::Usage(text));
        }
        let mut engine = self.driver.engine.lock();
        engine.set_note(self.members.number, text.to_vec());
        self.driver.release(engine);
        Ok(())
    }

    /// At rank 0: the latest text of each rank that has left one.
    pub fn notes(&self) -> BTreeMap<Rank, Vec<u8>> {
        self.driver.engine.lock().notes(self.members.number)
    }

    /// Memory of this rank loses no parts in any contribution to this group from now on; of 0 bytes: it may again.
    pub fn keep_whole(&self, address: usize, bytes: usize) {
        self.driver.engine.lock().keep_whole(self.members.number, address as u64, bytes as u64);
    }

    /// Calls from or to memory of this rank are so urgent from now on; 0: as all others. Other ranks need not name theirs.
    pub fn set_urgency(&self, address: usize, bytes: usize, urgency: i32) {
        let mut engine = self.driver.engine.lock();
        engine.set_urgency(self.members.number, address as u64, bytes as u64, urgency);
        engine.host.paces = true;
        let peers = self.members.others().filter_map(|peer| engine.host.links.get(peer));
        peers.flat_map(|links| &links.streams).for_each(|stream| stream.pace());
    }

    /// All-to-alls from and to that memory carry contributions, which may lose parts; of 0 bytes: no more. All ranks name
    /// theirs alike.
    pub fn may_lose(&self, address: usize, bytes: usize) {
        self.driver.engine.lock().may_lose(self.members.number, address as u64, bytes as u64);
    }

    /// How operations were delivered that have ended since the last call, oldest first. Only a few thousand are kept.
    pub fn take_deliveries(&self) -> Vec<Delivery> {
        self.driver.engine.lock().take_deliveries(self.members.number)
    }

    /// How wires are set up, in words.
    pub fn wire_settings(&self) -> String {
        self.connector.wire_settings()
    }

    /// How long what may take, in words.
    pub fn limits(&self) -> String {
        let deadline = self.connector.options.deadline;
        let allowed = match deadline {
            Some(deadline) => format!("a step may be {} s late", deadline.as_secs_f64()),
            None => "no deadline is set (TWEED_DEADLINE), torch's timeout counts".into(),
        };
        format!("{allowed}: {}", self.connector.options.limits(self.members.timeout))
    }

    /// Starts an operation. What is wrong with the call is told by the operation.
    ///
    /// # Safety
    /// The request's segments stay valid and unused by others until the operation has ended.
    pub unsafe fn submit(&self, request: Request) -> Arc<Op> {
        // SAFETY: by the contract.
        match unsafe { self.draft(request) } {
            Ok(draft) => self.post(draft),
            Err(error) => Arc::new(Op::failed(error)),
        }
    }

    /// Waits until `op` has ended, a signal came in, or `limit` has passed. `false` in the latter cases, and at once in
    /// a fork.
    pub fn wait(&self, op: &Op, limit: Option<Duration>) -> bool {
        if self.check_process().is_err() {
            return op.is_ended();
        }
        self.driver.wait(op, limit)
    }

    /// Refuses to work in a fork of the process that made the group: no lock of the engine may be taken there, as it
    /// may be held by a thread that the fork did not copy.
    pub fn check_process(&self) -> Result<(), EngineError> {
        self.driver.check_process()
    }

    /// Ends all that is under way, here and at the others.
    pub fn abort(&self, reason: &str) {
        if self.check_process().is_err() {
            return;
        }
        self.driver.post(Event::Abort(self.members.number, reason.to_owned()));
    }

    /// Shared memory that peers read and write in place.
    pub fn alloc(&self, bytes: u64) -> Option<*mut u8> {
        self.driver.alloc(bytes)
    }

    /// Gives back what `alloc` returned.
    pub fn free(&self, address: *mut u8) {
        self.driver.free(address);
    }

    /// What may have made ranks disagree, if threads of this process could have overtaken each other.
    pub(crate) fn hint_at_threads(&self) -> Option<&'static str> {
        self.several_callers.load(Ordering::Relaxed).then_some(
            ". Several threads of this process have called on this group, and calls of a group are matched by their order: \
             give each thread a group of its own (torch.distributed.new_group; async_save(process_group=...))",
        )
    }

    fn note_caller(&self) {
        thread_local!(static OWN: u8 = const { 0 });
        let own = OWN.with(|place| std::ptr::from_ref(place) as usize);
        let first = self.caller.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed);
        if first.is_err_and(|first| first != own) {
            self.several_callers.store(true, Ordering::Relaxed);
        }
    }

    /// # Safety
    /// As [`submit`](Group::submit).
    unsafe fn draft(&self, mut request: Request) -> Result<Draft<Arc<Op>>, EngineError> {
        self.driver.check_process()?;
        self.note_caller();
        request.check(self.members.rank, self.ranks())?;
        let plan = self.plan(&request)?;
        // SAFETY: by the contract.
        let mut copies = unsafe { copy_overwritten(&mut request, self.members.rank) };
        copies.append(&mut prescale(&mut request));
        let call = Arc::new(Op::new(copies));
        Ok(Draft { call, group: Arc::clone(&self.members), request, plan, started: self.driver.now() })
    }

    fn post(&self, draft: Draft<Arc<Op>>) -> Arc<Op> {
        let op = Arc::clone(&draft.call);
        let small = draft.request.whole_bytes(self.ranks()) <= INLINE_BYTES;
        let blocking = draft.request.blocking;
        self.driver.enqueue(Event::Submit(draft));
        if !blocking {
            self.driver.set_off(small);
        }
        op
    }

    fn plan(&self, request: &Request) -> Result<Option<Plan>, EngineError> {
        let (what, root) = match request.operation {
            Operation::Send { .. } => return Ok(Some(self.members.single_send(0))),
            Operation::Receive { from: Some(_), .. } => return Ok(Some(self.members.single_send(1))),
            Operation::Receive { from: None, .. } => return Ok(None),
            Operation::Barrier => (Collective::AllReduce, 0),
            Operation::Collective { what, root } => (what, if what.is_rooted() { root } else { 0 }),
        };
        let bytes = request.whole_bytes(self.ranks());
        self.plans.lock().find(what, root, bytes, self.members.rank).map(Some)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.driver.close_group(self.members.number);
    }
}
