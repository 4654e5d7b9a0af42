//! The memory of an operation besides the caller's, and the sizes it is cut into.

use std::collections::BTreeMap;
use std::sync::Arc;

use tweed_proto::{Layout, Program, Reach};
use tweed_schedule::Rank;

use super::Draft;
use crate::link::shared_memory::Arena;
use crate::operation::request::Place;

/// Below this, staging is quicker than waiting for readers of the buffer itself.
const IN_PLACE_FROM_BYTES: u64 = 64 << 10;

/// Staged values and scratch memory: one slot per slice of the window, one cell per output and scratch chunk.
pub(super) struct Scratch {
    pub(super) arena: Arc<Arena>,
    offset: Option<u64>,
    slots: u64,
    stride: u64,
    pub(super) outputs: u64,
    pub(super) scratch: BTreeMap<u32, u64>,
}

impl Scratch {
    pub(super) fn cell(&self, slice: u32, index: u64) -> u64 {
        let per_slot = self.outputs + self.scratch.len() as u64;
        let slot = u64::from(slice) % self.slots.max(1);
        self.offset.unwrap_or(0) + (slot * per_slot + index) * self.stride
    }

    pub(super) fn address(&self, slice: u32, index: u64) -> *mut u8 {
        self.arena.mapping().at(self.cell(slice, index), self.stride).expect("cells lie within the arena")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(offset) = self.offset {
            self.arena.give(offset);
        }
    }
}

/// The sizes of pieces and window: a function of what all ranks know, so that all come to the same.
pub(super) fn layout(
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

pub(super) fn cells(
    program: &Program,
    places: &[Place],
    layout: &Layout,
    arena: &Arc<Arena>,
) -> Option<Scratch> {
    let longest = places.iter().map(|p| p.bytes).max().unwrap_or(0);
    let slices = (0..program.chunks).map(|c| layout.slices(c)).max().unwrap_or(1);
    let mut scratch = BTreeMap::new();
    for input in program.inputs.iter().filter(|i| places[i.chunk as usize].result.is_null()) {
        let next = scratch.len() as u64;
        scratch.entry(input.chunk).or_insert(next);
    }
    let mut cells = Scratch {
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
