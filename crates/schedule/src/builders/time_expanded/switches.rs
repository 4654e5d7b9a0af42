//! Ways through switches.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use thin_vec::ThinVec;

use super::moves::Move;
use super::run::Run;

/// A node that a search has come to, the best way first.
struct Visit {
    node: u32,
    /// The channel that led here, and the visit to where that starts.
    channel: u32,
    previous: Option<usize>,
    /// The level of the slowest channel on the way, and how long a chunk takes there.
    level: usize,
    busy: u64,
    /// When the first byte comes.
    head: u64,
}

/// What a search may look at next, best first: level, channels taken, chunks that the end has, a random number, the
/// channel, and the visit before it.
type Ahead = Reverse<(usize, usize, u32, u64, u32, Option<usize>)>;

impl Run<'_> {
    /// A chunk for a rank that lies behind channel `first` of another, over channels that are free when the first byte
    /// comes.
    ///
    /// The slowest way goes first that brings something new to the ranks around its end, because such channels are
    /// few and must not idle. Else it is the fastest.
    pub(super) fn through_switches(&mut self, first: u32) -> Option<Move> {
        let from = self.network.channels[first as usize].from;
        let (visits, taken) = self.search(first);
        let is_end = |&at: &usize| self.network.is_rank(visits[at].node);
        let ends: Vec<usize> = (0..visits.len()).filter(is_end).collect();
        let mut slowest_first = ends.clone();
        slowest_first.sort_by_key(|&at| Reverse(visits[at].level));
        let found = |chunk, at: usize| Move { chunk, from, to: visits[at].node, channels: way(&visits, at) };
        for at in slowest_first {
            if let Some(chunk) = self.choose_new(from, visits[at].node, visits[at].level) {
                return Some(found(chunk, at));
            }
        }
        for at in ends {
            let Visit { node, level, head, busy, .. } = visits[at];
            if let Some(chunk) = self.choose_known(from, node, level, head + busy - self.now) {
                return Some(found(chunk, at));
            }
        }
        self.wait(first, &taken);
        None
    }

    /// Ways from a channel to the nodes behind it: of the lowest level, then with the fewest channels, then to the rank
    /// that has the fewest chunks. Where all are of one level, it stops at the first that needs something.
    /// Also the channels that lead on and are taken.
    fn search(&mut self, first: u32) -> (Vec<Visit>, Vec<u32>) {
        let network = self.network;
        let from = network.channels[first as usize].from;
        let mut done = vec![false; network.out.len()];
        let (mut visits, mut taken): (Vec<Visit>, Vec<u32>) = (Vec::new(), Vec::new());
        let mut ahead: BinaryHeap<Ahead> = BinaryHeap::new();
        ahead.push(Reverse((network.channels[first as usize].level, 1, 0, 0, first, None)));
        while let Some(Reverse((level, hops, _, _, index, previous))) = ahead.pop() {
            let channel = &network.channels[index as usize];
            if std::mem::replace(&mut done[channel.to as usize], true) {
                continue;
            }
            let (head, busy) = previous.map_or((self.now, 0), |at| (visits[at].head, visits[at].busy));
            let (head, busy, node) = (head + channel.latency, busy.max(channel.busy), channel.to);
            visits.push(Visit { node, channel: index, previous, level, busy, head });
            if network.is_rank(node) {
                if network.is_even() && self.choose_new(from, node, level).is_some() {
                    break;
                }
                continue;
            }
            let last = Some(visits.len() - 1);
            for &next in &network.out[node as usize] {
                let onward = &network.channels[next as usize];
                if done[onward.to as usize] || onward.to == from {
                    continue;
                }
                if self.lane(next, head).is_some() {
                    let (level, has) = (level.max(onward.level), self.claims(onward.to));
                    ahead.push(Reverse((level, hops + 1, has, self.rng.draw(), next, last)));
                } else {
                    taken.push(next);
                }
            }
        }
        (visits, taken)
    }

    /// Has `first` looked at again when one of the taken channels is free, if it may lead to somebody in need.
    fn wait(&mut self, first: u32, taken: &[u32]) {
        let from = self.network.channels[first as usize].from;
        for &index in taken {
            let to = self.network.channels[index as usize].to;
            if !self.network.is_rank(to)
                || self.held.ones_beyond(from as usize, self.claimed.row(to as usize)) > 0
            {
                self.waiting[index as usize].push(first);
            }
        }
    }
}

/// The channels that lead to a visit.
fn way(visits: &[Visit], end: usize) -> ThinVec<u32> {
    let mut channels = ThinVec::new();
    let mut at = Some(end);
    while let Some(visit) = at.map(|at| &visits[at]) {
        channels.push(visit.channel);
        at = visit.previous;
    }
    channels.reverse();
    channels
}
