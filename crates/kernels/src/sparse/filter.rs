//! The one pass in which values are selected: by their magnitude, with what was left out the last time.

use super::lanes::{Lanes, Work, MAGNITUDE};
use super::places::prefetch;
use crate::isa::{InstructionSet, Isa};

/// Values between two looks at whether there is room for as many.
pub(super) const BLOCK: usize = 128;

/// The values that were selected, and their indices, ascending; memory that calls reuse.
///
/// It grows to what was ever needed: about twice what [`top_k`](super::top_k) gives.
#[derive(Debug, Default)]
pub struct Selection {
    indices: Vec<i32>,
    values: Vec<f32>,
    pub(super) len: usize,
    pub(super) isa: Isa,
}

impl Selection {
    /// For calls that are to use another instruction set than the best one.
    pub fn by(set: InstructionSet) -> Self {
        Self { isa: set.0, ..Self::default() }
    }

    /// The indices of the values that were chosen.
    pub fn indices(&self) -> &[i32] {
        &self.indices[..self.len]
    }

    /// The values that were chosen.
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

    /// Where values are written to: indices and values.
    pub(super) fn all(&mut self) -> (*mut i32, *mut f32) {
        (self.indices.as_mut_ptr(), self.values.as_mut_ptr())
    }
}

/// What is selected from, and what keeps the rest.
pub(super) enum Input<'a> {
    /// Nothing keeps the rest.
    Plain(&'a [f32]),
    /// `x + error`; then `error` is what was not selected.
    WithError(&'a [f32], &'a mut [f32]),
    /// `error`, which already holds the sum.
    Sum(&'a mut [f32]),
}

impl Input<'_> {
    pub(super) fn numel(&self) -> usize {
        match self {
            Self::Plain(x) | Self::WithError(x, _) => x.len(),
            Self::Sum(error) => error.len(),
        }
    }

    /// Copies the values from a place on.
    pub(super) fn copy(&self, first: usize, to: &mut [f32]) {
        let range = first..first + to.len();
        match self {
            Self::Plain(x) => to.copy_from_slice(&x[range]),
            Self::Sum(error) => to.copy_from_slice(&error[range]),
            Self::WithError(x, error) => {
                to.copy_from_slice(&x[range.clone()]);
                to.iter_mut().zip(&error[range]).for_each(|(sum, error)| *sum += error);
            }
        }
    }

    /// Asks memory for the values at a place.
    pub(super) fn expect(&self, index: usize) {
        match self {
            Self::Plain(x) => prefetch(x, index),
            Self::Sum(error) => prefetch(error, index),
            Self::WithError(x, error) => {
                prefetch(x, index);
                prefetch(error, index);
            }
        }
    }
}

/// Takes all values from `start` on whose magnitude is above `above`, until the end or until there is no room for
/// another block. Returns how far it came.
pub(super) fn filter(input: &mut Input<'_>, start: usize, above: i32, selection: &mut Selection) -> usize {
    let numel = input.numel();
    let (x, error) = match input {
        Input::Plain(x) => (x.as_ptr(), std::ptr::null_mut()),
        Input::WithError(x, error) => {
            assert_eq!(x.len(), error.len(), "an error of another length than the values");
            (x.as_ptr(), error.as_mut_ptr())
        }
        Input::Sum(error) => (std::ptr::null(), error.as_mut_ptr()),
    };
    let isa = selection.isa;
    // SAFETY: `isa` is one of this CPU's; both pointers are null or those of `numel` values.
    unsafe { isa.run(Filter { x, error, numel, start, above, selection }) }
}

struct Filter<'a> {
    x: *const f32,
    error: *mut f32,
    numel: usize,
    start: usize,
    above: i32,
    selection: &'a mut Selection,
}

impl Work for Filter<'_> {
    type Output = usize;

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) -> usize {
        // SAFETY: by contract.
        unsafe {
            match (self.x.is_null(), self.error.is_null()) {
                (false, true) => self.pass::<L, true, false>(),
                (false, false) => self.pass::<L, true, true>(),
                (true, _) => self.pass::<L, false, true>(),
            }
        }
    }
}

impl Filter<'_> {
    /// `X`: there is an `x`. `ERROR`: there is an `error`.
    ///
    /// Safety: they are valid for `numel` values; the CPU has the instruction set of `L`.
    #[inline(always)]
    unsafe fn pass<L: Lanes, const X: bool, const ERROR: bool>(mut self) -> usize {
        const { assert!(BLOCK.is_multiple_of(L::WIDTH)) };
        let (indices, values) = self.selection.all();
        let room = self.selection.room();
        let (mut at, mut len) = (self.start, self.selection.len);
        while at + BLOCK <= self.numel && len + BLOCK <= room {
            for row in (at..at + BLOCK).step_by(L::WIDTH) {
                // SAFETY: the row lies within the block, which lies within the values; what is packed fits the room.
                unsafe {
                    let lanes = self.row::<L, X, ERROR>(row);
                    let mask = L::above(lanes, self.above);
                    if ERROR {
                        L::store(self.error.add(row), L::without(lanes, mask));
                    }
                    L::pack(indices.add(len).cast(), L::count_from(row as i32), mask);
                    L::pack(values.add(len), lanes, mask);
                    len += mask.count_ones() as usize;
                }
            }
            at += BLOCK;
        }
        if self.numel - at < BLOCK {
            // SAFETY: as above.
            (at, len) = unsafe { self.rest::<X, ERROR>(at, len) };
        }
        self.selection.len = len;
        at
    }

    /// Safety: as `pass`; `row` begins a row within the values.
    #[inline(always)]
    unsafe fn row<L: Lanes, const X: bool, const ERROR: bool>(&self, row: usize) -> L::Row {
        // SAFETY: by contract.
        unsafe {
            match (X, ERROR) {
                (true, true) => L::add(L::load(self.x.add(row)), L::load(self.error.add(row))),
                (true, false) => L::load(self.x.add(row)),
                _ => L::load(self.error.add(row)),
            }
        }
    }

    /// The last values, one by one, while there is room.
    ///
    /// Safety: as `pass`.
    unsafe fn rest<const X: bool, const ERROR: bool>(
        &mut self,
        mut at: usize,
        mut len: usize,
    ) -> (usize, usize) {
        let (indices, values) = self.selection.all();
        while at < self.numel && len < self.selection.room() {
            // SAFETY: `at` is within the values, `len` within the room.
            unsafe {
                let number = match (X, ERROR) {
                    (true, true) => *self.x.add(at) + *self.error.add(at),
                    (true, false) => *self.x.add(at),
                    _ => *self.error.add(at),
                };
                let selected = (number.to_bits() & MAGNITUDE) as i32 > self.above;
                if ERROR {
                    *self.error.add(at) = if selected { 0.0 } else { number };
                }
                *indices.add(len) = at as i32;
                *values.add(len) = number;
                len += usize::from(selected);
            }
            at += 1;
        }
        (at, len)
    }
}
