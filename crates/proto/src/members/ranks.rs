//! A set of ranks, a bit each.

/// A set of ranks, as the module describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranks(Vec<u64>);

impl Ranks {
    /// Puts a rank in.
    pub fn insert(&mut self, rank: usize) {
        let word = rank / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (rank % 64);
    }

    /// Whether it is in.
    pub fn contains(&self, rank: usize) -> bool {
        self.0.get(rank / 64).is_some_and(|word| word >> (rank % 64) & 1 == 1)
    }

    /// Whether all below `size` are in.
    pub fn has_all(&self, size: usize) -> bool {
        let word = |number: usize| self.0.get(number).copied().unwrap_or(0);
        let rest = (1 << (size % 64)) - 1;
        (0..size / 64).all(|number| word(number) == u64::MAX) && word(size / 64) & rest == rest
    }

    /// Its words, the lowest ranks first.
    pub fn words(&self) -> &[u64] {
        &self.0
    }

    /// The ranks that these words stand for.
    pub fn from_words(words: Vec<u64>) -> Ranks {
        Ranks(words)
    }
}

impl FromIterator<usize> for Ranks {
    fn from_iter<I: IntoIterator<Item = usize>>(ranks: I) -> Ranks {
        let mut found = Ranks::default();
        ranks.into_iter().for_each(|rank| found.insert(rank));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_in_when_none_is_missing() {
        for size in [0, 1, 63, 64, 65, 128, 200] {
            let all: Ranks = (0..size).collect();
            assert!(all.has_all(size) && !all.has_all(size + 1));
            for missing in 0..size {
                let others: Ranks = (0..size + 70).filter(|&rank| rank != missing).collect();
                assert!(!others.has_all(size), "{size} without {missing}");
            }
        }
    }
}
