//! One try: from the first moment to the last arrival.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tweed_rng::Rng;

use super::bits::{first_from, Rows};
use super::moves::{Move, Moves};
use super::network::{Channel, Network};

/// What a try may do differently from another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    pub(super) seed: u64,
    /// A slow link repeats what its far end could have from its neighbours if these have work for so many times its
    /// own.
    pub(super) patience: u32,
}

/// What happens at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A rank holds a chunk from now on.
    Arrives { rank: u32, chunk: u32 },
    /// A channel may take another chunk.
    Frees { channel: u32 },
}

/// So many chunks are drawn, and the one that the fewest ranks have is sent.
const DRAWN: usize = 16;

#[derive(Debug)]
pub(super) struct Run<'a> {
    pub(super) network: &'a Network,
    manner: Manner,
    chunks: usize,
    pub(super) rng: Rng,
    pub(super) now: u64,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    /// The chunks that each rank has.
    pub(super) held: Rows,
    /// The chunks that each rank has or that are on their way to it.
    pub(super) claimed: Rows,
    /// The chunks that one rank of a neighbourhood has claimed, by level and neighbourhood.
    known: Vec<Rows>,
    /// How many ranks have claimed each chunk.
    claims: Vec<u32>,
    /// When each lane of a channel is free.
    free: Vec<Vec<u64>>,
    /// Free channels into switches that led nowhere because it was busy, by the channel out of it.
    pub(super) waiting: Vec<Vec<u32>>,
    moves: Moves,
}

impl<'a> Run<'a> {
    pub(super) fn new(network: &'a Network, pieces: u32, manner: Manner) -> Run<'a> {
        let chunks = network.ranks * pieces as usize;
        let rows =
            |near: &Vec<u32>| Rows::new(near.iter().max().map_or(0, |&most| most as usize + 1), chunks);
        let mut run = Run {
            network,
            manner,
            chunks,
            rng: Rng::new(manner.seed),
            now: 0,
            events: BinaryHeap::new(),
            held: Rows::new(network.ranks, chunks),
            claimed: Rows::new(network.ranks, chunks),
            known: network.near.iter().map(rows).collect(),
            claims: vec![0; chunks],
            free: network.channels.iter().map(|channel| vec![0; channel.count as usize]).collect(),
            waiting: vec![Vec::new(); network.channels.len()],
            moves: Moves { pieces, list: Vec::with_capacity(chunks * network.ranks.saturating_sub(1)) },
        };
        for chunk in 0..chunks as u32 {
            run.claim(chunk / pieces, chunk);
            run.events.push(Reverse((0, Event::Arrives { rank: chunk / pieces, chunk })));
        }
        run
    }

    /// Runs to the end. None if some chunk cannot reach some rank.
    pub(super) fn finish(mut self) -> Option<Moves> {
        let mut idle = Vec::new();
        while let Some(&Reverse((now, _))) = self.events.peek() {
            self.now = now;
            while self.events.peek().is_some_and(|Reverse((at, _))| *at == now) {
                if let Some(Reverse((_, event))) = self.events.pop() {
                    self.handle(event, &mut idle);
                }
            }
            for index in self.in_order(&mut idle) {
                while self.lane(index, now).is_some() && self.send_over(index) {}
            }
        }
        let all = self.chunks * self.network.ranks.saturating_sub(1);
        (self.moves.list.len() == all).then_some(self.moves)
    }

    /// How many chunks a rank has claimed; 0 for a switch.
    pub(super) fn claims(&self, node: u32) -> u32 {
        if self.network.is_rank(node) {
            self.claimed.ones(node as usize)
        } else {
            0
        }
    }

    /// The lane of a channel that is free at `time`.
    pub(super) fn lane(&self, channel: u32, time: u64) -> Option<usize> {
        self.free[channel as usize].iter().position(|&free| free <= time)
    }

    fn handle(&mut self, event: Event, idle: &mut Vec<u32>) {
        match event {
            Event::Arrives { rank, chunk } => {
                self.held.set(rank as usize, chunk as usize);
                idle.extend(&self.network.out[rank as usize]);
            }
            Event::Frees { channel }
                if self.network.is_rank(self.network.channels[channel as usize].from) =>
            {
                idle.push(channel);
            }
            Event::Frees { channel } => idle.append(&mut self.waiting[channel as usize]),
        }
    }

    /// Empties `idle`: the fastest first, then those with the least choice (of chunks that the far end needs, or of
    /// all behind a switch), then by chance.
    fn in_order(&mut self, idle: &mut Vec<u32>) -> Vec<u32> {
        idle.sort_unstable();
        idle.dedup();
        let mut order: Vec<(u64, u32, u64, u32)> = Vec::with_capacity(idle.len());
        for index in idle.drain(..) {
            if self.lane(index, self.now).is_none() {
                continue;
            }
            let &Channel { from, to, busy, .. } = &self.network.channels[index as usize];
            let choice = match self.network.is_rank(to) {
                true => self.held.ones_beyond(from as usize, self.claimed.row(to as usize)),
                false => self.held.ones(from as usize),
            };
            order.push((busy, choice, self.rng.draw(), index));
        }
        order.sort_unstable();
        order.into_iter().map(|(.., index)| index).collect()
    }

    /// Sends something over a free channel that leaves a rank, if there is anything to send.
    fn send_over(&mut self, index: u32) -> bool {
        let &Channel { from, to, level, busy, latency, .. } = &self.network.channels[index as usize];
        let found = match self.network.is_rank(to) {
            true => {
                let new = self.choose_new(from, to, level);
                let chunk = new.or_else(|| self.choose_known(from, to, level, busy + latency));
                chunk.map(|chunk| Move { chunk, from, to, channels: [index].into_iter().collect() })
            }
            false => self.through_switches(index),
        };
        found.map(|found| self.start(found)).is_some()
    }

    /// A chunk that `from` has, and that none of the neighbours of `to` has over links below `level`.
    pub(super) fn choose_new(&mut self, from: u32, to: u32, level: usize) -> Option<u32> {
        let known = self.known[level].row(self.network.near[level][to as usize] as usize);
        rarest(&mut self.rng, &self.claims, self.held.row(from as usize), known)
    }

    /// A chunk that `from` has and `to` needs though a neighbour has it, if `to` would else wait for long; `cost` is
    /// how long it takes from here.
    ///
    /// Leaving it to the neighbours is safe: they have it or it is on its way to them, and nothing keeps a chunk from
    /// spreading over the fastest link between a rank that has it and one that has not.
    pub(super) fn choose_known(&mut self, from: u32, to: u32, level: usize, cost: u64) -> Option<u32> {
        let near = self.network.near[level][to as usize] as usize;
        let ahead = u64::from(self.known[level].ones(near) - self.claimed.ones(to as usize));
        let wait = ahead * self.network.pace[level][to as usize];
        if ahead == 0 || wait < cost * u64::from(self.manner.patience) {
            return None;
        }
        let (have, lacks) = (self.held.row(from as usize), self.claimed.row(to as usize));
        rarest(&mut self.rng, &self.claims, have, lacks)
    }

    /// Occupies the channels of a move as the simulator would: the first byte goes on at once, the last one leaves no
    /// channel before it has come, and others may use the gaps between.
    fn start(&mut self, found: Move) {
        let (mut head, mut behind) = (self.now, 0);
        for &index in &found.channels {
            let &Channel { busy, latency, .. } = &self.network.channels[index as usize];
            if let Some(lane) = self.lane(index, head) {
                self.free[index as usize][lane] = head + busy;
            }
            self.events.push(Reverse((head + busy, Event::Frees { channel: index })));
            behind = busy.max(behind);
            head += latency;
        }
        let arrives = Event::Arrives { rank: found.to, chunk: found.chunk };
        self.events.push(Reverse((head + behind, arrives)));
        self.claim(found.to, found.chunk);
        self.moves.list.push(found);
    }

    fn claim(&mut self, rank: u32, chunk: u32) {
        self.claims[chunk as usize] += 1;
        self.claimed.set(rank as usize, chunk as usize);
        for (known, near) in self.known.iter_mut().zip(&self.network.near) {
            known.set(near[rank as usize] as usize, chunk as usize);
        }
    }
}

/// The chunk with the fewest claims, of those that `have` has and `lack` lacks.
fn rarest(rng: &mut Rng, claims: &[u32], have: &[u64], lack: &[u64]) -> Option<u32> {
    let mut best = first_from(rng.index(claims.len()), have, lack)?;
    for _ in 1..DRAWN {
        match first_from(rng.index(claims.len()), have, lack) {
            Some(other) if claims[other] < claims[best] => best = other,
            _ => {}
        }
    }
    Some(best as u32)
}
