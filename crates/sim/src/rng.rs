//! A seeded generator (SplitMix64, Steele, Lea and Flood 2014): the same numbers on every machine.

use crate::clock::Time;

#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// A time from zero to `most`, all equally likely.
    pub(crate) fn up_to(&mut self, most: Time) -> Time {
        match most {
            0 => 0,
            _ => ((u128::from(self.next()) * u128::from(most)) >> 64) as Time,
        }
    }

    /// A number from 0 to 1.
    pub(crate) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }
}

/// Scatters a number over 64 bits.
pub(crate) fn mix(number: u64) -> u64 {
    let z = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
