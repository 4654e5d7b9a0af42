//! What arrives at a rank, in the order in which it is summed.
//!
//! Floating-point sums depend on their order, so it is part of the schedule: all that arrives for a chunk in one step is
//! summed together, by rank, this rank's own value taking its place among them. Who came first changes no bit.

use std::collections::BTreeMap;

use tweed_schedule::{Rank, Schedule};

use super::{Input, Part};

/// The arrivals at `rank`, grouped by chunk and step, with senders in rank order.
pub(super) fn collect_inputs(schedule: &Schedule, rank: Rank, part: &Part) -> Vec<Input> {
    let mut groups: BTreeMap<(u32, u32), Vec<(u32, Rank)>> = BTreeMap::new();
    for &index in &part.incoming {
        let send = &schedule.sends()[index as usize];
        let group = groups.entry((send.step, send.chunk)).or_default();
        group.push((index, send.src));
    }
    let mut versions: BTreeMap<u32, u32> = BTreeMap::new();
    let mut inputs = Vec::with_capacity(groups.len());
    for ((_, chunk), mut sends) in groups {
        sends.sort_unstable_by_key(|&(_, src)| src);
        let version = versions.entry(chunk).or_default();
        *version += 1;
        let held = *version > 1 || schedule.origin(chunk).contains(rank);
        let reduce = schedule.sends()[sends[0].0 as usize].reduce;
        inputs.push(Input {
            chunk,
            version: *version,
            reduce,
            own: reduce && held,
            complete: reduce && part.complete.contains(&(chunk, *version)),
            sends,
            ..Input::default()
        });
    }
    inputs
}
