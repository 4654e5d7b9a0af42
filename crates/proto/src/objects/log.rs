//! What a plan ordered, in the order in which it did; and the schedule that this amounts to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tweed_schedule::{Collective, Draft, Rank, Schedule, ScheduleError, Send};

use super::message::{Assign, Feed};
use super::{Buffer, Included, ObjectId, Process, Request, Slot, ROOT};

/// The orders of one reduce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The object that the reduce makes.
    pub target: ObjectId,
    /// What might be summed.
    pub ids: Arc<[ObjectId]>,
    /// Bytes of the result; 0 as long as nothing has appeared.
    pub size: u64,
    /// It has all of them: no other shard had begun.
    pub has_all: bool,
    /// The orders, and the processes that they went to.
    pub orders: Vec<(Process, Assign)>,
}

/// Why a log does not prove what it is said to sum.
// The texts name the fields.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// Another shard had begun, and its orders died with it.
    #[error("the log begins where another shard had died; what that one ordered is not in it")]
    Begun,
    /// A sum is used that nobody was ordered to make.
    #[error("slot {slot} is fed by a sum that no order made; this is a defect of tweed, please report it")]
    NoOrder { slot: Slot },
    /// The orders do something else.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
}

impl Log {
    pub(crate) fn new(request: &Request) -> Log {
        let (target, ids) = (request.target, request.ids.clone());
        Log { target, ids, size: 0, has_all: true, orders: Vec::new() }
    }

    pub(crate) fn begin(&mut self, size: u64) {
        self.size = size;
    }

    pub(crate) fn push(&mut self, process: Process, assign: &Assign) {
        self.orders.push((process, assign.clone()));
    }

    /// Whoever was given a slot.
    pub(crate) fn holders(&self) -> BTreeSet<Process> {
        self.orders.iter().map(|order| order.0).collect()
    }

    /// The orders that stood in the end, as a schedule that was proven to sum just what `included` names. Rank 0 is the
    /// destination and rank `1 + i` the source `ids[i]`; chunk `k` is the `k`-th of the returned ranges of bytes.
    ///
    /// # Errors
    /// See [`LogError`].
    pub fn schedule(&self, included: &Included) -> Result<(Schedule, Vec<u64>), LogError> {
        if !self.has_all {
            return Err(LogError::Begun);
        }
        let ranges = self.ranges(included);
        let rank_of: BTreeMap<ObjectId, Rank> = self.ids.iter().copied().zip(1..).collect();
        let mut walk = Walk { last: self.last(), rank_of: &rank_of, sends: Vec::new() };
        let mut contributors = Vec::new();
        for (chunk, range) in (0..).zip(ranges.windows(2)) {
            walk.root(chunk, range[0])?;
            let part = included.iter().find(|part| part.0.contains(&range[0]));
            let ids = part.into_iter().flat_map(|part| &part.1).filter_map(|id| rank_of.get(id).copied());
            let mut ranks: Vec<Rank> = ids.collect();
            ranks.sort_unstable();
            contributors.push(ranks);
        }
        let draft = Draft {
            name: "objects".into(),
            collective: Collective::Reduce,
            root: 0,
            ranks: self.ids.len() as u32 + 1,
            chunks: contributors.len() as u32,
            sends: walk.sends,
            topology: None,
        };
        Ok((Schedule::of_contributors(draft, contributors)?, ranges))
    }

    /// Where what is summed may change.
    fn ranges(&self, included: &Included) -> Vec<u64> {
        let feeds = self
            .orders
            .iter()
            .flat_map(|order| &order.1.feeds)
            .flat_map(|feed| [feed.range.start, feed.range.end]);
        let edges: BTreeSet<u64> =
            feeds.chain(included.iter().map(|part| part.0.start)).chain([0, self.size]).collect();
        edges.into_iter().collect()
    }

    /// The last order about each sum. The destination's sum is one, however often it began.
    fn last(&self) -> BTreeMap<(Slot, Option<ObjectId>, u32), &Assign> {
        let key = |assign: &Assign| match assign.slot {
            ROOT => (ROOT, None, 0),
            slot => (slot, assign.own, assign.generation),
        };
        self.orders.iter().map(|(_, assign)| (key(assign), assign)).collect()
    }
}

/// Follows one byte from the destination down to the sources.
struct Walk<'a> {
    last: BTreeMap<(Slot, Option<ObjectId>, u32), &'a Assign>,
    rank_of: &'a BTreeMap<ObjectId, Rank>,
    sends: Vec<Send>,
}

impl Walk<'_> {
    /// The destination holds nothing of its own: what comes first is put there, the rest added.
    fn root(&mut self, chunk: u32, byte: u64) -> Result<(), LogError> {
        let from = self.sends.len();
        self.below((ROOT, None, 0), 0, chunk, byte)?;
        let mut arriving: Vec<&mut Send> =
            self.sends[from..].iter_mut().filter(|send| send.dst == 0).collect();
        arriving.sort_by_key(|send| send.step);
        let mut after = 0;
        for (place, send) in arriving.into_iter().enumerate() {
            send.reduce = place > 0;
            send.step = send.step.max(after);
            after = send.step + 1;
        }
        Ok(())
    }

    /// All that goes into one sum; returns the step after the last of it.
    fn below(
        &mut self,
        key: (Slot, Option<ObjectId>, u32),
        dst: Rank,
        chunk: u32,
        byte: u64,
    ) -> Result<u32, LogError> {
        let assign = *self.last.get(&key).ok_or(LogError::NoOrder { slot: key.0 })?;
        let mut after = 0;
        for Feed { slot, generation, source, .. } in
            assign.feeds.iter().filter(|feed| feed.range.contains(&byte))
        {
            let source = source.ok_or(LogError::NoOrder { slot: *slot })?;
            let src = *self.rank_of.get(&source.object).ok_or(LogError::NoOrder { slot: *slot })?;
            let step = match source.buffer {
                Buffer::Object(_) => 0,
                Buffer::Partial { .. } => {
                    self.below((*slot, Some(source.object), *generation), src, chunk, byte)?
                }
            };
            self.sends.push(Send::new(step, src, dst, chunk, true));
            after = after.max(step + 1);
        }
        Ok(after)
    }
}
