//! Which packets have come before.

/// How far a number may lie behind the newest and still be admitted.
const SPAN: u64 = 1 << 16;
const WORDS: usize = (SPAN / 64) as usize;

/// Admits each packet number once, as in RFC 6479: a ring of bits over the newest 65,536 numbers or so.
/// What is older is refused, since nobody remembers it. 8 KiB.
#[derive(Clone, Debug)]
pub struct Window {
    bits: Box<[u64; WORDS]>,
    /// The newest number admitted, plus one.
    next: u64,
}

impl Default for Window {
    fn default() -> Window {
        Window { bits: Box::new([0; WORDS]), next: 0 }
    }
}

impl Window {
    /// True for a number that has not been admitted yet. Ask only once the packet is known to be genuine.
    #[must_use]
    pub fn admit(&mut self, number: u64) -> bool {
        let word = number / 64;
        if number >= self.next {
            let newest = self.next.saturating_sub(1) / 64;
            for passed in (newest + 1..=word).rev().take(WORDS) {
                self.bits[passed as usize % WORDS] = 0;
            }
            self.next = number.saturating_add(1);
        } else if self.next.div_ceil(64) - word > WORDS as u64 {
            return false;
        }
        let bit = 1 << (number % 64);
        let slot = &mut self.bits[word as usize % WORDS];
        let fresh = *slot & bit == 0;
        *slot |= bit;
        fresh
    }
}
