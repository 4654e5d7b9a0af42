//! The pauses between a caller's attempts.

use std::time::Duration;

use tweed_rng::Rng;

/// Each pause is up to twice as long as the one before, and drawn, so that callers that
/// were turned away together do not come back together.
pub(crate) struct Backoff {
    rng: Rng,
    most: Duration,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(40);
    const LONGEST: Duration = Duration::from_secs(2);

    pub(crate) fn new(seed: u64) -> Backoff {
        Backoff { rng: Rng::new(seed), most: Self::FIRST }
    }

    /// The next one.
    pub(crate) fn next_pause(&mut self) -> Duration {
        let pause = self.most / 2 + (self.most / 2).mul_f64(self.rng.uniform());
        self.most = (self.most * 2).min(Self::LONGEST);
        pause
    }
}

/// A seed from names (FNV-1a).
pub(crate) fn seed(names: &[&str], number: u32) -> u64 {
    let bytes = names.iter().flat_map(|n| n.bytes()).chain(number.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_have_an_end_and_differ_between_callers() {
        let pauses = |number| {
            let mut backoff = Backoff::new(seed(&["a", "b"], number));
            (0..10).map(|_| backoff.next_pause()).collect::<Vec<_>>()
        };
        let [one, again, other] = [0, 0, 1].map(pauses);
        assert_eq!(one, again);
        assert!(one.iter().zip(&other).all(|(a, b)| a != b));
        let most = (0..10).map(|i| (Backoff::FIRST * (1 << i)).min(Backoff::LONGEST));
        assert!(one.iter().zip(most).all(|(pause, most)| (most / 2..=most).contains(pause)));
    }
}
