//! Sixteen numbers in an array: for any CPU.

use super::lanes::{low_bits, Lanes, LANES};
use crate::isa::lanes;

pub(super) struct Plain;

type Floats = [f32; LANES];
type Integers = [u32; LANES];
type Sums = [f64; LANES];

#[inline(always)]
fn zip<A: Copy, B: Copy, C>(a: [A; LANES], b: [B; LANES], f: impl Fn(A, B) -> C) -> [C; LANES] {
    std::array::from_fn(
        #[inline(always)]
        |lane| f(a[lane], b[lane]),
    )
}

/// Added and taken away again, it rounds to an integer: above it, float32 has no fractions.
const ROUNDER: f32 = 12_582_912.0;

lanes! { Lanes for Plain:
    type F = Floats;
    type I = Integers;
    type D = Sums;

    fn load(from: *const f32) -> Floats { from.cast::<Floats>().read_unaligned() }
    fn store(to: *mut f32, value: Floats) { to.cast::<Floats>().write_unaligned(value); }
    fn splat(value: f32) -> Floats { [value; LANES] }
    fn add(a: Floats, b: Floats) -> Floats { zip(a, b, |a, b| a + b) }
    fn sub(a: Floats, b: Floats) -> Floats { zip(a, b, |a, b| a - b) }
    fn mul(a: Floats, b: Floats) -> Floats { zip(a, b, |a, b| a * b) }
    fn min(a: Floats, b: Floats) -> Floats { zip(a, b, |a, b| if a < b { a } else { b }) }
    fn max(a: Floats, b: Floats) -> Floats { zip(a, b, |a, b| if a > b { a } else { b }) }
    fn abs(a: Floats) -> Floats { a.map(f32::abs) }
    fn largest(a: Floats) -> f32 { a.into_iter().fold(0.0, f32::max) }

    fn zeros() -> Sums { [0.0; LANES] }
    fn widened(a: Floats) -> Sums { a.map(f64::from) }
    fn sum_squares(sums: Sums, a: Floats) -> Sums { zip(sums, a, |sum, a| sum + f64::from(a) * f64::from(a)) }
    fn add_sums(a: Sums, b: Sums) -> Sums { zip(a, b, |a, b| a + b) }
    fn total(sums: Sums) -> f64 {
        let mut sums = sums;
        for half in [8, 4, 2, 1] {
            for lane in 0..half {
                sums[lane] += sums[lane + half];
            }
        }
        sums[0]
    }

    fn signs(a: Floats) -> u32 {
        (0..LANES).fold(0, |bits, lane| bits | (a[lane].to_bits() >> 31) << lane)
    }
    fn turn(a: Floats, bits: u32) -> Floats {
        std::array::from_fn(|lane| f32::from_bits(a[lane].to_bits() ^ ((bits >> lane & 1) << 31)))
    }

    fn nearest(a: Floats) -> Integers { a.map(|a| ((a + ROUNDER) - ROUNDER) as i32 as u32) }
    fn floor(a: Floats) -> Integers { a.map(|a| a.floor() as i32 as u32) }
    fn float(a: Integers) -> Floats { a.map(|a| a as i32 as f32) }

    fn splat_integer(value: u32) -> Integers { [value; LANES] }
    fn count_from(first: u32) -> Integers { std::array::from_fn(|lane| first.wrapping_add(lane as u32)) }
    fn add_integers(a: Integers, b: Integers) -> Integers { zip(a, b, u32::wrapping_add) }
    fn mul_integers(a: Integers, b: Integers) -> Integers { zip(a, b, u32::wrapping_mul) }
    fn xor(a: Integers, b: Integers) -> Integers { zip(a, b, |a, b| a ^ b) }
    fn shift_right<const BY>(a: Integers) -> Integers { a.map(|a| a >> BY) }

    fn store_bytes(to: *mut u8, a: Integers) {
        to.cast::<[u8; LANES]>().write(a.map(|a| a as u8));
    }
    fn load_bytes(from: *const u8) -> Integers { from.cast::<[u8; LANES]>().read().map(u32::from) }

    fn squeeze<const BITS>(bytes: u64) -> u64 {
        let bytes = (bytes & low_bits(BITS)).to_le_bytes();
        (0..8).fold(0, |word, place| word | u64::from(bytes[place as usize]) << (place * BITS))
    }
    fn spread<const BITS>(word: u64) -> u64 {
        let low = low_bits(BITS) & 0xff;
        (0..8).fold(0, |bytes, place| bytes | (word >> (place * BITS) & low) << (place * 8))
    }
    fn prefetch(_at: *const f32) {}
}
