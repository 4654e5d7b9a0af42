//! Small builders for the tests.
#![allow(dead_code, unreachable_pub)]

use tweed_schedule::{Collective, Draft, Schedule, ScheduleError, Send};

pub fn draft(collective: Collective, ranks: u32, chunks: u32, sends: Vec<Send>) -> Draft {
    Draft { name: "test".into(), collective, root: 0, ranks, chunks, sends, topology: None }
}

pub fn build(
    collective: Collective,
    ranks: u32,
    chunks: u32,
    sends: Vec<Send>,
) -> Result<Schedule, ScheduleError> {
    Schedule::new(draft(collective, ranks, chunks, sends))
}

pub fn reduce(step: u32, src: u32, dst: u32, chunk: u32) -> Send {
    Send::new(step, src, dst, chunk, true)
}

pub fn copy(step: u32, src: u32, dst: u32, chunk: u32) -> Send {
    Send::new(step, src, dst, chunk, false)
}

/// Each chunk goes round once to be summed and once to be spread.
pub fn ring(ranks: u32) -> Vec<Send> {
    let hop = |step: u32, reduce: bool| {
        let chunk = move |src: u32| (src + 2 * ranks - 1 - step) % ranks;
        (0..ranks).map(move |src| Send::new(step, src, (src + 1) % ranks, chunk(src), reduce))
    };
    let sums = (0..ranks - 1).flat_map(move |step| hop(step, true));
    sums.chain((ranks - 1..2 * ranks - 2).flat_map(move |step| hop(step, false))).collect()
}

/// Everybody sends chunk `d` to `d`, which sends the sum to everybody.
pub fn pairwise(ranks: u32) -> Vec<Send> {
    let pairs = move || (0..ranks).flat_map(move |a| (0..ranks).map(move |b| (a, b))).filter(|(a, b)| a != b);
    let sums = pairs().map(|(src, dst)| reduce(0, src, dst, dst));
    sums.chain(pairs().map(|(src, dst)| copy(1, src, dst, src))).collect()
}
