//! Indices as a bit per number, low bits first.

use super::lanes::{Lanes, Work};
use crate::isa::Isa;

/// Sets the bits of `indices`; false unless they ascend from 0 to `numel - 1`, no two equal.
///
/// Cost: one pass over indices and bits.
///
/// # Panics
/// If `out` has another length than `numel` bits need.
pub fn encode_bitmap(indices: &[i32], numel: usize, out: &mut [u8]) -> bool {
    assert_eq!(out.len(), numel.div_ceil(8), "a bit per number");
    let ascends = indices.windows(2).fold(true, |ascends, pair| ascends & (pair[0] < pair[1]));
    let inside = indices.first().is_none_or(|&first| first >= 0)
        && indices.last().is_none_or(|&last| (last as usize) < numel);
    if !ascends || !inside {
        return false;
    }
    out.fill(0);
    for &index in indices {
        out[index as usize / 8] |= 1 << (index % 8);
    }
    true
}

/// Decodes as many indices as `out` has; false if `data` does not code just so many, all below `numel`.
///
/// Cost: two passes over the bits, and one over the indices.
pub fn decode_bitmap(data: &[u8], numel: usize, out: &mut [i32]) -> bool {
    decode_bitmap_with(Isa::best(), data, numel, out)
}

pub(super) fn decode_bitmap_with(isa: Isa, data: &[u8], numel: usize, out: &mut [i32]) -> bool {
    let beyond = data.last().is_some_and(|&last| !numel.is_multiple_of(8) && last >> (numel % 8) != 0);
    if data.len() != numel.div_ceil(8) || beyond {
        return false;
    }
    // SAFETY: `isa` is one of this CPU's.
    unsafe { isa.run(Decode { data, out }) }
}

struct Decode<'a> {
    data: &'a [u8],
    out: &'a mut [i32],
}

impl Work for Decode<'_> {
    type Output = bool;

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) -> bool {
        let ones: u64 = self.data.iter().map(|byte| u64::from(byte.count_ones())).sum();
        if ones != self.out.len() as u64 {
            return false;
        }
        let (mut row, mut len) = (0, 0);
        let bytes = L::WIDTH / 8;
        while (row + 1) * bytes <= self.data.len() && len + L::WIDTH <= self.out.len() {
            let bits = self.data[row * bytes..(row + 1) * bytes].iter().rev();
            let mask = bits.fold(0, |mask, &byte| mask << 8 | u32::from(byte));
            // SAFETY: there is room for a whole row.
            unsafe {
                let to = self.out.as_mut_ptr().add(len);
                L::pack(to.cast(), L::count_from((row * L::WIDTH) as i32), mask);
            }
            len += mask.count_ones() as usize;
            row += 1;
        }
        self.rest(row * bytes, len);
        true
    }
}

impl Decode<'_> {
    /// What does not fill a row, byte by byte.
    fn rest(self, from: usize, len: usize) {
        let bytes = self.data.iter().enumerate().skip(from);
        let ones = bytes.flat_map(|(at, byte)| {
            (0..8).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| 8 * at + bit)
        });
        for (out, index) in self.out[len..].iter_mut().zip(ones) {
            *out = index as i32;
        }
    }
}
