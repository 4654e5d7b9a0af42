//! What one instruction set does with a few float32 at once.

use crate::isa::{lanes, Isa};

/// All bits of a float32 but its sign. As integers they are in the order of magnitudes.
pub(crate) const MAGNITUDE: u32 = 0x7fff_ffff;

/// A loop over values, written once for all instruction sets.
pub(crate) trait Work {
    type Output;

    /// Safety: the CPU must have the instruction set of `L`. Implementations are `#[inline(always)]`, or they are not
    /// compiled for it.
    unsafe fn run<L: Lanes>(self) -> Self::Output;
}

impl Isa {
    /// Does `work` with the code of this instruction set.
    ///
    /// Safety: the CPU must have it; and whatever `work` asks for.
    pub(crate) unsafe fn run<W: Work>(self, work: W) -> W::Output {
        // SAFETY: by contract.
        unsafe {
            match self {
                Self::Baseline => work.run::<Plain>(),
                #[cfg(target_arch = "x86_64")]
                Self::Avx2 => super::x86::avx2(work),
                #[cfg(target_arch = "x86_64")]
                Self::Avx512 => super::x86::avx512(work),
            }
        }
    }
}

/// `WIDTH` float32 side by side, as bits.
///
/// Safety: the CPU must have the instruction set. Pointers are valid for `WIDTH` values, at the alignment of one.
pub(crate) trait Lanes {
    const WIDTH: usize;
    type Row: Copy;

    unsafe fn load(from: *const f32) -> Self::Row;
    unsafe fn store(to: *mut f32, row: Self::Row);
    unsafe fn add(a: Self::Row, b: Self::Row) -> Self::Row;
    /// `first`, `first + 1`, ...
    unsafe fn count_from(first: i32) -> Self::Row;
    /// A bit for each number whose magnitude, as an integer, is greater.
    unsafe fn above(row: Self::Row, magnitude: i32) -> u32;
    /// Zero where `mask` has a bit.
    unsafe fn without(row: Self::Row, mask: u32) -> Self::Row;
    /// Stores the values where `mask` has a bit side by side; what follows them, up to a full row, is undefined.
    unsafe fn pack(to: *mut f32, row: Self::Row, mask: u32);
}

/// Code that needs no instruction set.
pub(crate) struct Plain;

const PLAIN: usize = 8;

lanes! { Lanes for Plain:
    const WIDTH: usize = PLAIN;
    type Row = [u32; PLAIN];

    fn load(from: *const f32) -> Self::Row { from.cast::<Self::Row>().read_unaligned() }
    fn store(to: *mut f32, row: Self::Row) { to.cast::<Self::Row>().write_unaligned(row); }
    fn add(a: Self::Row, b: Self::Row) -> Self::Row {
        std::array::from_fn(|lane| (f32::from_bits(a[lane]) + f32::from_bits(b[lane])).to_bits())
    }
    fn count_from(first: i32) -> Self::Row {
        std::array::from_fn(|lane| (first as u32).wrapping_add(lane as u32))
    }
    fn above(row: Self::Row, magnitude: i32) -> u32 {
        let bit = |lane: usize| u32::from((row[lane] & MAGNITUDE) as i32 > magnitude) << lane;
        (0..PLAIN).map(bit).sum()
    }
    fn without(row: Self::Row, mask: u32) -> Self::Row {
        std::array::from_fn(|lane| row[lane] & ((mask >> lane) & 1).wrapping_sub(1))
    }
    fn pack(to: *mut f32, row: Self::Row, mask: u32) {
        let mut at = 0;
        for (lane, &bits) in row.iter().enumerate() {
            // `at <= lane`.
            to.add(at).cast::<u32>().write(bits);
            at += (mask >> lane) as usize & 1;
        }
    }
}
