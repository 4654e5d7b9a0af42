//! The network as a run sees it: what a chunk costs on every link, and which nodes are close to each other.

use std::collections::BTreeMap;
use std::time::Duration;

use super::near::components;
use crate::{Link, Topology};

/// A directed link, or the way through a switch of limited capacity, and what one chunk costs there.
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
    fn new((from, to): (u32, u32), link: &Link, bytes: u64, clock: Clock) -> Channel {
        let (busy, latency) = (nanos(link.busy(bytes)), nanos(link.latency));
        let (busy, latency) = match clock {
            Clock::Simulator => (busy, latency),
            Clock::Rounds => (busy.saturating_add(latency), 0),
        };
        Channel { from, to, busy, latency, count: link.count, level: 0 }
    }

    fn cost(&self) -> u64 {
        self.busy.saturating_add(self.latency)
    }
}

/// When a link is free again.
#[derive(Clone, Copy, Debug)]
pub(super) enum Clock {
    /// Once the last byte has entered.
    Simulator,
    /// Once the last byte has arrived.
    Rounds,
}

#[derive(Debug)]
pub(super) struct Network {
    pub(super) ranks: usize,
    /// Nodes from here on are the far sides of switches that have a capacity.
    pub(super) nodes: u32,
    pub(super) channels: Vec<Channel>,
    /// The channels that leave each node, and those that reach it.
    pub(super) out: Vec<Vec<u32>>,
    pub(super) into: Vec<Vec<u32>>,
    /// By level and node: the number of its neighbourhood, which are the nodes that reach each other over channels of
    /// lower levels.
    pub(super) near: Vec<Vec<u32>>,
    /// Nanoseconds between two chunks that reach a node over channels of lower levels, by level and node.
    pub(super) pace: Vec<Vec<u64>>,
}

/// Slower links than the fastest by 2 to the power of this count as one level.
const MOST_LEVELS: usize = 12;

impl Network {
    pub(super) fn new(topology: &Topology, bytes: u64, clock: Clock) -> Network {
        let channels = channels(topology, bytes, clock);
        let nodes = channels.iter().map(|c| c.from.max(c.to) + 1).fold(topology.nodes(), u32::max) as usize;
        let (mut out, mut into) = (vec![Vec::new(); nodes], vec![Vec::new(); nodes]);
        for (index, channel) in (0..).zip(&channels) {
            out[channel.from as usize].push(index);
            into[channel.to as usize].push(index);
        }
        let levels = channels.iter().map(|c| c.level).max().unwrap_or(0);
        let (ranks, nodes) = (topology.ranks() as usize, topology.nodes());
        let mut network = Network { ranks, nodes, channels, out, into, near: Vec::new(), pace: Vec::new() };
        network.near = (0..=levels).map(|level| network.neighbourhoods(level)).collect();
        network.pace = (0..=levels).map(|level| network.paces(level)).collect();
        network
    }

    pub(super) fn is_rank(&self, node: u32) -> bool {
        (node as usize) < self.ranks
    }

    /// No link is much faster than another.
    pub(super) fn is_even(&self) -> bool {
        self.near.len() == 1
    }

    /// Latencies are so short that little is lost if links stay idle until the last byte has arrived.
    pub(super) fn keeps_rounds(&self) -> bool {
        self.channels.iter().all(|channel| channel.latency <= channel.busy / 8)
    }

    fn of<'a>(&'a self, links: &'a [u32]) -> impl Iterator<Item = &'a Channel> {
        links.iter().map(|&link| &self.channels[link as usize])
    }

    fn neighbourhoods(&self, level: usize) -> Vec<u32> {
        let below = |c: &&Channel| c.level < level;
        let ahead = |node: usize| self.of(&self.out[node]).filter(below).map(|c| c.to as usize).collect();
        let back = |node: usize| self.of(&self.into[node]).filter(below).map(|c| c.from as usize).collect();
        components(self.out.len(), &ahead, &back)
    }

    fn paces(&self, level: usize) -> Vec<u64> {
        let rate = |c: &Channel| f64::from(c.count) / c.busy.max(1) as f64;
        let rates = self.into.iter().map(|links| self.of(links).filter(|c| c.level < level).map(rate).sum());
        rates.map(|rate: f64| if rate > 0.0 { (1.0 / rate) as u64 } else { 0 }).collect()
    }

    /// Before this time, in nanoseconds, some rank cannot have `chunks` from others: its own links take so long.
    pub(super) fn bound(&self, chunks: u64) -> u64 {
        (0..self.ranks).map(|rank| self.earliest(rank, chunks)).max().unwrap_or(0)
    }

    fn earliest(&self, rank: usize, chunks: u64) -> u64 {
        let links = &self.into[rank];
        let alone = |c: &Channel| c.latency.saturating_add(c.busy.max(1).saturating_mul(chunks));
        let in_time =
            |c: &Channel, time: u64| time.saturating_sub(c.latency) / c.busy.max(1) * u64::from(c.count);
        let (mut low, mut high) = (0, self.of(links).map(alone).min().unwrap_or(0));
        while low < high {
            let middle = low + (high - low) / 2;
            match self.of(links).map(|c| in_time(c, middle)).sum::<u64>() >= chunks {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        low
    }
}

/// Links that carry anything, by their nodes; those that leave a switch with a capacity start at its far side.
fn channels(topology: &Topology, bytes: u64, clock: Clock) -> Vec<Channel> {
    let capacities = topology.traits().capacities.iter().filter(|(&node, _)| node >= topology.ranks());
    let far: BTreeMap<u32, u32> = capacities.clone().map(|(&node, _)| node).zip(topology.nodes()..).collect();
    let mut channels = Vec::new();
    for ((from, to), link) in topology.links() {
        if link.bandwidth > 0 && link.count > 0 && from != to {
            let from = far.get(&from).copied().unwrap_or(from);
            channels.push(Channel::new((from, to), &link, bytes, clock));
        }
    }
    let fastest = channels.iter().map(Channel::cost).min().unwrap_or(1).max(1);
    for channel in &mut channels {
        channel.level = ((channel.cost() / fastest).max(1).ilog2() as usize).min(MOST_LEVELS - 1);
    }
    for (node, &capacity) in capacities {
        let through = Link::new(capacity, Duration::ZERO);
        channels.push(Channel::new((*node, far[node]), &through, bytes, clock));
    }
    channels
}

/// Short enough that sums of a few do not overflow.
fn nanos(duration: Duration) -> u64 {
    duration.as_nanos().min(1 << 48) as u64
}
