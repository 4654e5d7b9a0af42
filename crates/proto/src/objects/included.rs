//! Which ids a result sums, by range.

use super::{Included, ObjectId};

/// What one slot adds: each entry from its byte on, until the next one's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History(pub Vec<(u64, Option<ObjectId>)>);

impl History {
    /// From `at` on it adds this.
    pub(crate) fn set(&mut self, at: u64, object: Option<ObjectId>) {
        self.cut(at);
        self.0.push((at, object));
    }

    /// From `at` on it is not known what it adds.
    pub(crate) fn cut(&mut self, at: u64) {
        self.0.retain(|entry| entry.0 < at);
    }

    pub(crate) fn entries(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn has(&self, object: ObjectId) -> bool {
        self.0.iter().any(|entry| entry.1 == Some(object))
    }

    fn at(&self, byte: u64) -> Option<ObjectId> {
        self.0.iter().rev().find(|entry| entry.0 <= byte).and_then(|entry| entry.1)
    }
}

/// The ids of each range of `size` bytes, of what all slots add.
pub(crate) fn included<'a>(size: u64, slots: impl Iterator<Item = &'a History> + Clone) -> Included {
    let mut edges: Vec<u64> =
        slots.clone().flat_map(|history| history.0.iter().map(|entry| entry.0)).collect();
    edges.extend([0, size]);
    edges.sort_unstable();
    edges.dedup();
    let mut found = Included::new();
    for range in edges.windows(2).map(|pair| pair[0]..pair[1].min(size)).filter(|range| !range.is_empty()) {
        let mut ids: Vec<ObjectId> = slots.clone().filter_map(|history| history.at(range.start)).collect();
        ids.sort_unstable();
        match found.last_mut().filter(|last| last.1 == ids) {
            Some(last) => last.0.end = range.end,
            None => found.push((range, ids)),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: [ObjectId; 3] = [ObjectId(1), ObjectId(2), ObjectId(3)];

    #[test]
    fn a_slot_that_changes_hands_cuts_the_result() {
        let (mut one, mut other) = (History::default(), History::default());
        one.set(0, Some(IDS[2]));
        other.set(0, Some(IDS[0]));
        other.set(40, Some(IDS[1]));
        let parts = included(100, [&one, &other].into_iter());
        assert_eq!(parts, [(0..40, vec![IDS[0], IDS[2]]), (40..100, vec![IDS[1], IDS[2]])]);
        other.set(0, None);
        assert_eq!(included(100, [&one, &other].into_iter()), [(0..100, vec![IDS[2]])]);
    }
}
