//! A set of ranks, a bit each.

/// See the module.
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

    /// Its words, the lowest ranks first.
    pub fn words(&self) -> &[u64] {
        &self.0
    }

    /// Of words.
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
