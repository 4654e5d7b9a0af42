//! The memory of one rank: its buffer and its staged cells, with a watch over every read and write.

use std::collections::BTreeMap;

use tweed_proto::{Executor, Layout};
use tweed_schedule::Schedule;

/// Which value lies in a piece of memory: `(version of the chunk, slice)`.
pub type Stamp = (u32, u32);

/// The caller has its buffer back.
const FREED: Stamp = (u32::MAX, u32::MAX);

#[derive(Clone, Debug, Default)]
struct Piece {
    stamp: Stamp,
    elements: Vec<f32>,
    being_written: bool,
}

/// Where a piece lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The caller's buffer: `(chunk, slice)`.
    Buffer(u32, u32),
    /// Values of chunks that the rank does not keep, so that the caller's buffer stays as it was.
    Scratch(u32, u32),
    /// A staged copy: `(output, slice mod window)`.
    Cell(u32, u32),
}

pub struct Memory {
    pieces: BTreeMap<Place, Piece>,
    window: u32,
    keeps: Vec<bool>,
}

impl Memory {
    /// The caller's buffer, cut as `layout` says.
    pub fn new(schedule: &Schedule, rank: u32, layout: &Layout, start: &[Option<Vec<f32>>]) -> Self {
        let chunks = 0..schedule.chunks();
        let keeps = chunks.map(|c| schedule.destination(c).contains(rank));
        let mut memory = Memory { pieces: BTreeMap::new(), window: layout.window, keeps: keeps.collect() };
        for (chunk, elements) in (0..).zip(start) {
            for slice in 0..layout.slices(chunk) {
                let (at, length) = layout.piece_of(chunk, slice);
                let (at, end) = (at as usize, (at + length) as usize);
                let elements = elements.as_ref().map(|e| e[at..end].to_vec());
                let piece =
                    Piece { stamp: (0, slice), elements: elements.unwrap_or_default(), being_written: false };
                memory.pieces.insert(Place::Buffer(chunk, slice), piece);
            }
        }
        memory
    }

    /// Where the value of `chunk` after `version` arrivals lies.
    pub fn home(&self, chunk: u32, version: u32, slice: u32) -> Place {
        match self.keeps[chunk as usize] || version == 0 {
            true => Place::Buffer(chunk, slice),
            false => Place::Scratch(chunk, slice),
        }
    }

    pub fn cell(&self, output: u32, slice: u32) -> Place {
        Place::Cell(output, slice % self.window)
    }

    /// Where peers on this host read `output`.
    pub fn exposed(&self, executor: &Executor, output: u32, slice: u32) -> Place {
        let o = &executor.program().outputs[output as usize];
        match executor.layout().in_place {
            true => self.home(o.chunk, o.version, slice),
            false => self.cell(output, slice),
        }
    }

    /// Reads what must be there: this value, whole.
    pub fn read(&self, place: Place, stamp: Stamp) -> Vec<f32> {
        let piece = self.pieces.get(&place);
        let piece = piece.unwrap_or_else(|| panic!("{place:?} is read before it was written"));
        assert_eq!(piece.stamp, stamp, "{place:?} does not hold the value that was promised");
        assert!(!piece.being_written, "{place:?} is read while it is written");
        piece.elements.clone()
    }

    /// From here until `write` nobody may read it.
    pub fn begin_write(&mut self, place: Place) {
        let piece = self.pieces.entry(place).or_default();
        assert_ne!(piece.stamp, FREED, "{place:?} is written after its end");
        assert!(!piece.being_written, "{place:?} is written twice at once");
        piece.being_written = true;
    }

    pub fn write(&mut self, place: Place, stamp: Stamp, elements: Vec<f32>) {
        let piece = Piece { stamp, elements, being_written: false };
        self.pieces.insert(place, piece);
    }

    /// The caller takes its buffer back and may overwrite it at once.
    pub fn take_back(&mut self, chunks: u32) -> Vec<Vec<f32>> {
        let mut taken = vec![Vec::new(); chunks as usize];
        for (place, piece) in &mut self.pieces {
            match place {
                Place::Cell(..) => continue,
                Place::Buffer(chunk, _) => taken[*chunk as usize].append(&mut piece.elements),
                Place::Scratch(..) => {}
            }
            piece.stamp = FREED;
        }
        taken
    }
}
