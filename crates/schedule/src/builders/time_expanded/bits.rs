//! Rows of bits: which chunks a rank holds.

/// Equally long rows of bits.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    words: usize,
    bits: Vec<u64>,
    ones: Vec<u32>,
}

impl Rows {
    pub(super) fn new(rows: usize, width: usize) -> Rows {
        let words = width.div_ceil(64);
        Rows { words, bits: vec![0; rows * words], ones: vec![0; rows] }
    }

    pub(super) fn row(&self, row: usize) -> &[u64] {
        &self.bits[row * self.words..(row + 1) * self.words]
    }

    /// How many bits of a row are set.
    pub(super) fn ones(&self, row: usize) -> u32 {
        self.ones[row]
    }

    /// How many bits of a row are set and are not set in `other`.
    pub(super) fn ones_beyond(&self, row: usize, other: &[u64]) -> u32 {
        self.row(row).iter().zip(other).map(|(a, b)| (a & !b).count_ones()).sum()
    }

    pub(super) fn set(&mut self, row: usize, bit: usize) {
        let word = &mut self.bits[row * self.words + bit / 64];
        let mask = 1 << (bit % 64);
        self.ones[row] += u32::from(*word & mask == 0);
        *word |= mask;
    }
}

/// The first bit, from `start` on and around, that `having` has and `lacking` has not.
pub(super) fn first_from(start: usize, having: &[u64], lacking: &[u64]) -> Option<usize> {
    let (first, words) = (start / 64, having.len());
    let low = (1u64 << (start % 64)) - 1;
    let wanted = |word: usize| having[word] & !lacking[word];
    let bit = |word: usize, bits: u64| (bits != 0).then(|| word * 64 + bits.trailing_zeros() as usize);
    bit(first, wanted(first) & !low)
        .or_else(|| (first + 1..words).chain(0..first).find_map(|word| bit(word, wanted(word))))
        .or_else(|| bit(first, wanted(first) & low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_goes_around() {
        let mut rows = Rows::new(2, 130);
        for bit in [3, 70, 129] {
            rows.set(0, bit);
        }
        rows.set(1, 70);
        let from = |start| first_from(start, rows.row(0), rows.row(1));
        assert_eq!([from(0), from(3), from(4), from(129)], [Some(3), Some(3), Some(129), Some(129)]);
        assert_eq!(first_from(0, rows.row(1), rows.row(0)), None);
        assert_eq!((rows.ones(0), rows.ones(1), rows.ones_beyond(0, rows.row(1))), (3, 1, 2));
    }
}
