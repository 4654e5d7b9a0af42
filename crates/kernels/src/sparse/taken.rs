//! Numbers that were chosen.

use crate::isa::{InstructionSet, Isa};

/// Indices, ascending, and values of chosen numbers; memory that calls reuse.
///
/// It grows to what was ever needed: about twice what [`top_k`](super::top_k) gives.
#[derive(Debug, Default)]
pub struct Taken {
    indices: Vec<i32>,
    values: Vec<f32>,
    pub(super) len: usize,
    pub(super) isa: Isa,
}

impl Taken {
    /// For calls that are to use another instruction set than the best one.
    pub fn by(set: InstructionSet) -> Self {
        Self { isa: set.0, ..Self::default() }
    }

    /// Where they belong.
    pub fn indices(&self) -> &[i32] {
        &self.indices[..self.len]
    }

    /// What they are.
    pub fn values(&self) -> &[f32] {
        &self.values[..self.len]
    }

    pub(super) fn values_mut(&mut self) -> &mut [f32] {
        &mut self.values[..self.len]
    }

    /// Makes room for this many in all.
    pub(super) fn reserve(&mut self, room: usize) {
        if self.values.len() < room {
            self.indices.resize(room, 0);
            self.values.resize(room, 0.0);
        }
    }

    /// How many there is room for.
    pub(super) fn room(&self) -> usize {
        self.values.len()
    }

    /// Where numbers are written to: indices and values.
    pub(super) fn all(&mut self) -> (*mut i32, *mut f32) {
        (self.indices.as_mut_ptr(), self.values.as_mut_ptr())
    }
}
