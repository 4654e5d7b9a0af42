//! The scale of a block.
//!
//! Sums are taken in this order. The block is cut into runs of 1024 numbers, the last filled up with
//! zeros. In a run, lane `j` of 32 adds up the numbers `j`, `j + 32`, `j + 64` and so on: their
//! squares, in float64; or their magnitudes over 4096, in float32. Then, in float64, lanes are added in halves: 16 and 16, 8 and 8, 4 and 4, 2 and 2, 1 and 1. Then runs are added in pairs of neighbours, pairs of pairs, and so on.

use super::form::Scheme;
use super::lanes::{Lanes, LANES};

const RUN: usize = 1024;
/// Scales from here on count (2^-120); smaller ones are 0.
const SMALLEST: f32 = f32::from_bits(7 << 23);
/// Scales up to here, so that no code stands for infinity.
const LARGEST: f32 = 3e38;

/// A block of numbers: `x`, or with `FED` what `x + error` is, which then is put into `error`.
pub(super) struct Block {
    pub(super) x: *const f32,
    pub(super) error: *mut f32,
    pub(super) numel: usize,
}

impl Block {
    /// The scale; and with `FED`, adds `x` to `error`.
    ///
    /// Safety: as [`Lanes`]; `x`, and with `FED` also `error`, are valid for `numel` numbers.
    #[inline(always)]
    pub(super) unsafe fn scale<L: Lanes, const FED: bool>(&self, scheme: Scheme) -> f32 {
        // SAFETY: by contract.
        let scale = unsafe {
            match scheme {
                Scheme::Sign => {
                    (self.sum::<L, Magnitudes, FED>() * Magnitudes::PARTS / self.numel as f64) as f32
                }
                Scheme::Uniform => self.largest::<L, FED>(),
                Scheme::Levels => self.sum::<L, Squares, FED>().sqrt() as f32,
            }
        };
        if scale < SMALLEST {
            0.0
        } else {
            scale.min(LARGEST)
        }
    }

    /// Safety: as [`Block::scale`].
    #[inline(always)]
    unsafe fn largest<L: Lanes, const FED: bool>(&self) -> f32 {
        // SAFETY: by contract.
        unsafe {
            let (mut even, mut odd) = (L::splat(0.0), L::splat(0.0));
            let mut at = 0;
            while at + 2 * LANES <= self.numel {
                even = L::max(even, L::abs(self.row::<L, FED>(at)));
                odd = L::max(odd, L::abs(self.row::<L, FED>(at + LANES)));
                at += 2 * LANES;
            }
            while at < self.numel {
                even = L::max(even, L::abs(self.any_row::<L, FED>(at)));
                at += LANES;
            }
            L::largest(L::max(even, odd))
        }
    }

    /// The sum of one run after the other.
    ///
    /// Safety: as [`Block::scale`].
    #[inline(always)]
    unsafe fn sum<L: Lanes, T: Terms, const FED: bool>(&self) -> f64 {
        let mut runs = Pairs::new();
        for start in (0..self.numel).step_by(RUN) {
            let end = (start + RUN).min(self.numel);
            // SAFETY: by contract; whole rows end before `end`.
            unsafe {
                let (mut even, mut odd) = (T::none::<L>(), T::none::<L>());
                let mut at = start;
                while at + 2 * LANES <= end {
                    even = T::add::<L>(even, self.row::<L, FED>(at));
                    odd = T::add::<L>(odd, self.row::<L, FED>(at + LANES));
                    at += 2 * LANES;
                }
                if at < end {
                    even = T::add::<L>(even, self.any_row::<L, FED>(at));
                    at += LANES;
                }
                if at < end {
                    odd = T::add::<L>(odd, self.any_row::<L, FED>(at));
                }
                runs.push(L::total(L::add_sums(T::wide::<L>(even), T::wide::<L>(odd))));
            }
        }
        runs.total()
    }

    /// Safety: as [`Block::scale`], and a whole row lies at `at`.
    #[inline(always)]
    unsafe fn row<L: Lanes, const FED: bool>(&self, at: usize) -> L::F {
        // SAFETY: by contract.
        unsafe {
            let mut row = L::load(self.x.add(at));
            if FED {
                row = L::add(L::load(self.error.add(at)), row);
                L::store(self.error.add(at), row);
            }
            row
        }
    }

    /// As `row`, with zeros behind the last number.
    ///
    /// Safety: as [`Block::scale`], and `at < numel`.
    #[inline(always)]
    unsafe fn any_row<L: Lanes, const FED: bool>(&self, at: usize) -> L::F {
        let here = LANES.min(self.numel - at);
        let (mut x, mut error) = ([0.0; LANES], [0.0; LANES]);
        // SAFETY: by contract; `here` numbers lie at `at`, and fit into both arrays.
        unsafe {
            x.as_mut_ptr().copy_from_nonoverlapping(self.x.add(at), here);
            let block = Block { x: x.as_ptr(), error: error.as_mut_ptr(), numel: LANES };
            if FED {
                block.error.copy_from_nonoverlapping(self.error.add(at), here);
            }
            let row = block.row::<L, FED>(0);
            if FED {
                self.error.add(at).copy_from_nonoverlapping(block.error, here);
            }
            row
        }
    }
}

/// What is added up of each number in a run, by lanes.
///
/// Safety: as [`Lanes`].
trait Terms {
    type Sums<L: Lanes>: Copy;

    unsafe fn none<L: Lanes>() -> Self::Sums<L>;
    unsafe fn add<L: Lanes>(sums: Self::Sums<L>, row: L::F) -> Self::Sums<L>;
    unsafe fn wide<L: Lanes>(sums: Self::Sums<L>) -> L::D;
}

/// Magnitudes over 4096, in float32: they do not overflow, and most of the work is in half the registers.
struct Magnitudes;

impl Magnitudes {
    const PARTS: f64 = 4096.0;
}

impl Terms for Magnitudes {
    type Sums<L: Lanes> = L::F;

    #[inline(always)]
    unsafe fn none<L: Lanes>() -> L::F {
        // SAFETY: by contract.
        unsafe { L::splat(0.0) }
    }

    #[inline(always)]
    unsafe fn add<L: Lanes>(sums: L::F, row: L::F) -> L::F {
        // SAFETY: by contract.
        unsafe { L::add(sums, L::mul(L::abs(row), L::splat(1.0 / Self::PARTS as f32))) }
    }

    #[inline(always)]
    unsafe fn wide<L: Lanes>(sums: L::F) -> L::D {
        // SAFETY: by contract.
        unsafe { L::widened(sums) }
    }
}

/// Squares, in float64, where they are exact and neither overflow nor vanish.
struct Squares;

impl Terms for Squares {
    type Sums<L: Lanes> = L::D;

    #[inline(always)]
    unsafe fn none<L: Lanes>() -> L::D {
        // SAFETY: by contract.
        unsafe { L::zeros() }
    }

    #[inline(always)]
    unsafe fn add<L: Lanes>(sums: L::D, row: L::F) -> L::D {
        // SAFETY: by contract.
        unsafe { L::sum_squares(sums, row) }
    }

    #[inline(always)]
    unsafe fn wide<L: Lanes>(sums: L::D) -> L::D {
        sums
    }
}

/// Adds up in pairs of neighbours, without keeping more than one sum of each length.
struct Pairs {
    sums: [f64; usize::BITS as usize],
    count: usize,
}

impl Pairs {
    fn new() -> Self {
        Self { sums: [0.0; usize::BITS as usize], count: 0 }
    }

    /// Place `i` of `sums` holds a sum of `2^i` where bit `i` of `count` is set.
    fn push(&mut self, mut sum: f64) {
        let place = self.count.trailing_ones() as usize;
        for shorter in &self.sums[..place] {
            sum += shorter;
        }
        self.sums[place] = sum;
        self.count += 1;
    }

    fn total(&self) -> f64 {
        let set = (0..self.sums.len()).filter(|place| self.count >> place & 1 == 1);
        set.fold(0.0, |total, place| total + self.sums[place])
    }
}
