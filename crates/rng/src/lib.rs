//! A seeded generator of random numbers (SplitMix64: Steele, Lea and Flood 2014): the same on every machine.
//!
//! Everything in the house that is random draws here, so that a seed replays a run.

/// Times a count, this visits all 64-bit numbers once, neighbours far apart: 2^64 over the golden ratio, made odd.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// See the crate's documentation.
///
/// ```
/// let mut rng = tweed_rng::Rng::new(7);
/// let again = rng.clone();
/// assert!(rng.below(6) < 6);
/// assert_eq!(tweed_rng::Rng::new(7).below(6), again.clone().below(6));
/// ```
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Draws follow from the seed alone.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// A number below `end`, all equally likely; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(end)) >> 64) as u64
    }

    /// A place in something of this length, which is not 0.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// A number from 0 to 1, without 1, of as many bits as a float tells apart.
    pub fn uniform(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with this probability. Nothing is drawn for one of 0.
    pub fn bernoulli(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.uniform() < probability
    }

    /// Puts `items` in any order, all equally likely (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }
}

/// Spreads neighbouring numbers over 64 bits, each to one of its own (the generator's finaliser).
pub fn mix(number: u64) -> u64 {
    let z = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published sequence of seed 1234567.
    #[test]
    fn it_is_splitmix64() {
        let mut rng = Rng::new(1_234_567);
        let drawn = [rng.draw(), rng.draw(), rng.draw()];
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn draws_keep_within_their_bounds() {
        let mut rng = Rng::new(0);
        for end in 0..100 {
            assert!(rng.below(end) < end.max(1));
            assert!((0.0..1.0).contains(&rng.uniform()));
        }
        assert!(!rng.bernoulli(0.0) && rng.bernoulli(1.0));
    }

    #[test]
    fn a_shuffle_keeps_all_items() {
        let mut items: Vec<u32> = (0..50).collect();
        Rng::new(3).shuffle(&mut items);
        assert!(!items.is_sorted());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }
}
