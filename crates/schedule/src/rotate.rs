//! The same schedule for another root.

use crate::record::{Draft, Rank, Schedule, Send};
use crate::ScheduleError;

impl Schedule {
    /// This collective for another root: every rank takes the place of the one `root` ranks before it.
    ///
    /// Chunks that belong to a rank move with it. A collective without a root comes back as it is. The
    /// result is checked like any other, so keep it rather than asking again.
    ///
    /// # Errors
    /// `root` is not a rank, or the rotated schedule needs a link that the topology lacks.
    pub fn rotated(&self, root: Rank) -> Result<Schedule, ScheduleError> {
        let (collective, ranks) = (self.collective, self.ranks);
        if root >= ranks {
            return Err(ScheduleError::Root { collective: collective.name(), root, ranks });
        }
        if root == self.root || !collective.is_rooted() {
            return Ok(self.clone());
        }
        self.turned((root + ranks - self.root) % ranks)
    }

    /// Every rank takes the place of the one `by` ranks before it; the root moves with them.
    ///
    /// The result is checked like any other, so keep it rather than asking again. Chunks of an all_to_all would
    /// have to move with two ranks; it is refused where that matters.
    ///
    /// # Errors
    /// The turned schedule needs a link that the topology lacks, or moves an all_to_all's chunks to other ranks.
    pub fn turned(&self, by: Rank) -> Result<Schedule, ScheduleError> {
        let root = if self.collective.is_rooted() { (self.root + by) % self.ranks } else { self.root };
        Schedule::new(Draft {
            name: self.name.clone(),
            collective: self.collective,
            root,
            ranks: self.ranks,
            chunks: self.chunks,
            sends: self.sends.iter().map(|send| self.moved(send, by)).collect(),
            topology: self.topology.clone(),
        })
    }

    fn moved(&self, send: &Send, shift: u32) -> Send {
        let rank = |rank: Rank| (rank + shift) % self.ranks;
        // Nodes above the ranks are switches; they stay where they are.
        let node = |&node: &u32| if node < self.ranks { rank(node) } else { node };
        Send {
            src: rank(send.src),
            dst: rank(send.dst),
            chunk: self.moved_chunk(send.chunk, shift),
            route: send.route.iter().map(node).collect(),
            ..send.clone()
        }
    }

    fn moved_chunk(&self, chunk: u32, shift: u32) -> u32 {
        match self.owner(chunk) {
            Some(owner) => {
                let per_rank = self.chunks / self.ranks;
                (owner + shift) % self.ranks * per_rank + chunk % per_rank
            }
            None => chunk,
        }
    }
}
