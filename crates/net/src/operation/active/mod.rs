//! One operation under way: the executor, the memory it works on, and the arithmetic.

mod arithmetic;
mod delivered;
mod queries;
mod scratch;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tweed_proto::{Executor, Program, Recorder};
use tweed_schedule::{Rank, Schedule};

use crate::engine::Lateness;
use crate::group::Membership;
use crate::link::shared_memory::Arena;
use crate::ltp::endpoints::DatagramEndpoints;
use crate::operation::delivery::Delivery;
use crate::operation::op::Op;
use crate::operation::request::{Operation, Place, Request};

use arithmetic::prescale;
use scratch::{cells, layout, Scratch};

/// From here on results are written past the cache.
const STREAM_FROM_BYTES: u64 = 8 << 20;

/// Which operation of which group; point-to-point ones are told apart by their peer as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) group: u32,
    pub(crate) op: u64,
    pub(crate) peer: Option<Rank>,
}

/// What is prepared on the caller's thread before the engine takes over.
pub(crate) struct Draft {
    pub(crate) op: Arc<Op>,
    pub(crate) group: Arc<Membership>,
    pub(crate) request: Request,
    /// `None` for a receive from anybody, whose peer is not known yet.
    pub(crate) plan: Option<(Arc<Schedule>, Arc<Program>)>,
}

impl Draft {
    /// What was called, for the texts of errors.
    pub(crate) fn label(&self) -> String {
        label(&self.request, &self.group)
    }
}

fn label(request: &Request, group: &Membership) -> String {
    match request.operation {
        Operation::Barrier => format!("barrier of group {:?}", group.name),
        _ => format!("{} {} {} of group {:?}", request.name(), request.dtype, request.shape, group.name),
    }
}

/// What ranks say they have called, once it is clear that they disagree.
#[derive(Default)]
pub(crate) struct Dispute {
    pub(crate) since: Option<Instant>,
    pub(crate) calls: BTreeMap<Rank, String>,
}

/// What operations need of their process.
pub(crate) struct Home {
    pub(crate) arena: Arc<Arena>,
    /// Where to write down how they went.
    pub(crate) traces: Option<PathBuf>,
    /// How late a step may be, if the user has said.
    pub(crate) deadline: Option<Duration>,
    pub(crate) endpoints: Arc<DatagramEndpoints>,
}

impl Home {
    fn executor(&self, schedule: &Schedule, executor: Executor) -> Recorder {
        match self.traces {
            Some(_) => Recorder::recording(executor, schedule),
            None => Recorder::from(executor),
        }
    }
}

/// One operation.
pub(crate) struct ActiveOp {
    pub(crate) op: Arc<Op>,
    pub(crate) group: Arc<Membership>,
    pub(crate) key: Key,
    pub(crate) run: u64,
    pub(crate) request: Request,
    pub(crate) signature: u32,
    pub(crate) executor: Recorder,
    pub(crate) late: Lateness,
    pub(crate) dispute: Dispute,
    /// All others had spoken of it before this rank came to it.
    pub(crate) came_last: bool,
    /// How its contributions were delivered.
    pub(crate) delivery: Delivery,
    /// The caller has been told.
    pub(crate) told: bool,
    /// Rank in the program to rank in the group, where they differ.
    pair: Option<[Rank; 2]>,
    places: Vec<Place>,
    memory: Scratch,
    streaming: bool,
    /// Contributions multiplied beforehand, for `PREMUL_SUM`.
    _scaled: Vec<Vec<u8>>,
}

impl ActiveOp {
    /// Lays out the memory and starts the executor. `None` if the arena is full.
    pub(crate) fn start(
        mut draft: Draft,
        key: Key,
        run: u64,
        late: Lateness,
        home: &Home,
    ) -> Option<ActiveOp> {
        let arena = &home.arena;
        let (schedule, program) = draft.plan.take().expect("the peer is known when an operation starts");
        let scaled = prescale(&mut draft.request);
        let places = draft.request.places(&schedule, program.rank);
        let pair =
            key.peer.map(
                |peer| if program.rank == 0 { [draft.group.rank, peer] } else { [peer, draft.group.rank] },
            );
        let layout = layout(&draft, &program, &places, pair, arena);
        let whole: u64 = places.iter().map(|p| p.bytes).sum();
        let memory = cells(&program, &places, &layout, arena)?;
        let signature = signature(&draft.request, &schedule);
        let running = ActiveOp {
            op: draft.op,
            group: draft.group,
            key,
            run,
            request: draft.request,
            signature,
            executor: home.executor(&schedule, Executor::new(program, layout)),
            late,
            dispute: Dispute::default(),
            came_last: false,
            delivery: Delivery { operation: key.op, ..Delivery::default() },
            told: false,
            pair,
            places,
            memory,
            streaming: whole >= STREAM_FROM_BYTES,
            _scaled: scaled,
        };
        running.keep_own_part();
        Some(running)
    }

    /// Writes down how it went, if that is recorded.
    pub(crate) fn save_trace(&self, home: &Home) {
        if let (Some(folder), Some(trace)) = (&home.traces, self.executor.trace()) {
            let Key { group, op, .. } = self.key;
            let name = format!("{group:08x}-{op:06}-rank{}.trace", self.group.rank);
            let saved = std::fs::create_dir_all(folder)
                .and_then(|()| std::fs::write(folder.join(name), trace.to_string()));
            if let Err(error) = saved {
                crate::stderr::print_line(&format!(
                    "tweed: a trace cannot be written to {}: {error}",
                    folder.display()
                ));
            }
        }
    }

    /// Copies what this rank holds from the start and keeps, where input and output are different tensors.
    fn keep_own_part(&self) {
        let arrives = |chunk: u32| self.executor.program().inputs.iter().any(|i| i.chunk == chunk);
        for (chunk, place) in self.places.iter().enumerate() {
            let moves = !place.initial.is_null() && !place.result.is_null() && place.initial != place.result;
            if moves && !arrives(chunk as u32) {
                // SAFETY: both are the caller's memory, of the same length; nobody else has been told of the operation.
                unsafe { std::ptr::copy(place.initial, place.result, place.bytes as usize) };
            }
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
