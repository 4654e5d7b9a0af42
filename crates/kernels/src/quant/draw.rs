//! Chance as a function: number `i` of a key.
//!
//! ```text
//! k = the first draw of SplitMix64 with this seed  (once)
//! h = (i * 0x9e3779b1 + low half of k) mod 2^32
//! h ^= h >> 16;  h *= 0x21f0aaad;  h ^= high half of k
//! h ^= h >> 15;  h *= 0xd35a2d97;  h ^= h >> 15
//! ```
//!
//! Two rounds of an integer hash over a Weyl sequence (without that, numbers some power of two apart are related), with
//! the key put in twice: in front, and between the rounds, so that the numbers of two keys are no shifted copies of
//! each other. For one key it is a bijection. Statistical tests are in
//! `tests/test_rng.py`, of the same function in Python.
//!
//! Source: C. Wellons, "Prospecting for hash functions", 2018, and its list of constants.

use tweed_rng::Rng;

use super::lanes::Lanes;

/// 2^32 over the golden ratio, made odd.
const WEYL: u32 = 0x9e37_79b1;

/// Where draw comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    front: u32,
    between: u32,
}

impl Key {
    pub(super) fn new(key: u64) -> Self {
        let k = Rng::new(key).draw();
        Self { front: k as u32, between: (k >> 32) as u32 }
    }

    /// Numbers `first` to `first + 16` of [0, 2^24), as floats.
    ///
    /// Safety: as [`Lanes`].
    #[inline(always)]
    pub(super) unsafe fn draw<L: Lanes>(self, first: u32) -> L::F {
        // SAFETY: by contract.
        unsafe {
            let lanes = L::mul_integers(L::count_from(0), L::splat_integer(WEYL));
            let h = L::splat_integer(first.wrapping_mul(WEYL).wrapping_add(self.front));
            let h = L::add_integers(h, lanes);
            let h = L::xor(h, L::shift_right::<16>(h));
            let h = L::mul_integers(h, L::splat_integer(0x21f0_aaad));
            let h = L::xor(h, L::splat_integer(self.between));
            let h = L::xor(h, L::shift_right::<15>(h));
            let h = L::mul_integers(h, L::splat_integer(0xd35a_2d97));
            let h = L::xor(h, L::shift_right::<15>(h));
            L::float(L::shift_right::<8>(h))
        }
    }
}
