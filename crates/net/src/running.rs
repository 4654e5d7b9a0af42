//! One operation under way: the executor, the memory it works on, and the arithmetic.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tweed_kernels::{copy, fold, ReduceOp, Target};
use tweed_proto::{Action, Combine, Executor, Input, Layout, Program, Reach, Recorder};
use tweed_schedule::{Rank, Schedule};

use crate::arena::Arena;
use crate::engine::Lateness;
use crate::group::Membership;
use crate::links::Links;
use crate::message::{Kind, Message};
use crate::op::Op;
use crate::request::{Operation, Place, Request};

/// From here on results are written past the cache.
const STREAM_FROM_BYTES: u64 = 8 << 20;
/// Below this, staging is quicker than waiting for readers of the buffer itself.
const IN_PLACE_FROM_BYTES: u64 = 64 << 10;

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
pub(crate) struct Running {
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
    /// The caller has been told.
    pub(crate) told: bool,
    /// Rank in the program to rank in the group, where they differ.
    pair: Option<[Rank; 2]>,
    places: Vec<Place>,
    memory: Cells,
    streaming: bool,
    /// Contributions multiplied beforehand, for `PREMUL_SUM`.
    _scaled: Vec<Vec<u8>>,
}

/// Staged values and scratch memory: one slot per slice of the window, one cell per output and scratch chunk.
struct Cells {
    arena: Arc<Arena>,
    offset: Option<u64>,
    slots: u64,
    stride: u64,
    outputs: u64,
    scratch: BTreeMap<u32, u64>,
}

impl Cells {
    fn cell(&self, slice: u32, index: u64) -> u64 {
        let per_slot = self.outputs + self.scratch.len() as u64;
        let slot = u64::from(slice) % self.slots.max(1);
        self.offset.unwrap_or(0) + (slot * per_slot + index) * self.stride
    }

    fn address(&self, slice: u32, index: u64) -> *mut u8 {
        self.arena.mapping().at(self.cell(slice, index), self.stride).expect("cells lie within the arena")
    }
}

impl Drop for Cells {
    fn drop(&mut self) {
        if let Some(offset) = self.offset {
            self.arena.give(offset);
        }
    }
}

impl Running {
    /// Lays out the memory and starts the executor. `None` if the arena is full.
    pub(crate) fn start(
        mut draft: Draft,
        key: Key,
        run: u64,
        late: Lateness,
        home: &Home,
    ) -> Option<Running> {
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
        let running = Running {
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

    /// What was called, for the texts of errors.
    pub(crate) fn label(&self) -> String {
        label(&self.request, &self.group)
    }

    /// A message about one piece.
    pub(crate) fn message(&self, kind: Kind, send: u32, slice: u32) -> Message {
        let signature = self.signature;
        Message { send, slice, signature, ..Message::new(kind, self.key.group, self.key.op) }
    }

    /// Bytes of the piece that `send` moves.
    pub(crate) fn sent_bytes(&self, send: u32, slice: u32) -> u32 {
        let program = self.executor.program();
        let output = program.departure(send).map(|o| program.outputs[o as usize].chunk);
        output.map_or(0, |chunk| self.piece_bytes(chunk, slice) as u32)
    }

    /// The processes that take part, without this one.
    pub(crate) fn concerned(&self) -> Vec<usize> {
        let others = |&rank: &Rank| rank != self.group.rank && self.key.peer.is_none_or(|p| p == rank);
        (0..self.group.ranks()).filter(others).map(|r| self.group.peers[r as usize]).collect()
    }

    /// The group's rank for a rank of the program.
    pub(crate) fn group_rank(&self, rank: Rank) -> Rank {
        self.pair.map_or(rank, |p| p[rank as usize])
    }

    /// The rank in the program of a process; `None` if it has no part.
    pub(crate) fn program_rank(&self, peer: usize) -> Option<Rank> {
        (0..self.executor.program().ranks).find(|&rank| self.peer(rank) == peer)
    }

    /// The process behind a rank of the program.
    pub(crate) fn peer(&self, rank: Rank) -> usize {
        self.group.peers[self.group_rank(rank) as usize]
    }

    /// Bytes of one piece of the chunk that an output or input is about.
    pub(crate) fn piece_bytes(&self, chunk: u32, slice: u32) -> u64 {
        self.executor.layout().piece_of(chunk, slice).1
    }

    /// The group ranks that have not done what this rank waits for.
    pub(crate) fn waits_for(&self) -> Vec<Rank> {
        self.executor.waits_for().into_iter().map(|r| self.group_rank(r)).collect()
    }

    /// Its caller waits, and may still get what he called for. Ranks that disagree part: that is no loss.
    pub(crate) fn is_alive(&self) -> bool {
        !self.told && self.dispute.since.is_none()
    }

    /// By when ranks that disagree must have said what they called.
    pub(crate) fn end_of_dispute(&self) -> Option<Instant> {
        self.dispute.since.map(|since| since + self.late.vigil.limits().dispute)
    }

    /// When something is due because it is late.
    pub(crate) fn next_step(&self) -> Instant {
        self.op.started + self.late.vigil.next()
    }

    /// Writes down how it went, if that is recorded.
    pub(crate) fn save_trace(&self, home: &Home) {
        if let (Some(folder), Some(trace)) = (&home.traces, self.executor.trace()) {
            let Key { group, op, .. } = self.key;
            let name = format!("{group:08x}-{op:06}-rank{}.trace", self.group.rank);
            let saved = std::fs::create_dir_all(folder)
                .and_then(|()| std::fs::write(folder.join(name), trace.to_string()));
            if let Err(error) = saved {
                eprintln!("tweed: a trace cannot be written to {}: {error}", folder.display());
            }
        }
    }

    /// Where peers read an output, and whether they may write the answer there.
    pub(crate) fn exposed_at(&self, output: u32, slice: u32) -> Option<(u64, bool)> {
        let layout = self.executor.layout();
        if !layout.in_place {
            return Some((self.memory.cell(slice, u64::from(output)), false));
        }
        let out = &self.executor.program().outputs[output as usize];
        let place = self.places[out.chunk as usize];
        let bytes = self.piece_bytes(out.chunk, slice);
        let at = self.memory.arena.mapping().offset_of(self.value(out.chunk, out.version, slice), bytes)?;
        Some((at, place.initial == place.result))
    }

    /// What leaves over a wire.
    pub(crate) fn leaving(&self, output: u32, slice: u32) -> (*const u8, usize) {
        let out = &self.executor.program().outputs[output as usize];
        (self.value(out.chunk, out.version, slice), self.piece_bytes(out.chunk, slice) as usize)
    }

    /// Where a value that comes over a wire may be written at once: it is the result, and nobody needs what lies there.
    pub(crate) fn landing_place(&self, message: &Message) -> Option<*mut u8> {
        let (index, _) = self.executor.program().arrival(message.send)?;
        let input = self.executor.program().inputs.get(index as usize)?;
        let alone = input.sends.len() == 1 && !input.own && self.scale(input).is_none();
        let whole = self.piece_bytes(input.chunk, message.slice) == u64::from(message.bytes);
        if !alone || !whole || !self.executor.may_land(message.slice, index) {
            return None;
        }
        let place = self.value(input.chunk, input.version, message.slice);
        (!place.is_null()).then_some(place)
    }

    /// What the values of an input are multiplied with once it is complete.
    fn scale(&self, input: &Input) -> Option<f64> {
        let averaged = self.request.reduce_op == ReduceOp::Avg && input.complete;
        averaged.then(|| 1.0 / f64::from(self.group.ranks()))
    }

    /// Carries out arithmetic or staging. `Err` if a peer told of memory that it does not have.
    pub(crate) fn compute(&mut self, action: &Action, links: &mut Links) -> Result<(), Rank> {
        match action {
            Action::Stage { output, slice } => {
                let (from, bytes) = self.leaving(*output, *slice);
                let cell = self.target(self.memory.address(*slice, u64::from(*output)), false);
                // SAFETY: the value and the cell are this operation's, and the executor lets nobody else touch them now.
                unsafe { copy(from, &[cell], bytes) };
                Ok(())
            }
            Action::Combine(combine) => self.combine(combine, links),
            Action::Signal(_) | Action::Transmit { .. } => Ok(()),
        }
    }

    fn combine(&mut self, combine: &Combine, links: &mut Links) -> Result<(), Rank> {
        let program = self.executor.program();
        let input = &program.inputs[combine.input as usize];
        let bytes = self.piece_bytes(input.chunk, combine.slice);
        let arrivals = self.executor.arrivals(combine.slice, combine.input);
        let mut sources: Vec<(Rank, *const u8)> = Vec::with_capacity(arrivals.len() + 1);
        let mut targets =
            vec![self.target(self.value(input.chunk, input.version, combine.slice), self.streaming)];
        for (position, (&(_, src), arrival)) in input.sends.iter().zip(arrivals).enumerate() {
            let arrival = arrival.expect("an input is combined once all has arrived");
            let address = links.resolve(self.peer(src), arrival.at, bytes).ok_or(src)?;
            sources.push((src, address));
            if combine.puts.iter().any(|&(p, _)| p as usize == position) {
                targets.push(self.target(address, self.streaming));
            }
        }
        if input.own {
            let own = self.value(input.chunk, input.version - 1, combine.slice);
            let place = sources.partition_point(|&(src, _)| src < program.rank);
            sources.insert(place, (program.rank, own));
        }
        if let Some(output) = combine.stage {
            targets.push(self.target(self.memory.address(combine.slice, u64::from(output)), false));
        }
        // A line that was just read lies in the cache: writing it past the cache would only cost more.
        for target in &mut targets {
            target.streaming &= sources.iter().all(|&(_, source)| source != target.ptr.cast_const());
        }
        if let [(_, landed)] = sources[..] {
            // What came over a wire may lie in its place already.
            targets.retain(|target| target.ptr.cast_const() != landed);
        }
        self.fold(&sources, &targets, bytes as usize, self.scale(input));
        for (&(_, src), arrival) in input.sends.iter().zip(arrivals) {
            links.drop_landed(self.peer(src), arrival.map_or(0, |a| a.at));
        }
        Ok(())
    }

    fn fold(&self, sources: &[(Rank, *const u8)], targets: &[Target], bytes: usize, scale: Option<f64>) {
        let (dtype, op) = (self.request.dtype, self.request.reduce_op);
        if bytes == 0 || targets.is_empty() {
            return;
        }
        // SAFETY: `resolve` has checked that peers' values lie in their mapped memory; own values and targets are
        // this operation's; the executor lets nobody write a source or touch a target meanwhile.
        unsafe {
            match sources {
                [(_, source)] if scale.is_none() => copy(*source, targets, bytes),
                _ => {
                    let sources: Vec<*const u8> = sources.iter().map(|s| s.1).collect();
                    fold(dtype, op, &sources, targets, bytes / dtype.size(), scale);
                }
            }
        }
    }

    fn target(&self, ptr: *mut u8, streaming: bool) -> Target {
        Target { ptr, streaming }
    }

    /// Where a value of a chunk lies in this rank's memory.
    fn value(&self, chunk: u32, version: u32, slice: u32) -> *mut u8 {
        let place = self.places[chunk as usize];
        let base = if version == 0 { place.initial } else { place.result };
        if base.is_null() {
            if let Some(&index) = self.memory.scratch.get(&chunk) {
                return self.memory.address(slice, self.memory.outputs + index);
            }
        }
        base.wrapping_add(self.executor.layout().piece_of(chunk, slice).0 as usize)
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

/// Multiplies the contributions of `PREMUL_SUM`: in place where the caller allows it, else in a copy.
fn prescale(request: &mut Request) -> Vec<Vec<u8>> {
    let mut copies = Vec::new();
    if !request.reduces() || request.reduce_op != ReduceOp::PremulSum {
        return copies;
    }
    for segment in &mut request.inputs {
        let source = segment.data.cast_const();
        if !request.outputs.contains(segment) {
            copies.push(vec![0u8; segment.bytes as usize]);
            segment.data = copies.last_mut().expect("just pushed").as_mut_ptr();
        }
        let into = [Target { ptr: segment.data, streaming: false }];
        let numel = segment.bytes as usize / request.dtype.size();
        // SAFETY: the segment is the caller's, and its copy is ours and as long.
        unsafe { fold(request.dtype, ReduceOp::PremulSum, &[source], &into, numel, Some(request.factor)) };
    }
    copies
}

/// The sizes of pieces and window: a function of what all ranks know, so that all come to the same.
fn layout(
    draft: &Draft,
    program: &Program,
    places: &[Place],
    pair: Option<[Rank; 2]>,
    arena: &Arena,
) -> Layout {
    let group = &draft.group;
    let (piece, window) = group.tuning.cut(program.chunks);
    let reach = (0..program.ranks)
        .map(|rank| group.reach[pair.map_or(rank, |p| p[rank as usize]) as usize])
        .collect::<Vec<Reach>>();
    let all_shared = reach.iter().all(|&r| r == Reach::Shared);
    let segments = || draft.request.inputs.iter().chain(&draft.request.outputs);
    let large = segments().map(|s| s.bytes).max().unwrap_or(0) >= IN_PLACE_FROM_BYTES;
    let in_arena = segments().all(|s| arena.mapping().offset_of(s.data, s.bytes).is_some());
    let needs_scratch = program.inputs.iter().any(|i| places[i.chunk as usize].result.is_null());
    Layout {
        chunk_bytes: places.iter().map(|p| p.bytes).collect(),
        piece,
        window,
        in_place: all_shared && large && in_arena && !needs_scratch && program.allows_in_place(),
        reach,
    }
}

fn cells(program: &Program, places: &[Place], layout: &Layout, arena: &Arc<Arena>) -> Option<Cells> {
    let longest = places.iter().map(|p| p.bytes).max().unwrap_or(0);
    let slices = (0..program.chunks).map(|c| layout.slices(c)).max().unwrap_or(1);
    let mut scratch = BTreeMap::new();
    for input in program.inputs.iter().filter(|i| places[i.chunk as usize].result.is_null()) {
        let next = scratch.len() as u64;
        scratch.entry(input.chunk).or_insert(next);
    }
    let mut cells = Cells {
        arena: Arc::clone(arena),
        offset: None,
        slots: u64::from(slices.min(layout.window)),
        stride: longest.min(layout.piece).max(1).next_multiple_of(64),
        outputs: if layout.in_place { 0 } else { program.outputs.len() as u64 },
        scratch,
    };
    let wanted = cells.slots * cells.stride * (cells.outputs + cells.scratch.len() as u64);
    if wanted > 0 {
        cells.offset = Some(arena.take(wanted)?);
    }
    Some(cells)
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
