//! The order in which a link sends, pinned.

use std::collections::{BTreeMap, VecDeque};

use crate::Draft;

impl Draft {
    /// Every send waits until the one before it, by step, has gone onto the first link of its way. So a rank sends
    /// in the order of the steps over each link, where it would else send what is ready first. Of `n` links side by
    /// side it waits for the `n`-th before it.
    ///
    /// The sends must be in the order of their steps, or in any order as long as no two of one link share a step.
    pub fn pinned(mut self) -> Draft {
        self.sends.sort_by_key(|send| send.step);
        let topology = self.topology.clone();
        let count =
            |(from, to)| topology.as_ref().and_then(|t| t.link(from, to)).map_or(1, |link| link.count);
        let mut last: BTreeMap<(u32, u32), VecDeque<u32>> = BTreeMap::new();
        for (index, send) in (0..).zip(&mut self.sends) {
            let link = (send.src, send.route.first().copied().unwrap_or(send.dst));
            let before = last.entry(link).or_default();
            if before.len() >= count(link) as usize {
                send.after.reserve_exact(1);
                send.after.extend(before.pop_front());
            }
            before.push_back(index);
        }
        self
    }
}
