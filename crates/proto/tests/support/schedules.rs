//! Schedules to run: the usual builders in their plainest form, and random ones that no builder would make.

use tweed_schedule::{Collective, Draft, Rank, Schedule, Send};

use tweed_rng::Rng;

pub fn schedule(name: &str, collective: Collective, ranks: u32, chunks: u32, sends: Vec<Send>) -> Schedule {
    let draft = Draft { name: name.into(), collective, root: 0, ranks, chunks, sends, topology: None };
    Schedule::new(draft).unwrap_or_else(|error| panic!("{name} over {ranks}: {error}"))
}

/// Every ordinary schedule over `n` ranks.
pub fn all(n: u32) -> Vec<Schedule> {
    use Collective::{AllGather, AllReduce, AllToAll, Broadcast, Gather, Reduce, ReduceScatter, Scatter};
    let gather = (1..n).map(|r| Send::new(0, r, 0, r, false));
    let scatter = (1..n).map(|r| Send::new(0, 0, r, r, false));
    let there_and_back = [binomial_up(n, 3), binomial_down(n, 3)];
    let mut table = vec![
        ("ring", AllReduce, n, [ring(n, 0, true), ring(n, n, false)].concat()),
        ("ring", ReduceScatter, n, shift(ring(n, 0, true), n)),
        ("ring", AllGather, n, shift(ring(n, n, false), n)),
        ("direct", AllReduce, n, [direct(n, true), direct(n, false)].concat()),
        ("direct", ReduceScatter, n, direct(n, true)),
        ("direct", AllGather, n, direct(n, false)),
        ("exchange", AllReduce, 2, exchange(n, 2)),
        ("binomial", AllReduce, 3, there_and_back.concat()),
        ("binomial", Reduce, 3, binomial_up(n, 3)),
        ("binomial", Broadcast, 3, binomial_down(n, 3)),
        ("star", AllReduce, 1, star(n)),
        ("star, sent twice", AllReduce, 1, [star(n), sent_again(n)].concat()),
        ("two stars", AllReduce, 1, two_stars(n)),
        ("star", Gather, n, gather.collect()),
        ("star", Scatter, n, scatter.collect()),
        ("direct", AllToAll, n * n, all_to_all(n)),
        ("relay", AllToAll, n * n, all_to_all_by_relay(n)),
    ];
    if n.is_power_of_two() {
        table.push(("halving-doubling", AllReduce, n, halving_doubling(n)));
        table.push(("doubling", AllReduce, 1, doubling(n)));
    }
    let make = |(name, collective, chunks, sends)| schedule(name, collective, n, chunks, sends);
    table.into_iter().map(make).collect()
}

/// One turn of the ring: chunk `c` starts at rank `c` and visits all others.
fn ring(n: u32, from: u32, reduce: bool) -> Vec<Send> {
    let turn = |t| (0..n).map(move |r| (t, r));
    (0..n - 1)
        .flat_map(turn)
        .map(|(t, r)| {
            let chunk = (r + n - t + u32::from(!reduce)) % n;
            Send::new(from + t, r, (r + 1) % n, chunk, reduce)
        })
        .collect()
}

/// The ring of an all-reduce ends one rank away from the chunk's owner: renames chunks so that owner and rank agree.
fn shift(sends: Vec<Send>, n: u32) -> Vec<Send> {
    let rename = |mut s: Send| {
        s.chunk = (s.chunk + n - 1) % n;
        s
    };
    sends.into_iter().map(rename).collect()
}

/// Every rank sends to every other at once: chunk `c` goes to, or comes from, rank `c`.
fn direct(n: u32, reduce: bool) -> Vec<Send> {
    pairs(n)
        .map(|(a, b)| match reduce {
            true => Send::new(0, a, b, b, true),
            false => Send::new(1, a, b, a, false),
        })
        .collect()
}

/// Every rank sends its whole buffer to all others, who reduce.
fn exchange(n: u32, chunks: u32) -> Vec<Send> {
    let chunks = 0..chunks;
    chunks.flat_map(|c| pairs(n).map(move |(a, b)| Send::new(0, a, b, c, true))).collect()
}

fn star(n: u32) -> Vec<Send> {
    let up = (1..n).map(|r| Send::new(0, r, 0, 0, true));
    up.chain((1..n).map(|r| Send::new(1, 0, r, 0, false))).collect()
}

/// Ranks 0 and 1 both hear everybody, and rank 0 answers: nobody may answer over a value that another reads.
fn two_stars(n: u32) -> Vec<Send> {
    let to = |hub| (0..n).filter(move |&r| r != hub).map(move |r| Send::new(0, r, hub, 0, true));
    let answers = (2..n).map(|r| Send::new(1, 0, r, 0, false));
    to(0).chain(to(1)).chain(answers).collect()
}

/// The result once more: one value with two sends to the same rank.
fn sent_again(n: u32) -> Vec<Send> {
    (1..n).map(|r| Send::new(2, 0, r, 0, false)).collect()
}

fn rounds(n: u32) -> u32 {
    n.next_power_of_two().trailing_zeros()
}

fn binomial_up(n: u32, chunks: u32) -> Vec<Send> {
    let mut sends = Vec::new();
    for round in 0..rounds(n) {
        for r in (0..n).filter(|r| r % (2 << round) == 1 << round) {
            sends.extend((0..chunks).map(|c| Send::new(round, r, r - (1 << round), c, true)));
        }
    }
    sends
}

fn binomial_down(n: u32, chunks: u32) -> Vec<Send> {
    let last = 2 * rounds(n);
    let flip = |mut s: Send| {
        (s.src, s.dst) = (s.dst, s.src);
        (s.step, s.reduce) = (last - s.step, false);
        s
    };
    binomial_up(n, chunks).into_iter().map(flip).collect()
}

fn halving_doubling(n: u32) -> Vec<Send> {
    let mut sends = Vec::new();
    for round in 0..rounds(n) {
        let bit = n >> (round + 1);
        for r in 0..n {
            // Chunks that agree with the peer in this bit, and with this rank in all bits already settled.
            let settled = !(2 * bit - 1) & (n - 1);
            for c in (0..n).filter(|c| (c ^ r) & settled == 0 && (c ^ r) & bit != 0) {
                sends.push(Send::new(round, r, r ^ bit, c, true));
                sends.push(Send::new(2 * rounds(n) - round, r ^ bit, r, c, false));
            }
        }
    }
    sends
}

/// Both partners of a pair send each other the same chunk in the same step.
fn doubling(n: u32) -> Vec<Send> {
    let round = |round| (0..n).map(move |r| Send::new(round, r, r ^ (1 << round), 0, true));
    (0..rounds(n)).flat_map(round).collect()
}

fn all_to_all(n: u32) -> Vec<Send> {
    pairs(n).map(|(a, b)| Send::new(0, a, b, a * n + b, false)).collect()
}

/// Chunks for a rank that is not the next one go round by the next one.
fn all_to_all_by_relay(n: u32) -> Vec<Send> {
    let send = |(a, b): (u32, u32)| {
        let chunk = a * n + b;
        let next = (a + 1) % n;
        match b == next {
            true => vec![Send::new(0, a, b, chunk, false)],
            false => vec![Send::new(0, a, next, chunk, false), Send::new(1, next, b, chunk, false)],
        }
    };
    pairs(n).flat_map(send).collect()
}

fn pairs(n: u32) -> impl Iterator<Item = (Rank, Rank)> {
    (0..n).flat_map(move |a| (0..n).filter(move |&b| b != a).map(move |b| (a, b)))
}

/// An all-reduce in which every chunk has its own random tree up and down, full values are copied about once
/// more, ranks swap values in one step, and sends wait for others at random.
pub fn random(n: u32, chunks: u32, rng: &mut Rng) -> Schedule {
    let mut sends = Vec::new();
    for chunk in 0..chunks {
        let mut order: Vec<Rank> = (0..n).collect();
        rng.shuffle(&mut order);
        let step = random_up(&order, chunk, rng, &mut sends);
        let step = random_down(&order, (chunk, step), rng, &mut sends);
        random_copies(n, (chunk, step), rng, &mut sends);
    }
    sends.sort_by_key(|s| s.step);
    random_waits(&mut sends, rng);
    schedule("random", Collective::AllReduce, n, chunks, sends)
}

/// Everybody's value climbs to the last rank of `order`; returns the first free step.
fn random_up(order: &[Rank], chunk: u32, rng: &mut Rng, sends: &mut Vec<Send>) -> u32 {
    let mut free = vec![0; order.len()];
    for (i, &src) in order.iter().enumerate().take(order.len() - 1) {
        let parent = i + 1 + rng.index(order.len() - i - 1);
        let step = free[i] + rng.below(2) as u32;
        sends.push(Send::new(step, src, order[parent], chunk, true));
        free[parent] = free[parent].max(step + 1);
    }
    free[order.len() - 1]
}

fn random_down(order: &[Rank], (chunk, first): (u32, u32), rng: &mut Rng, sends: &mut Vec<Send>) -> u32 {
    let mut free = vec![first; order.len()];
    for i in (0..order.len() - 1).rev() {
        let parent = i + 1 + rng.index(order.len() - i - 1);
        let step = free[parent] + rng.below(2) as u32;
        sends.push(Send::new(step, order[parent], order[i], chunk, false));
        free[i] = step + 1;
    }
    *free.iter().max().expect("there is a rank")
}

/// Rounds in which ranks that hold the result copy it over each other's, at once.
fn random_copies(n: u32, (chunk, first): (u32, u32), rng: &mut Rng, sends: &mut Vec<Send>) {
    for step in first..first + rng.below(3) as u32 {
        for dst in (0..n).filter(|_| n > 1) {
            let src = rng.index(n as usize) as u32;
            if src != dst && rng.bernoulli(0.5) {
                sends.push(Send::new(step, src, dst, chunk, false));
            }
        }
    }
}

/// Lets some sends wait for an earlier one that starts or ends at their source.
fn random_waits(sends: &mut [Send], rng: &mut Rng) {
    for i in 0..sends.len() {
        if rng.index(4) > 0 {
            continue;
        }
        let (src, step) = (sends[i].src, sends[i].step);
        let seen = |s: &Send| (s.src == src || s.dst == src) && s.step < step;
        let candidates: Vec<usize> = (0..i).filter(|&j| seen(&sends[j])).collect();
        if !candidates.is_empty() {
            let pick = candidates[rng.index(candidates.len())] as u32;
            sends[i].after.push(pick);
        }
    }
}
