//! Whether all values are finite.

use super::lanes::{Lanes, Work};
use crate::isa::Isa;

/// The largest magnitude of a finite number, as an integer.
const LARGEST: i32 = 0x7f7f_ffff;
/// Rows that are looked at between two decisions.
const ROWS: usize = 16;

/// Whether no number is infinite or NaN.
///
/// Cost: one pass, which ends where one is.
pub fn all_finite(x: &[f32]) -> bool {
    all_finite_with(Isa::best(), x)
}

pub(super) fn all_finite_with(isa: Isa, x: &[f32]) -> bool {
    // SAFETY: `isa` is one of this CPU's.
    unsafe { isa.run(AllFinite(x)) }
}

struct AllFinite<'a>(&'a [f32]);

impl Work for AllFinite<'_> {
    type Output = bool;

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) -> bool {
        let blocks = self.0.chunks_exact(ROWS * L::WIDTH);
        let rest = blocks.remainder();
        for block in blocks {
            let mut above = 0;
            for row in 0..ROWS {
                // SAFETY: a block has `ROWS` rows.
                above |= unsafe { L::above(L::load(block.as_ptr().add(row * L::WIDTH)), LARGEST) };
            }
            if above != 0 {
                return false;
            }
        }
        rest.iter().all(|x| x.is_finite())
    }
}
