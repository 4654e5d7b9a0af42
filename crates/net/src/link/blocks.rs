//! Which parts of an arena are free and which are taken.

use std::collections::BTreeMap;

/// All blocks begin and end on pages.
pub(super) const PAGE: u64 = 4096;

/// Which parts are free and which are taken: offset to length. First fit keeps the low pages warm.
pub(super) struct Blocks {
    /// How long the file is.
    pub(super) present: u64,
    free: BTreeMap<u64, u64>,
    pub(super) taken: BTreeMap<u64, u64>,
}

impl Blocks {
    pub(super) fn new(bytes: u64, present: u64) -> Blocks {
        Blocks { present, free: BTreeMap::from([(0, bytes)]), taken: BTreeMap::new() }
    }

    pub(super) fn take(&mut self, bytes: u64) -> Option<u64> {
        let bytes = bytes.max(1).checked_next_multiple_of(PAGE)?;
        let (&offset, &room) = self.free.iter().find(|(_, &room)| room >= bytes)?;
        self.free.remove(&offset);
        if room > bytes {
            self.free.insert(offset + bytes, room - bytes);
        }
        self.taken.insert(offset, bytes);
        Some(offset)
    }

    pub(super) fn give(&mut self, offset: u64) {
        let Some(mut bytes) = self.taken.remove(&offset) else { return };
        let mut start = offset;
        if let Some(next) = self.free.remove(&(offset + bytes)) {
            bytes += next;
        }
        if let Some((&before, &room)) = self.free.range(..offset).next_back() {
            if before + room == offset {
                (start, bytes) = (before, room + bytes);
            }
        }
        self.free.insert(start, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_are_given_back_join_their_neighbours() {
        let mut blocks = Blocks::new(16 * PAGE, 0);
        let taken: Vec<u64> = (0..4).filter_map(|_| blocks.take(PAGE + 1)).collect();
        assert_eq!(taken, [0, 2 * PAGE, 4 * PAGE, 6 * PAGE]);
        for offset in [taken[1], taken[3], taken[0], taken[2]] {
            blocks.give(offset);
        }
        assert_eq!(blocks.free, BTreeMap::from([(0, 16 * PAGE)]));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut blocks = Blocks::new(2 * PAGE, 0);
        assert_eq!(blocks.take(3 * PAGE), None);
        assert_eq!(blocks.take(u64::MAX), None);
    }
}
