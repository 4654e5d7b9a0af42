//! The ids of objects that were deleted, as far back as they are kept.

use std::collections::{BTreeSet, VecDeque};

use super::ObjectId;

/// So many a shard keeps, the last ones: some 4 MB.
const MOST: usize = 1 << 16;

/// The last ids that were deleted. They are kept for messages that cross the deletion on their way: links keep the order, so
/// such a one comes within a round trip. One about an id that is forgotten is taken as about one that nobody has made: who asks
/// for it waits, and a copy that somebody still had is there again until it is deleted once more.
#[derive(Debug)]
pub(crate) struct Deleted {
    ids: BTreeSet<ObjectId>,
    /// The objects in order, the oldest first.
    order: VecDeque<ObjectId>,
}

impl Deleted {
    pub(crate) fn new() -> Deleted {
        Deleted { ids: BTreeSet::new(), order: VecDeque::new() }
    }

    pub(crate) fn insert(&mut self, object: ObjectId) {
        if !self.ids.insert(object) {
            return;
        }
        self.order.push_back(object);
        if let Some(oldest) = (self.order.len() > MOST).then(|| self.order.pop_front()).flatten() {
            self.ids.remove(&oldest);
        }
    }

    pub(crate) fn has(&self, object: ObjectId) -> bool {
        self.ids.contains(&object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_first() {
        let mut deleted = Deleted::new();
        let last = MOST as u128 + 9;
        (0..=last).for_each(|id| deleted.insert(ObjectId(id)));
        (0..=last).for_each(|id| deleted.insert(ObjectId(id.max(last - 3))));
        assert!(!deleted.has(ObjectId(9)) && deleted.has(ObjectId(10)) && deleted.has(ObjectId(last)));
        assert_eq!((deleted.ids.len(), deleted.order.len()), (MOST, MOST));
    }
}
