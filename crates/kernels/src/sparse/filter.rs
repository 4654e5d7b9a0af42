//! The one pass in which numbers are chosen: by their magnitude, with what was left of the last time.

use super::lanes::{Lanes, Work, MAGNITUDE};
use super::places::prefetch;
use super::taken::Taken;

/// Numbers between two looks at whether there is room for as many.
pub(super) const BLOCK: usize = 128;

/// What is chosen from, and what keeps the rest.
pub(super) enum Input<'a> {
    /// Nothing keeps the rest.
    Plain(&'a [f32]),
    /// `x + error`; then `error` is what was not chosen.
    Fed(&'a [f32], &'a mut [f32]),
    /// `error`, which already holds the sum.
    Again(&'a mut [f32]),
}

impl Input<'_> {
    pub(super) fn numel(&self) -> usize {
        match self {
            Self::Plain(x) | Self::Fed(x, _) => x.len(),
            Self::Again(error) => error.len(),
        }
    }

    /// Copies the numbers from a place on.
    pub(super) fn copy(&self, first: usize, to: &mut [f32]) {
        let range = first..first + to.len();
        match self {
            Self::Plain(x) => to.copy_from_slice(&x[range]),
            Self::Again(error) => to.copy_from_slice(&error[range]),
            Self::Fed(x, error) => {
                to.copy_from_slice(&x[range.clone()]);
                to.iter_mut().zip(&error[range]).for_each(|(sum, error)| *sum += error);
            }
        }
    }

    /// Asks memory for the numbers at a place.
    pub(super) fn expect(&self, index: usize) {
        match self {
            Self::Plain(x) => prefetch(x, index),
            Self::Again(error) => prefetch(error, index),
            Self::Fed(x, error) => {
                prefetch(x, index);
                prefetch(error, index);
            }
        }
    }
}

/// Takes all numbers from `start` on whose magnitude is above `above`, until the end or until there is no room for
/// another block. Returns how far it came.
pub(super) fn sieve(input: &mut Input<'_>, start: usize, above: i32, taken: &mut Taken) -> usize {
    let numel = input.numel();
    let (x, error) = match input {
        Input::Plain(x) => (x.as_ptr(), std::ptr::null_mut()),
        Input::Fed(x, error) => {
            assert_eq!(x.len(), error.len(), "an error of another length than the numbers");
            (x.as_ptr(), error.as_mut_ptr())
        }
        Input::Again(error) => (std::ptr::null(), error.as_mut_ptr()),
    };
    let isa = taken.isa;
    // SAFETY: `isa` is one of this CPU's; both pointers are null or those of `numel` numbers.
    unsafe { isa.run(Sieve { x, error, numel, start, above, taken }) }
}

struct Sieve<'a> {
    x: *const f32,
    error: *mut f32,
    numel: usize,
    start: usize,
    above: i32,
    taken: &'a mut Taken,
}

impl Work for Sieve<'_> {
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

impl Sieve<'_> {
    /// `X`: there is an `x`. `ERROR`: there is an `error`.
    ///
    /// # Safety
    ///
    /// They are valid for `numel` numbers; the CPU has the instruction set of `L`.
    #[inline(always)]
    unsafe fn pass<L: Lanes, const X: bool, const ERROR: bool>(mut self) -> usize {
        const { assert!(BLOCK.is_multiple_of(L::WIDTH)) };
        let (indices, values) = self.taken.all();
        let room = self.taken.room();
        let (mut at, mut len) = (self.start, self.taken.len);
        while at + BLOCK <= self.numel && len + BLOCK <= room {
            for row in (at..at + BLOCK).step_by(L::WIDTH) {
                // SAFETY: the row lies within the block, which lies within the numbers; what is packed fits the room.
                unsafe {
                    let numbers = self.row::<L, X, ERROR>(row);
                    let mask = L::above(numbers, self.above);
                    if ERROR {
                        L::store(self.error.add(row), L::without(numbers, mask));
                    }
                    L::pack(indices.add(len).cast(), L::count_from(row as i32), mask);
                    L::pack(values.add(len), numbers, mask);
                    len += mask.count_ones() as usize;
                }
            }
            at += BLOCK;
        }
        if self.numel - at < BLOCK {
            // SAFETY: as above.
            (at, len) = unsafe { self.rest::<X, ERROR>(at, len) };
        }
        self.taken.len = len;
        at
    }

    /// # Safety
    ///
    /// As `pass`; `row` begins a row within the numbers.
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

    /// The last numbers, one by one, while there is room.
    ///
    /// # Safety
    ///
    /// As `pass`.
    unsafe fn rest<const X: bool, const ERROR: bool>(
        &mut self,
        mut at: usize,
        mut len: usize,
    ) -> (usize, usize) {
        let (indices, values) = self.taken.all();
        while at < self.numel && len < self.taken.room() {
            // SAFETY: `at` is within the numbers, `len` within the room.
            unsafe {
                let number = match (X, ERROR) {
                    (true, true) => *self.x.add(at) + *self.error.add(at),
                    (true, false) => *self.x.add(at),
                    _ => *self.error.add(at),
                };
                let chosen = (number.to_bits() & MAGNITUDE) as i32 > self.above;
                if ERROR {
                    *self.error.add(at) = if chosen { 0.0 } else { number };
                }
                *indices.add(len) = at as i32;
                *values.add(len) = number;
                len += usize::from(chosen);
            }
            at += 1;
        }
        (at, len)
    }
}
