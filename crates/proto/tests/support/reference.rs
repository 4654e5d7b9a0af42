//! What a schedule means, read as the crate's documentation says: in lockstep.

use tweed_schedule::{Rank, Schedule};

/// `values[rank][chunk]`: the elements of a chunk, or nothing where the rank holds none.
pub type Values = Vec<Vec<Option<Vec<f32>>>>;

/// What every rank holds at the start: numbers whose sum depends on the order of summation.
pub fn start(schedule: &Schedule, lengths: &[usize]) -> Values {
    let rank = |rank: Rank| {
        let chunk = |(chunk, &length): (usize, &usize)| {
            let held = schedule.origin(chunk as u32).contains(rank);
            held.then(|| (0..length).map(|i| element(rank, chunk, i)).collect())
        };
        lengths.iter().enumerate().map(chunk).collect()
    };
    (0..schedule.ranks()).map(rank).collect()
}

fn element(rank: Rank, chunk: usize, index: usize) -> f32 {
    let place = rank as usize * 7919 + chunk * 104_729 + index * 31;
    let size = 10f32.powi((place % 7) as i32);
    ((place % 1009) as f32 - 500.5) * size + 0.1
}

/// What every rank holds at the end.
pub fn run(schedule: &Schedule, lengths: &[usize]) -> Values {
    let mut values = start(schedule, lengths);
    for step in schedule.sends().chunk_by(|a, b| a.step == b.step) {
        let before = values.clone();
        let mut sends: Vec<_> = step.iter().collect();
        sends.sort_by_key(|s| (s.dst, s.chunk, s.src));
        for group in sends.chunk_by(|a, b| (a.dst, a.chunk) == (b.dst, b.chunk)) {
            let (dst, chunk) = (group[0].dst, group[0].chunk as usize);
            let arrived = group.iter().map(|s| (s.src, value(&before, s.src, chunk)));
            let own = group[0].reduce.then(|| (dst, value(&before, dst, chunk)));
            values[dst as usize][chunk] = Some(sum(arrived.chain(own).collect()));
        }
    }
    values
}

fn value(values: &Values, rank: Rank, chunk: usize) -> Vec<f32> {
    let held = &values[rank as usize][chunk];
    held.clone().expect("the checker proved that a sender holds what it sends")
}

/// The sum in rank order.
pub fn sum(mut parts: Vec<(Rank, Vec<f32>)>) -> Vec<f32> {
    parts.sort_by_key(|p| p.0);
    let parts = parts.into_iter().map(|p| p.1);
    let add = |a: Vec<f32>, b: Vec<f32>| a.iter().zip(&b).map(|(x, y)| x + y).collect();
    parts.reduce(add).expect("an input has at least one arrival")
}
