//! A group of ranks, and how it turns calls into operations.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use tweed_proto::{Program, Reach};
use tweed_schedule::{Collective, Draft as ScheduleDraft, Rank, Schedule, Send};

use crate::connect::peer_status::PeerStatus;
use crate::engine::Event;
use crate::error::EngineError;
use crate::link::stats::LinkStats;
use crate::ltp::Datagrams;
use crate::node::{lock, Inner};
use crate::operation::active::Draft;
use crate::operation::config::GroupConfig;
use crate::operation::delivery::Delivery;
use crate::operation::op::Op;
use crate::operation::plans::{Plan, PlanRow, Plans};
use crate::operation::request::{Operation, Request};

/// Up to so many bytes, an asynchronous call sends its part on the caller's thread.
const INLINE_BYTES: u64 = 64 << 10;

/// A note may have so many bytes.
const MAX_NOTE: usize = 64 << 10;

/// Into what pieces buffers are cut. All ranks of a group must hold the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// The bytes of a piece of a chunk, unless there are many chunks.
    pub piece_bytes: u64,
    /// So many slices are under way at once.
    pub window: u32,
}

impl Tuning {
    const LEAST_PIECE: u64 = 64 << 10;
    /// Pieces shrink when those of all chunks together have more bytes than this.
    const SLICE_BYTES: u64 = 4 << 20;

    /// For peers that share memory: what is staged stays in the cache. Found by trial on two cores: larger pieces
    /// were slower at 4 ranks; windows of 2, 3 and 4 made no difference beyond the noise.
    pub const SHARED: Tuning = Tuning { piece_bytes: 256 << 10, window: 2 };
    /// For wires: enough under way to fill a long link.
    pub const WIRE: Tuning = Tuning { piece_bytes: 256 << 10, window: 16 };
    /// For packets: a chunk is one message, unless it is longer than a message can be.
    pub const PACKETS: Tuning = Tuning { piece_bytes: 1 << 30, window: 2 };

    /// Bytes of a piece and slices under way, for a buffer of `chunks` chunks.
    pub(crate) fn cut(self, chunks: u32) -> (u64, u32) {
        if self == Self::PACKETS {
            return (self.piece_bytes, self.window);
        }
        let most = (Self::SLICE_BYTES / u64::from(chunks.max(1))).max(Self::LEAST_PIECE);
        (self.piece_bytes.min(most).next_multiple_of(64), self.window)
    }
}

/// Who takes part, seen from one rank.
pub(crate) struct Membership {
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) rank: Rank,
    /// The process behind each rank; this rank's own entry leads nowhere.
    pub(crate) peers: Vec<usize>,
    pub(crate) reach: Vec<Reach>,
    pub(crate) whereabouts: Vec<PeerStatus>,
    pub(crate) has_wires: bool,
    pub(crate) tuning: Tuning,
    pub(crate) timeout: Duration,
    pub(crate) terms: GroupConfig,
    /// What values cross wires by; `None`: streams.
    pub(crate) packets: Option<Arc<Datagrams>>,
}

impl Membership {
    pub(crate) fn ranks(&self) -> u32 {
        self.peers.len() as u32
    }

    pub(crate) fn rank_of(&self, peer: usize) -> Option<Rank> {
        self.peers.iter().position(|&p| p == peer).map(|r| r as Rank)
    }

    /// What values go by to ranks that share no memory with this one.
    pub(crate) fn wire(&self) -> &'static str {
        if self.terms.ltp.is_some() {
            "ltp"
        } else {
            "tcp"
        }
    }

    /// One value from one rank to another; `side` 0 sends, 1 receives.
    pub(crate) fn single_send(&self, side: Rank) -> Plan {
        static SCHEDULE: OnceLock<[Plan; 2]> = OnceLock::new();
        let plans = SCHEDULE.get_or_init(|| {
            let sends = vec![Send::new(0, 0, 1, 0, false)];
            let (name, collective) = ("send".into(), Collective::Broadcast);
            let draft =
                ScheduleDraft { name, collective, root: 0, ranks: 2, chunks: 1, sends, topology: None };
            let schedule = Arc::new(Schedule::new(draft).expect("a single send is a broadcast of two"));
            [0, 1].map(|side| (Arc::clone(&schedule), Arc::new(Program::compile(&schedule, side))))
        });
        plans[side as usize].clone()
    }
}

/// A rank's handle on a group.
pub struct Group {
    pub(crate) inner: Arc<Inner>,
    pub(crate) members: Arc<Membership>,
    plans: Mutex<Plans>,
    /// The thread that called first; 0: none has. By the address of something that is its own.
    caller: AtomicUsize,
    /// Another one has called, too.
    several_callers: AtomicBool,
}

impl Group {
    pub(crate) fn new(inner: Arc<Inner>, members: Arc<Membership>, plans: Plans) -> Group {
        let (caller, several_callers) = (AtomicUsize::new(0), AtomicBool::new(false));
        Group { inner, members, plans: Mutex::new(plans), caller, several_callers }
    }

    /// Runs later calls by these rows. All ranks must do so between the same two calls.
    pub fn adopt(&self, rows: Vec<PlanRow>) -> Result<(), EngineError> {
        *lock(&self.plans) = Plans::new(rows, &self.members.terms)?;
        Ok(())
    }

    /// This process's rank.
    pub fn rank(&self) -> Rank {
        self.members.rank
    }

    /// How many take part.
    pub fn ranks(&self) -> u32 {
        self.members.ranks()
    }

    /// How each rank is reached: `self`, `shm`, `tcp` or `ltp`.
    pub fn links(&self) -> Vec<&'static str> {
        let name = |(rank, reach): (usize, &Reach)| match reach {
            _ if rank == self.members.rank as usize => "self",
            Reach::Shared => "shm",
            Reach::Wire => self.members.wire(),
        };
        self.members.reach.iter().enumerate().map(name).collect()
    }

    /// What went over the links to each rank, and how late each came.
    pub fn stats(&self) -> Vec<LinkStats> {
        lock(&self.inner.engine).stats(self.members.number)
    }

    /// Leaves a short text at rank 0, over the one left before.
    pub fn set_note(&self, text: &[u8]) -> Result<(), EngineError> {
        if text.len() > MAX_NOTE {
            let text = format!("a note of {} bytes; at most {MAX_NOTE} can be left", text.len());
            return Err(EngineError::Usage(text));
        }
        lock(&self.inner.engine).set_note(self.members.number, text.to_vec());
        Ok(())
    }

    /// At rank 0: the latest text of each rank that has left one.
    pub fn notes(&self) -> BTreeMap<Rank, Vec<u8>> {
        lock(&self.inner.engine).notes(self.members.number)
    }

    /// That memory of this rank loses no parts in any contribution to this group; of 0 bytes: it may again.
    pub fn keep_whole(&self, address: usize, bytes: usize) {
        lock(&self.inner.engine).keep_whole(self.members.number, address, bytes);
    }

    /// How operations were delivered that have ended since the last call, oldest first. Only a few thousand are kept.
    pub fn take_deliveries(&self) -> Vec<Delivery> {
        lock(&self.inner.engine).take_deliveries(self.members.number)
    }

    /// How wires are set up, in words.
    pub fn wire_settings(&self) -> String {
        self.inner.wire_settings()
    }

    /// How long what may take, in words.
    pub fn limits(&self) -> String {
        let deadline = self.inner.options.deadline;
        let allowed = match deadline {
            Some(deadline) => format!("a step may be {} s late", deadline.as_secs_f64()),
            None => "no deadline is set (TWEED_DEADLINE), torch's timeout counts".into(),
        };
        format!("{allowed}: {}", self.inner.options.limits(self.members.timeout))
    }

    /// Starts an operation. What is wrong with the call is told by the operation.
    ///
    /// # Safety
    /// The request's segments stay valid and unused by others until the operation has ended.
    pub unsafe fn submit(&self, request: Request) -> Arc<Op> {
        match self.draft(request) {
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
        self.inner.wait(op, limit)
    }

    /// Refuses to work in a fork of the process that made the group: no lock of the engine may be taken there, as it
    /// may be held by a thread that the fork did not copy.
    pub fn check_process(&self) -> Result<(), EngineError> {
        self.inner.check_process()
    }

    /// Ends all that is under way, here and at the others.
    pub fn abort(&self, reason: &str) {
        if self.check_process().is_err() {
            return;
        }
        self.inner.post(Event::Abort(self.members.number, reason.to_owned()));
    }

    /// Shared memory that peers read and write in place.
    pub fn alloc(&self, bytes: u64) -> Option<*mut u8> {
        self.inner.alloc(bytes)
    }

    /// Gives back what `alloc` returned.
    pub fn free(&self, address: *mut u8) {
        self.inner.free(address);
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

    fn draft(&self, request: Request) -> Result<Draft, EngineError> {
        self.inner.check_process()?;
        self.note_caller();
        request.check(self.members.rank, self.ranks())?;
        let plan = self.plan(&request)?;
        let op = Arc::new(Op::new(Instant::now(), request.timeout.unwrap_or(self.members.timeout)));
        Ok(Draft { op, group: Arc::clone(&self.members), request, plan })
    }

    fn post(&self, draft: Draft) -> Arc<Op> {
        let op = Arc::clone(&draft.op);
        let small = draft.request.whole_bytes(self.ranks()) <= INLINE_BYTES;
        let blocking = draft.request.blocking;
        self.inner.enqueue(Event::Submit(draft));
        if !blocking {
            self.inner.set_off(small);
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
        lock(&self.plans).find(what, root, bytes, self.members.rank).map(Some)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.inner.close_group(self.members.number);
    }
}
