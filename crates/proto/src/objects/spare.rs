//! Memory that nobody uses, and which of it is used again.

/// Memory that is kept for use again, the oldest first, each with the bytes that it has.
#[derive(Debug)]
pub struct Spare<T> {
    kept: Vec<(u64, T)>,
}

impl<T> Default for Spare<T> {
    fn default() -> Self {
        Spare { kept: Vec::new() }
    }
}

impl<T> Spare<T> {
    /// How many bytes are kept.
    pub fn bytes(&self) -> u64 {
        self.kept.iter().map(|kept| kept.0).sum()
    }

    /// Keeps one that has so many bytes.
    pub fn keep(&mut self, bytes: u64, memory: T) {
        self.kept.push((bytes, memory));
    }

    /// Takes one that holds so many bytes and that may be used: the smallest, and of these the one that was used last, as
    /// most of it is still in caches. One of which more than a fifth would lie idle is left to larger objects.
    pub fn take(&mut self, bytes: u64, mut may_use: impl FnMut(&mut T) -> bool) -> Option<T> {
        let fits = |of: u64| bytes <= of && of - bytes <= of / 5;
        let mut fitting: Vec<usize> = (0..self.kept.len()).filter(|&at| fits(self.kept[at].0)).collect();
        fitting.sort_by_key(|&at| (self.kept[at].0, std::cmp::Reverse(at)));
        let at = fitting.into_iter().find(|&at| may_use(&mut self.kept[at].1))?;
        Some(self.kept.remove(at).1)
    }

    /// Gives up the oldest, until what is kept has at most so many bytes, in at most so many pieces.
    #[must_use = "it is freed when it is dropped, which takes long"]
    pub fn trim(&mut self, most_bytes: u64, most: usize) -> Vec<T> {
        let (mut bytes, mut count) = (self.bytes(), self.kept.len());
        let is_one_too_many = |kept: &&(u64, T)| {
            let is_so = bytes > most_bytes || count > most;
            (bytes, count) = (bytes - kept.0, count - 1);
            is_so
        };
        let given_up = self.kept.iter().take_while(is_one_too_many).count();
        self.kept.drain(..given_up).map(|kept| kept.1).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spare(sizes: &[u64]) -> Spare<usize> {
        let mut spare = Spare::default();
        sizes.iter().enumerate().for_each(|(at, &bytes)| spare.keep(bytes, at));
        spare
    }

    #[test]
    fn the_smallest_that_fits_is_taken_and_of_these_the_last() {
        let mut spare = spare(&[110, 100, 100, 99, 200]);
        let taken: Vec<_> = (0..4).map(|_| spare.take(100, |_| true)).collect();
        assert_eq!(taken, [Some(2), Some(1), Some(0), None]);
        assert_eq!(spare.bytes(), 299);
    }

    #[test]
    fn at_most_a_fifth_of_it_lies_idle() {
        let mut spare = spare(&[125]);
        assert_eq!(spare.take(99, |_| true), None);
        assert_eq!(spare.take(126, |_| true), None);
        assert_eq!(spare.take(100, |_| true), Some(0));
    }

    #[test]
    fn what_may_not_be_used_stays() {
        let mut spare = spare(&[100, 100, 100]);
        assert_eq!(spare.take(100, |&mut at| at == 1), Some(1));
        assert_eq!(spare.take(100, |&mut at| at == 1), None);
        assert_eq!(spare.bytes(), 200);
    }

    #[test]
    fn the_oldest_is_given_up_first() {
        let mut some = spare(&[10, 20, 30, 40]);
        assert!(some.trim(100, 4).is_empty());
        assert_eq!(some.trim(99, 4), [0]);
        assert_eq!(some.trim(90, 2), [1]);
        assert_eq!(some.trim(0, 2), [2, 3]);
        assert_eq!((some.bytes(), some.trim(0, 0)), (0, Vec::new()));
    }

    #[test]
    fn one_that_is_larger_than_all_may_be_is_given_up() {
        assert_eq!(spare(&[10, 200]).trim(100, 9), [0, 1]);
    }
}
