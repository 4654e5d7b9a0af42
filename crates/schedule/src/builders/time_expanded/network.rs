//! The network as a run sees it: what a chunk costs on every link, and which ranks are close to each other.

use crate::Topology;

/// A directed link, and what one chunk costs on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Channel {
    pub(super) from: u32,
    pub(super) to: u32,
    /// Nanoseconds for which a chunk keeps it busy.
    pub(super) busy: u64,
    /// Nanoseconds from a byte's departure to its arrival.
    pub(super) latency: u64,
    /// Chunks that it takes side by side.
    pub(super) count: u32,
    /// How slow it is: each level is twice as slow as the one below, and 0 holds the fastest link.
    pub(super) level: usize,
}

impl Channel {
    pub(super) fn cost(&self) -> u64 {
        self.busy.saturating_add(self.latency)
    }
}

#[derive(Debug)]
pub(super) struct Network {
    pub(super) ranks: usize,
    /// Those that carry anything, ordered by their nodes.
    pub(super) channels: Vec<Channel>,
    /// By node, the channels that leave it, and those that reach it.
    pub(super) out: Vec<Vec<u32>>,
    pub(super) into: Vec<Vec<u32>>,
    /// By level and node: its neighbourhood, the nodes that reach each other over links of lower levels.
    pub(super) near: Vec<Vec<u32>>,
    /// By level and node: nanoseconds between two chunks that come over links of lower levels, none if there are none.
    pub(super) pace: Vec<Vec<u64>>,
}

/// Slower links than the fastest by 2 to the power of this count as one level.
const MOST_LEVELS: usize = 12;

impl Network {
    pub(super) fn new(topology: &Topology, bytes: u64) -> Network {
        let mut channels: Vec<Channel> = Vec::new();
        for ((from, to), link) in topology.links() {
            let (busy, latency) = (nanos(link.busy(bytes)), nanos(link.latency));
            if link.bandwidth > 0 && link.count > 0 && from != to {
                channels.push(Channel { from, to, busy, latency, count: link.count, level: 0 });
            }
        }
        let fastest = channels.iter().map(Channel::cost).min().unwrap_or(1).max(1);
        for channel in &mut channels {
            channel.level = ((channel.cost() / fastest).max(1).ilog2() as usize).min(MOST_LEVELS - 1);
        }
        let nodes = topology.nodes() as usize;
        let (mut out, mut into) = (vec![Vec::new(); nodes], vec![Vec::new(); nodes]);
        for (index, channel) in (0..).zip(&channels) {
            out[channel.from as usize].push(index);
            into[channel.to as usize].push(index);
        }
        let mut network = Network {
            ranks: topology.ranks() as usize,
            channels,
            out,
            into,
            near: Vec::new(),
            pace: Vec::new(),
        };
        let levels = network.channels.iter().map(|c| c.level).max().unwrap_or(0);
        network.near = (0..=levels).map(|level| network.neighbourhoods(level)).collect();
        network.pace = (0..=levels).map(|level| network.paces(level)).collect();
        network
    }

    /// Nodes have the same number if they reach each other over links below `level` (Kosaraju's algorithm).
    fn neighbourhoods(&self, level: usize) -> Vec<u32> {
        let nodes = self.out.len();
        let ahead = |node: usize| self.ends(&self.out[node], level, |channel| channel.to);
        let back = |node: usize| self.ends(&self.into[node], level, |channel| channel.from);
        let (mut seen, mut order) = (vec![false; nodes], Vec::with_capacity(nodes));
        for start in 0..nodes {
            leave_in_order(start, &ahead, &mut seen, &mut order);
        }
        let mut near = vec![u32::MAX; nodes];
        let mut number = 0;
        for &start in order.iter().rev() {
            let mut path = vec![start];
            if near[start] == u32::MAX {
                number += 1;
            }
            while let Some(node) = path.pop() {
                if near[node] == u32::MAX {
                    near[node] = number - 1;
                    path.extend(back(node));
                }
            }
        }
        near
    }

    fn paces(&self, level: usize) -> Vec<u64> {
        let pace = |links: &Vec<u32>| {
            let channels = links.iter().map(|&link| &self.channels[link as usize]);
            let rate = |c: &Channel| f64::from(c.count) / c.busy.max(1) as f64;
            let rate: f64 = channels.filter(|c| c.level < level).map(rate).sum();
            if rate > 0.0 {
                (1.0 / rate) as u64
            } else {
                0
            }
        };
        self.into.iter().map(pace).collect()
    }

    fn ends(&self, links: &[u32], level: usize, end: impl Fn(&Channel) -> u32) -> Vec<usize> {
        let channels = links.iter().map(|&link| &self.channels[link as usize]);
        channels.filter(|channel| channel.level < level).map(|channel| end(channel) as usize).collect()
    }

    /// Before this time some rank cannot have `chunks` chunks of others: its own links take so long.
    pub(super) fn bound(&self, chunks: usize) -> u64 {
        (0..self.ranks).map(|rank| self.earliest(rank, chunks as u64)).max().unwrap_or(0)
    }

    fn earliest(&self, rank: usize, chunks: u64) -> u64 {
        let links = || self.into[rank].iter().map(|&link| &self.channels[link as usize]);
        let alone = |c: &Channel| c.latency.saturating_add(c.busy.max(1).saturating_mul(chunks));
        let brought =
            |c: &Channel, time: u64| time.saturating_sub(c.latency) / c.busy.max(1) * u64::from(c.count);
        let (mut low, mut high) = (0, links().map(alone).min().unwrap_or(0));
        while low < high {
            let middle = low + (high - low) / 2;
            match links().map(|c| brought(c, middle)).sum::<u64>() >= chunks {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        low
    }
}

/// Depth first: appends each node that is reached when all beyond it have been.
fn leave_in_order(
    start: usize,
    ahead: &impl Fn(usize) -> Vec<usize>,
    seen: &mut [bool],
    order: &mut Vec<usize>,
) {
    if std::mem::replace(&mut seen[start], true) {
        return;
    }
    let mut path = vec![(start, ahead(start))];
    while let Some((node, next)) = path.last_mut() {
        match next.pop() {
            Some(next) if !std::mem::replace(&mut seen[next], true) => path.push((next, ahead(next))),
            Some(_) => {}
            None => {
                order.push(*node);
                path.pop();
            }
        }
    }
}

fn nanos(duration: std::time::Duration) -> u64 {
    duration.as_nanos().try_into().unwrap_or(u64::MAX / 4)
}
