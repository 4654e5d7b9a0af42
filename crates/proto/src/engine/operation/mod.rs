//! One operation under way: the executor, the memory it works on, and what is known of how it goes.

pub(super) mod job;
mod queries;
mod scratch;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tweed_schedule::{Rank, Schedule};

use super::delivery::Delivery;
use super::host::{Host, Lease, Time};
use super::late::Lateness;
use super::leases::{Leases, Leftover};
use super::members::{Members, Plan};
use super::request::{Operation, Place, Request};
use super::{Ended, GroupNumber};
use crate::executor::Executor;
use crate::layout::Reach;
use crate::trace::Recorder;

use scratch::{layout, scratch, Scratch};

/// From here on results are written past the cache.
const STREAM_FROM_BYTES: u64 = 8 << 20;

/// Which operation of which group; point-to-point ones are told apart by their peer as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The number of the group.
    pub group: GroupNumber,
    /// The operation's number within the group.
    pub op: u64,
    /// The other rank of a send or receive.
    pub peer: Option<Rank>,
}

/// What is prepared on the caller's thread before the engine takes over.
#[derive(Debug)]
pub struct Draft<C> {
    /// The handle of the caller.
    pub call: C,
    /// The group that it is in.
    pub group: Arc<Members>,
    /// What was asked for.
    pub request: Request,
    /// `None` for a receive from anybody, whose peer is not known yet.
    pub plan: Option<Plan>,
    /// When it was called.
    pub started: Time,
}

impl<C> Draft<C> {
    /// What was called, for the texts of errors.
    pub fn label(&self) -> String {
        label(&self.request, &self.group)
    }

    /// How long it may take at most.
    pub(super) fn timeout(&self) -> Time {
        self.request.timeout.unwrap_or(self.group.timeout)
    }
}

fn label(request: &Request, group: &Members) -> String {
    match request.operation {
        Operation::Barrier => format!("barrier of group {:?}", group.name),
        _ => format!("{} {} {} of group {:?}", request.name(), request.dtype, request.shape, group.name),
    }
}

/// What ranks have called, once it is clear that they disagree.
#[derive(Default)]
pub(super) struct Dispute {
    pub(super) since: Option<Time>,
    pub(super) calls: BTreeMap<Rank, String>,
}

/// One operation. It ends in two steps: the caller is told (`call` is gone), and the last peer has taken what it needs
/// (the executor is closed).
pub(super) struct ActiveOp<C> {
    /// Until the caller is told.
    pub(super) call: Option<C>,
    pub(super) group: Arc<Members>,
    pub(super) key: Key,
    pub(super) run: u64,
    pub(super) request: Request,
    pub(super) signature: u32,
    pub(super) executor: Recorder,
    pub(super) started: Time,
    pub(super) late: Lateness,
    pub(super) dispute: Dispute,
    /// All others had sent something of it before this rank came to it.
    pub(super) came_last: bool,
    /// It is an all-to-all of contributions.
    contributes: bool,
    /// How its contributions were delivered.
    pub(super) delivery: Delivery,
    /// Under which lease peers touch its memory, and under which ones it touches theirs.
    pub(super) lease: Option<Lease>,
    pub(super) leases: BTreeMap<usize, Lease>,
    /// Ranks that have revoked theirs: the operation failed there, and why is on its way.
    pub(super) withdrawn: BTreeSet<Rank>,
    /// Rank in the program to rank in the group, where they differ.
    pair: Option<[Rank; 2]>,
    places: Vec<Place>,
    scratch: Scratch,
    streaming: bool,
}

/// What an operation is started with besides its draft.
pub(super) struct Start {
    pub(super) key: Key,
    pub(super) run: u64,
    pub(super) late: Lateness,
    /// Its run is recorded.
    pub(super) recorded: bool,
    /// It is an all-to-all of contributions.
    pub(super) contributes: bool,
}

impl<C> ActiveOp<C> {
    /// Lays out the memory and starts the executor. The draft comes back if there is no room.
    pub(super) fn start<H: Host<Call = C>>(
        mut draft: Draft<C>,
        start: Start,
        leases: &mut Leases<Ended<C>>,
        host: &mut H,
    ) -> Result<ActiveOp<C>, Box<Draft<C>>> {
        let Start { key, run, late, recorded, contributes } = start;
        let (schedule, program) = draft.plan.take().expect("the peer is known when an operation starts");
        let places = draft.request.places(&schedule, program.rank);
        let me = draft.group.rank;
        let pair = key.peer.map(|peer| if program.rank == 0 { [me, peer] } else { [peer, me] });
        let layout = layout(&draft, &program, &places, pair, host);
        let whole: u64 = places.iter().map(|p| p.bytes).sum();
        let Some(scratch) = scratch(&program, &places, &layout, host) else { return Err(Box::new(draft)) };
        let exposes = layout.reach.contains(&Reach::Shared) && !program.outputs.is_empty();
        let lease = match exposes.then(|| leases.grant(host)) {
            Some(None) => {
                scratch.block.into_iter().for_each(|block| host.release(block));
                return Err(Box::new(draft));
            }
            lease => lease.flatten(),
        };
        let executor = Executor::new(program, layout);
        let executor = match recorded {
            true => Recorder::recording(executor, &schedule),
            false => Recorder::from(executor),
        };
        let active = ActiveOp {
            signature: signature(&draft.request, &schedule),
            call: Some(draft.call),
            group: draft.group,
            key,
            run,
            request: draft.request,
            executor,
            started: draft.started,
            late,
            dispute: Dispute::default(),
            came_last: false,
            contributes,
            delivery: Delivery { operation: key.op, ..Delivery::default() },
            lease,
            leases: BTreeMap::new(),
            withdrawn: BTreeSet::new(),
            pair,
            places,
            scratch,
            streaming: whole >= STREAM_FROM_BYTES,
        };
        active.keep_own_part(host);
        Ok(active)
    }

    /// Copies what this rank holds from the start and keeps, where input and output are different tensors.
    fn keep_own_part(&self, host: &mut impl Host) {
        let arrives = |chunk: u32| self.executor.program().inputs.iter().any(|i| i.chunk == chunk);
        for (chunk, place) in self.places.iter().enumerate() {
            let moves = !place.initial.is_null() && !place.result.is_null() && place.initial != place.result;
            if moves && !arrives(chunk as u32) {
                host.copy(place.initial, place.result, place.bytes);
            }
        }
    }

    /// The process `peer` reads nothing of it any more.
    pub(super) fn forgo(&mut self, peer: usize) {
        if let Some(rank) = self.program_rank(peer) {
            self.executor.handle_gone(rank);
        }
    }

    /// Writes down how it went, if that is recorded.
    pub(super) fn save_trace(&self, host: &mut impl Host) {
        if let Some(trace) = self.executor.trace() {
            let Key { group, op, .. } = self.key;
            host.save_trace(&format!("{group}-{op:06}-rank{}.trace", self.group.rank), trace);
        }
    }

    /// What is left to give back, and to whom the caller's end is told.
    pub(super) fn into_leftover(mut self, end: Option<Result<(), super::EngineError>>) -> Leftover<Ended<C>> {
        let in_place = self.executor.layout().in_place;
        let written = |p: &Place| [(p.initial, p.bytes), (p.result, p.bytes)];
        let exposed = self.places.iter().filter(|_| in_place).flat_map(written);
        let exposed = exposed.filter(|(at, bytes)| !at.is_null() && *bytes > 0).collect();
        let call = self.call.take();
        Leftover {
            lease: self.lease,
            peers: self.concerned(),
            block: self.scratch.block,
            exposed,
            end: call.zip(end).map(|(call, result)| Ended { call, result, source: self.key.peer }),
        }
    }
}

/// A number that is equal where ranks called the same thing (FNV-1a).
fn signature(request: &Request, schedule: &Schedule) -> u32 {
    let op = if request.reduces() { request.reduce_op as u32 } else { 0 };
    let name = request.name();
    let name = if matches!(name, "send" | "recv") { "send" } else { name };
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let numbers = [u64::from(request.dtype as u32), u64::from(op), request.common_bytes(), schedule.digest()];
    let words = numbers.iter().flat_map(|n| n.to_le_bytes());
    for byte in name.bytes().chain(words) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    (hash ^ (hash >> 32)) as u32
}
