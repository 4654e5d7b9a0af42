//! One try: from the first moment to the last arrival.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use thin_vec::ThinVec;

use super::bits::{first_from, Rows};
use super::network::{Channel, Network};
use super::random::Random;
use crate::trees::{Edge, Tree};

/// What happens at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A rank holds a chunk from now on.
    Arrives { rank: u32, chunk: u32 },
    /// A channel may take another chunk.
    Frees { channel: u32 },
}

/// A chunk on its way from a rank to a rank.
#[derive(Clone, Debug)]
struct Move {
    chunk: u32,
    from: u32,
    to: u32,
    /// The channels it takes, in order.
    channels: ThinVec<u32>,
}

#[derive(Debug)]
pub(super) struct Run<'a> {
    network: &'a Network,
    pieces: u32,
    chunks: usize,
    random: Random,
    now: u64,
    end: u64,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    /// By rank: the chunks that it has.
    held: Rows,
    /// By rank: the chunks that it has or that are on their way to it.
    claimed: Rows,
    /// By level and neighbourhood: the chunks that one of its ranks has claimed.
    known: Vec<Rows>,
    /// By channel: when each of its places is free.
    free: Vec<Vec<u64>>,
    /// Channels into switches that were free and led nowhere, until a channel out of a switch is free again.
    blocked: Vec<u32>,
    moves: Vec<Move>,
}

impl<'a> Run<'a> {
    pub(super) fn new(network: &'a Network, pieces: u32, seed: u64) -> Run<'a> {
        let chunks = network.ranks * pieces as usize;
        let rows =
            |near: &Vec<u32>| Rows::new(near.iter().max().map_or(0, |&most| most as usize + 1), chunks);
        let mut run = Run {
            network,
            pieces,
            chunks,
            random: Random::new(seed),
            now: 0,
            end: 0,
            events: BinaryHeap::new(),
            held: Rows::new(network.ranks, chunks),
            claimed: Rows::new(network.ranks, chunks),
            known: network.near.iter().map(rows).collect(),
            free: network.channels.iter().map(|channel| vec![0; channel.count as usize]).collect(),
            blocked: Vec::new(),
            moves: Vec::with_capacity(chunks * network.ranks.saturating_sub(1)),
        };
        for chunk in 0..chunks as u32 {
            run.claim(chunk / pieces, chunk);
            run.events.push(Reverse((0, Event::Arrives { rank: chunk / pieces, chunk })));
        }
        run
    }

    /// Runs to the end. None if some chunk cannot reach some rank.
    pub(super) fn finish(mut self) -> Option<Run<'a>> {
        let mut idle = Vec::new();
        while let Some(&Reverse((now, _))) = self.events.peek() {
            self.now = now;
            while self.events.peek().is_some_and(|Reverse((at, _))| *at == now) {
                if let Some(Reverse((_, event))) = self.events.pop() {
                    self.handle(event, &mut idle);
                }
            }
            self.give_work(&mut idle);
        }
        let all = self.chunks * self.network.ranks.saturating_sub(1);
        (self.moves.len() == all).then_some(self)
    }

    /// When the last chunk arrived.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    fn channel(&self, index: u32) -> &'a Channel {
        &self.network.channels[index as usize]
    }

    fn handle(&mut self, event: Event, idle: &mut Vec<u32>) {
        match event {
            Event::Arrives { rank, chunk } => {
                self.held.set(rank as usize, chunk as usize);
                self.end = self.now;
                idle.extend(&self.network.out[rank as usize]);
            }
            Event::Frees { channel } if (self.channel(channel).from as usize) < self.network.ranks => {
                idle.push(channel);
            }
            Event::Frees { .. } => idle.append(&mut self.blocked),
        }
    }

    /// The fastest first, those of equal speed in random order.
    fn give_work(&mut self, idle: &mut Vec<u32>) {
        let now = self.now;
        idle.retain(|&index| self.free[index as usize].iter().any(|&at| at <= now));
        idle.sort_unstable();
        idle.dedup();
        let mut order: Vec<(u64, u64, u32)> = Vec::with_capacity(idle.len());
        for index in idle.drain(..) {
            order.push((self.channel(index).busy, self.random.next(), index));
        }
        order.sort_unstable();
        for (_, _, index) in order {
            while self.place(index, self.now).is_some() && self.send_over(index) {}
        }
    }

    /// The place of a channel that is free by then.
    fn place(&self, channel: u32, by: u64) -> Option<usize> {
        self.free[channel as usize].iter().position(|&at| at <= by)
    }

    /// Sends something over a free channel that leaves a rank, if there is anything to send.
    fn send_over(&mut self, index: u32) -> bool {
        let &Channel { from, to, level, .. } = self.channel(index);
        let found = if (to as usize) < self.network.ranks {
            let chunk = self.choose(from, to, level, self.channel(index).cost());
            chunk.map(|chunk| Move { chunk, from, to, channels: [index].into_iter().collect() })
        } else {
            self.through_switches(index)
        };
        let sends = found.is_some();
        match found {
            Some(found) => self.start(found),
            None if to as usize >= self.network.ranks => self.blocked.push(index),
            None => {}
        }
        sends
    }

    /// A chunk that `from` has and `to` needs, over links up to `level` that take `cost`.
    fn choose(&mut self, from: u32, to: u32, level: usize, cost: u64) -> Option<u32> {
        let start = self.random.below(self.chunks);
        let (have, near) = (self.held.row(from as usize), self.network.near[level][to as usize] as usize);
        let known = &self.known[level];
        let new = first_from(start, have, known.row(near));
        if new.is_some() || level == 0 {
            return new.map(|chunk| chunk as u32);
        }
        let behind = u64::from(known.ones(near) - self.claimed.ones(to as usize));
        if behind.saturating_mul(self.network.pace[level][to as usize]) < cost {
            return None;
        }
        first_from(start, have, self.claimed.row(to as usize)).map(|chunk| chunk as u32)
    }

    /// The way with the lowest level, then the fewest links, that crosses free switches without a stop to a rank that
    /// needs something.
    fn through_switches(&mut self, first: u32) -> Option<Move> {
        let network = self.network;
        let from = self.channel(first).from;
        let mut done = vec![false; network.out.len()];
        let mut visits: Vec<(u32, Option<usize>, u64)> = Vec::new();
        let mut ahead = BinaryHeap::new();
        ahead.push(Reverse((self.channel(first).level, 1usize, 0u64, first, None, self.now)));
        while let Some(Reverse((level, hops, _, index, previous, head))) = ahead.pop() {
            let &Channel { to, latency, .. } = self.channel(index);
            if std::mem::replace(&mut done[to as usize], true) {
                continue;
            }
            visits.push((index, previous, head + latency));
            if (to as usize) < network.ranks {
                let cost = network.channels[index as usize].cost();
                match self.choose(from, to, level, cost) {
                    Some(chunk) => {
                        let channels = way(&visits);
                        return Some(Move { chunk, from, to, channels });
                    }
                    None => continue,
                }
            }
            let last = visits.len() - 1;
            for &next in &network.out[to as usize] {
                let end = self.channel(next).to;
                if !done[end as usize] && end != from && self.place(next, head + latency).is_some() {
                    let level = level.max(self.channel(next).level);
                    let random = self.random.next();
                    ahead.push(Reverse((level, hops + 1, random, next, Some(last), head + latency)));
                }
            }
        }
        None
    }

    /// Occupies the channels of a move as the simulator would: the first byte goes on at once, the last one leaves no
    /// channel before it has come, and others may use the gaps between.
    fn start(&mut self, found: Move) {
        let (mut head, mut behind) = (self.now, 0);
        for &index in &found.channels {
            let &Channel { busy, latency, .. } = self.channel(index);
            behind = busy.max(behind);
            if let Some(place) = self.place(index, head) {
                self.free[index as usize][place] = head + busy;
            }
            self.events.push(Reverse((head + busy, Event::Frees { channel: index })));
            head += latency;
        }
        let arrives = Event::Arrives { rank: found.to, chunk: found.chunk };
        self.events.push(Reverse((head + behind, arrives)));
        self.claim(found.to, found.chunk);
        self.moves.push(found);
    }

    fn claim(&mut self, rank: u32, chunk: u32) {
        self.claimed.set(rank as usize, chunk as usize);
        for (known, near) in self.known.iter_mut().zip(&self.network.near) {
            known.set(near[rank as usize] as usize, chunk as usize);
        }
    }

    /// The trees along which the chunks spread. Steps rise along each tree and along each channel, so that whoever
    /// keeps their order sends what was sent here.
    pub(super) fn trees(&self) -> Vec<Tree> {
        let root = |chunk: usize| chunk as u32 / self.pieces;
        let tree = |chunk| Tree { root: root(chunk), edges: Vec::with_capacity(self.network.ranks - 1) };
        let mut trees: Vec<Tree> = (0..self.chunks).map(tree).collect();
        let mut arrived = vec![0u32; self.network.ranks * self.chunks];
        let mut used = vec![0u32; self.network.channels.len()];
        for Move { chunk, from, to, channels } in &self.moves {
            let place = |rank: &u32| *rank as usize * self.chunks + *chunk as usize;
            let busiest = channels.iter().map(|&index| used[index as usize]).max().unwrap_or(0);
            let step = busiest.max(arrived[place(from)]);
            channels.iter().for_each(|&index| used[index as usize] = step + 1);
            arrived[place(to)] = step + 1;
            let route = channels[1..].iter().map(|&index| self.channel(index).from).collect();
            trees[*chunk as usize].edges.push(Edge { parent: *from, child: *to, step, route });
        }
        trees
    }
}

/// The channels that lead to the last visit.
fn way(visits: &[(u32, Option<usize>, u64)]) -> ThinVec<u32> {
    let mut channels = ThinVec::new();
    let mut at = visits.len().checked_sub(1);
    while let Some((index, previous, _)) = at.map(|visit| visits[visit]) {
        channels.push(index);
        at = previous;
    }
    channels.reverse();
    channels
}
