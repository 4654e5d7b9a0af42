//! What one instruction set does with sixteen numbers at once.

use crate::isa::Isa;

/// Numbers that are worked on side by side, with every instruction set: the order of sums depends on it.
pub(super) const LANES: usize = 16;

/// A loop over numbers, written once for all instruction sets.
pub(super) trait Work {
    /// Safety: the CPU must have the instruction set of `L`. Implementations are `#[inline(always)]`, or they are not
    /// compiled for it.
    unsafe fn run<L: Lanes>(self);
}

/// Does `work` with the code of an instruction set.
///
/// Safety: the CPU must have it.
pub(super) unsafe fn run<W: Work>(isa: Isa, work: W) {
    // SAFETY: by contract.
    unsafe {
        match isa {
            Isa::Baseline => work.run::<super::plain::Plain>(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => super::avx2::run(work),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => super::avx512::run(work),
        }
    }
}

/// Sixteen float32 (`F`), 32-bit integers (`I`), or sums in float64 (`D`).
///
/// Nothing is contracted or reordered: each method rounds as float32 does, once.
///
/// Safety: the CPU must have the instruction set. Pointers are valid for sixteen numbers, at the alignment of one.
pub(super) trait Lanes {
    type F: Copy;
    type I: Copy;
    type D: Copy;

    unsafe fn load(from: *const f32) -> Self::F;
    unsafe fn store(to: *mut f32, value: Self::F);
    unsafe fn splat(value: f32) -> Self::F;
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn abs(a: Self::F) -> Self::F;
    /// The largest of the sixteen.
    unsafe fn largest(a: Self::F) -> f32;

    unsafe fn zeros() -> Self::D;
    unsafe fn widened(a: Self::F) -> Self::D;
    /// `sums + a * a`; the product is exact.
    unsafe fn sum_squares(sums: Self::D, a: Self::F) -> Self::D;
    unsafe fn add_sums(a: Self::D, b: Self::D) -> Self::D;
    /// The sum of the sixteen: 8 and 8, 4 and 4, 2 and 2, 1 and 1.
    unsafe fn total(sums: Self::D) -> f64;

    /// A bit for each number whose sign is set.
    unsafe fn signs(a: Self::F) -> u32;
    /// Turns the sign where there is a bit, of the lowest sixteen.
    unsafe fn turn(a: Self::F, bits: u32) -> Self::F;

    /// Rounded to nearest, ties to even. Magnitudes are below 2^22.
    unsafe fn nearest(a: Self::F) -> Self::I;
    /// Rounded down. Magnitudes are below 2^22.
    unsafe fn floor(a: Self::F) -> Self::I;
    unsafe fn float(a: Self::I) -> Self::F;

    unsafe fn splat_integer(value: u32) -> Self::I;
    /// `first`, `first + 1`, ...
    unsafe fn count_from(first: u32) -> Self::I;
    unsafe fn add_integers(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn mul_integers(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn xor(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn shift_right<const BY: u32>(a: Self::I) -> Self::I;

    /// Sixteen bytes, from integers below 256.
    unsafe fn store_bytes(to: *mut u8, a: Self::I);
    unsafe fn load_bytes(from: *const u8) -> Self::I;

    /// The lowest `BITS` bits of each of eight bytes, side by side.
    unsafe fn squeeze<const BITS: u32>(bytes: u64) -> u64;
    /// The inverse of `squeeze`.
    unsafe fn spread<const BITS: u32>(word: u64) -> u64;

    /// Asks for the line of memory at `at`, which need not be valid.
    unsafe fn prefetch(at: *const f32);
}

/// The lowest `bits` bits of each of eight bytes.
pub(super) const fn low_bits(bits: u32) -> u64 {
    0x0101_0101_0101_0101 * ((1_u64 << bits) - 1)
}
