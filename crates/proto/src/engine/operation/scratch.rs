//! The memory of an operation besides the caller's, and the sizes it is cut into.

use std::collections::BTreeMap;

use tweed_schedule::Rank;

use super::Draft;
use crate::engine::host::Host;
use crate::engine::request::Place;
use crate::layout::{Layout, Reach};
use crate::program::Program;

/// Below this, staging is quicker than waiting for readers of the buffer itself.
const IN_PLACE_FROM_BYTES: u64 = 64 << 10;

/// Staged values and values on their way: one slot per slice of the window, one cell per output and scratch chunk.
pub(super) struct Scratch {
    /// Its block of shared memory.
    pub(super) block: Option<u64>,
    slots: u64,
    stride: u64,
    pub(super) outputs: u64,
    pub(super) chunks: BTreeMap<u32, u64>,
}

impl Scratch {
    /// Where a cell lies in this process's shared memory.
    pub(super) fn cell(&self, slice: u32, index: u64) -> u64 {
        let per_slot = self.outputs + self.chunks.len() as u64;
        let slot = u64::from(slice) % self.slots.max(1);
        self.block.unwrap_or(0) + (slot * per_slot + index) * self.stride
    }
}

/// The sizes of pieces and window: a function of what all ranks know, so that all come to the same.
pub(super) fn layout<C>(
    draft: &Draft<C>,
    program: &Program,
    places: &[Place],
    pair: Option<[Rank; 2]>,
    host: &impl Host,
) -> Layout {
    let group = &draft.group;
    let bytes = draft.request.whole_bytes(program.ranks);
    // Of packets, not measured.
    let measured = |bytes: Option<u64>| bytes.filter(|_| group.config.ltp.is_none());
    let (short, in_flight) = (measured(program.piece_bytes), measured(program.in_flight_bytes));
    let (piece, window) = group.tuning.cut(program.chunks, bytes, short, in_flight);
    let reach = (0..program.ranks)
        .map(|rank| group.reach[pair.map_or(rank, |p| p[rank as usize]) as usize])
        .collect::<Vec<Reach>>();
    let all_shared = reach.iter().all(|&r| r == Reach::Shared);
    let segments = || draft.request.inputs.iter().chain(&draft.request.outputs);
    let large = segments().map(|s| s.bytes).max().unwrap_or(0) >= IN_PLACE_FROM_BYTES;
    let in_arena = segments().all(|s| host.offset(s.data, s.bytes).is_some());
    let needs_scratch = program.inputs.iter().any(|i| places[i.chunk as usize].result.is_null());
    Layout {
        chunk_bytes: places.iter().map(|p| p.bytes).collect(),
        piece,
        window,
        in_place: all_shared && large && in_arena && !needs_scratch && program.allows_in_place(),
        reach,
    }
}

/// Takes the block; `None` if there is no room.
pub(super) fn scratch(
    program: &Program,
    places: &[Place],
    layout: &Layout,
    host: &mut impl Host,
) -> Option<Scratch> {
    let longest = places.iter().map(|p| p.bytes).max().unwrap_or(0);
    let slices = (0..program.chunks).map(|c| layout.slices(c)).max().unwrap_or(1);
    let mut chunks = BTreeMap::new();
    for input in program.inputs.iter().filter(|i| places[i.chunk as usize].result.is_null()) {
        let next = chunks.len() as u64;
        chunks.entry(input.chunk).or_insert(next);
    }
    let mut scratch = Scratch {
        block: None,
        slots: u64::from(slices.min(layout.window)),
        stride: longest.min(layout.piece).max(1).next_multiple_of(64),
        outputs: if layout.in_place { 0 } else { program.outputs.len() as u64 },
        chunks,
    };
    let wanted = scratch.slots * scratch.stride * (scratch.outputs + scratch.chunks.len() as u64);
    if wanted > 0 {
        scratch.block = Some(host.reserve(wanted)?);
    }
    Some(scratch)
}
