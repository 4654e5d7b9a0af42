//! The order in which a link sends, pinned.

use std::collections::BTreeMap;

use crate::Draft;

impl Draft {
    /// Every send waits until the one before it, by step, has gone onto the first link of its way. So a rank sends
    /// in the order of the steps over each link, where it would else send what is ready first. That goes for links
    /// side by side as well: the one before must have begun, and need not have ended.
    ///
    /// The sends must be in the order of their steps, or in any order as long as no two of one link share a step.
    pub fn pinned(mut self) -> Draft {
        self.sends.sort_by_key(|send| send.step);
        let mut last: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        for (index, send) in (0..).zip(&mut self.sends) {
            let link = (send.src, send.route.first().copied().unwrap_or(send.dst));
            if let Some(before) = last.insert(link, index) {
                send.after.reserve_exact(1);
                send.after.push(before);
            }
        }
        self
    }
}
