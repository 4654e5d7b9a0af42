//! The channels between ranks, and who occupies them until when.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tweed_schedule::{Link, Rank, Schedule, Topology};

use crate::clock::{time, Time};
use crate::{Setup, SimError};

/// Something on its way.
#[derive(Clone, Debug)]
pub(crate) struct Transit {
    /// Which path it takes: the number of its send, or one that [`Network::pair`] found.
    pub(crate) path: u32,
    pub(crate) src: Rank,
    pub(crate) bytes: u64,
    /// The last byte is behind the first by so much, as far as it has come.
    pub(crate) behind: Time,
    /// How many channels it has taken.
    pub(crate) hops: usize,
}

impl Transit {
    pub(crate) fn new(path: u32, src: Rank, bytes: u64) -> Transit {
        Transit { path, src, bytes, behind: 0, hops: 0 }
    }
}

/// A piece of a chunk on its way.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) transit: Transit,
    pub(crate) output: u32,
    pub(crate) slice: u32,
    pub(crate) dst: Rank,
    pub(crate) value: u64,
    /// When the first and the last byte left the sender.
    pub(crate) left: (Time, Time),
}

/// What messages pass through: links side by side, a port, or a switch.
#[derive(Debug)]
struct Channel {
    link: Link,
    latency: Time,
    /// When each of the links side by side is free.
    free: Vec<Time>,
}

impl Channel {
    fn new(link: Link, latency: Time) -> Channel {
        Channel { link, latency, free: vec![0; link.count.max(1) as usize] }
    }

    /// The one that is free first; of equals, the first.
    fn lane(&mut self) -> &mut Time {
        self.free.iter_mut().min_by_key(|free| **free).expect("a channel has at least one lane")
    }
}

/// What a channel does to a message.
pub(crate) struct Passage {
    /// First and last byte enter.
    pub(crate) enters: (Time, Time),
    /// First and last byte reach the end.
    pub(crate) leaves: (Time, Time),
}

#[derive(Debug)]
pub(crate) struct Network {
    topology: Arc<Topology>,
    channels: Vec<Channel>,
    channel_of: ChannelOf,
    /// The channels of all paths, one path after the other.
    paths: Vec<u32>,
    /// Where each path starts; one more for the end.
    starts: Vec<u32>,
    pairs: BTreeMap<(Rank, Rank), Option<u32>>,
    slow: Vec<f64>,
    header: u64,
    packet: Option<u64>,
}

/// Where the channels of a hop are.
#[derive(Debug)]
enum ChannelOf {
    /// Each rank has a port out and a port in: those of senders come first.
    Ports { ranks: u32 },
    /// One per link, and one per switch with a capacity, which messages pass before the link behind it.
    Links { links: BTreeMap<(u32, u32), u32>, switches: BTreeMap<u32, u32> },
}

impl ChannelOf {
    fn hop(&self, topology: &Topology, from: u32, to: u32) -> Option<[Option<u32>; 2]> {
        match self {
            ChannelOf::Ports { ranks } => {
                topology.has_link(from, to).then_some([Some(from), Some(ranks + to)])
            }
            ChannelOf::Links { links, switches } => {
                links.get(&(from, to)).map(|&link| [switches.get(&from).copied(), Some(link)])
            }
        }
    }
}

impl Network {
    /// A network that knows no paths yet.
    pub(crate) fn new(topology: &Arc<Topology>) -> Network {
        let (channels, channel_of) = match topology.port() {
            Some(port) => ports(topology.ranks(), port),
            None => links(topology),
        };
        let slow = vec![1.0; topology.ranks() as usize];
        let (topology, paths, starts, pairs) = (topology.clone(), Vec::new(), vec![0], BTreeMap::new());
        Network { topology, channels, channel_of, paths, starts, pairs, slow, header: 0, packet: None }
    }

    /// The paths of a schedule's sends, by the numbers of these.
    pub(crate) fn of_sends(schedule: &Schedule, setup: &Setup) -> Result<Network, SimError> {
        let slow = |rank: u32| setup.slow.get(&rank).copied().unwrap_or(1.0);
        let mut network = Network::new(&setup.topology).with_headers(setup.header, setup.packet);
        network.slow = (0..schedule.ranks()).map(slow).collect();
        for (send, s) in (0..).zip(schedule.sends()) {
            let hops = s.hops().filter(|_| !setup.is_local(s.src, s.dst));
            let no_such_link = |(from, to)| SimError::NoSuchLink { send, from, to };
            network.add_path(hops).map_err(no_such_link)?;
        }
        Ok(network)
    }

    pub(crate) fn with_headers(self, header: u64, packet: Option<u64>) -> Network {
        Network { header, packet, ..self }
    }

    /// The path with the fewest hops between two ranks; of equal ones the one over the lowest nodes. None: there is none.
    pub(crate) fn pair(&mut self, src: Rank, dst: Rank) -> Option<u32> {
        if let Some(&known) = self.pairs.get(&(src, dst)) {
            return known;
        }
        let nodes = fewest_hops(&self.topology, src, dst);
        let path = nodes.and_then(|nodes| self.add_path(nodes.windows(2).map(|hop| (hop[0], hop[1]))).ok());
        self.pairs.insert((src, dst), path);
        path
    }

    /// Payload bytes per second of a path's narrowest channel.
    pub(crate) fn rate(&self, path: u32) -> u64 {
        let rates = self.path(path).iter().map(|&at| self.channels[at as usize].link.bandwidth);
        rates.min().unwrap_or(u64::MAX)
    }

    fn add_path(&mut self, hops: impl Iterator<Item = (u32, u32)>) -> Result<u32, (u32, u32)> {
        let path = self.starts.len() as u32 - 1;
        for (from, to) in hops {
            let found = self.channel_of.hop(&self.topology, from, to).ok_or((from, to))?;
            self.paths.extend(found.into_iter().flatten());
        }
        self.starts.push(self.paths.len() as u32);
        Ok(path)
    }

    /// The channels of a path.
    fn path(&self, path: u32) -> &[u32] {
        &self.paths[self.starts[path as usize] as usize..self.starts[path as usize + 1] as usize]
    }

    /// It has taken all of its channels.
    pub(crate) fn is_through(&self, transit: &Transit) -> bool {
        transit.hops == self.path(transit.path).len()
    }

    /// The time of an empty message, and of its acknowledgement.
    pub(crate) fn latency(&self, path: u32) -> Time {
        let path = self.path(path).iter();
        path.fold(0, |sum, &at| sum.saturating_add(self.channels[at as usize].latency))
    }

    /// Its first byte reaches its next channel at `now`: takes it through.
    pub(crate) fn pass(&mut self, now: Time, transit: &mut Transit) -> Passage {
        let at = self.path(transit.path)[transit.hops] as usize;
        let slow = if transit.hops == 0 { self.slow[transit.src as usize] } else { 1.0 };
        let on_wire = self.on_wire(transit.bytes);
        let channel = &mut self.channels[at];
        let busy = stretch(time(channel.link.busy(on_wire)), slow);
        let latency = channel.latency;
        let lane = channel.lane();
        let start = now.max(*lane);
        *lane = start.saturating_add(busy);
        // The last byte cannot leave before it has come. Others use the gaps that a slow sender leaves.
        let end = (*lane).max(now.saturating_add(transit.behind));
        transit.hops += 1;
        transit.behind = end - start;
        let later = |t: Time| t.saturating_add(latency);
        Passage { enters: (start, end), leaves: (later(start), later(end)) }
    }

    /// Payload and headers: one per packet, or one per message.
    fn on_wire(&self, bytes: u64) -> u64 {
        let packets = self.packet.map_or(1, |packet| bytes.div_ceil(packet).max(1));
        bytes.saturating_add(self.header.saturating_mul(packets))
    }
}

/// `duration` times `factor`, to the nanosecond.
pub(crate) fn stretch(duration: Time, factor: f64) -> Time {
    match factor {
        1.0 => duration,
        _ => (duration as f64 * factor).round() as Time,
    }
}

fn ports(ranks: u32, port: Link) -> (Vec<Channel>, ChannelOf) {
    let ports = |latency| (0..ranks).map(move |_| Channel::new(port, latency));
    (ports(time(port.latency)).chain(ports(0)).collect(), ChannelOf::Ports { ranks })
}

fn links(topology: &Topology) -> (Vec<Channel>, ChannelOf) {
    let (mut channels, mut links, mut switches) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
    for (nodes, link) in topology.links() {
        links.insert(nodes, channels.len() as u32);
        channels.push(Channel::new(link, time(link.latency)));
    }
    for (&node, &capacity) in &topology.traits().capacities {
        switches.insert(node, channels.len() as u32);
        channels.push(Channel::new(Link::new(capacity, Duration::ZERO), 0));
    }
    (channels, ChannelOf::Links { links, switches })
}

/// The nodes from `src` to `dst`, both included. Only switches lie between, so that no rank carries what is not its own,
/// unless there is no other way.
fn fewest_hops(topology: &Topology, src: Rank, dst: Rank) -> Option<Vec<u32>> {
    if src == dst || topology.has_link(src, dst) {
        return Some(if src == dst { vec![src] } else { vec![src, dst] });
    }
    let mut neighbours: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for ((from, to), _) in topology.links() {
        neighbours.entry(from).or_default().push(to);
    }
    let over_ranks = [false, true];
    over_ranks.into_iter().find_map(|over_ranks| {
        let (mut before, mut reached) = (BTreeMap::new(), VecDeque::from([src]));
        while let Some(node) = reached.pop_front().filter(|_| !before.contains_key(&dst)) {
            if node != src && node < topology.ranks() && !over_ranks {
                continue;
            }
            for &next in neighbours.get(&node).into_iter().flatten().filter(|&&next| next != src) {
                before.entry(next).or_insert_with(|| {
                    reached.push_back(next);
                    node
                });
            }
        }
        let mut way: Vec<u32> = std::iter::successors(Some(dst), |node| before.get(node).copied()).collect();
        way.reverse();
        (way[0] == src).then_some(way)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_joined_over_switches_and_over_ranks_only_where_nothing_else_is() {
        let link = Link::new(100, Duration::from_nanos(5));
        let star = |nodes: &[(u32, u32)]| Arc::new(Topology::from_links(3, nodes.iter().map(|&n| (n, link))));
        let both = [(0, 1), (1, 2), (0, 3), (3, 4), (4, 2)];
        assert_eq!(fewest_hops(&star(&both), 0, 2), Some(vec![0, 3, 4, 2]));
        assert_eq!(fewest_hops(&star(&both[..2]), 0, 2), Some(vec![0, 1, 2]));
        assert_eq!(fewest_hops(&star(&both), 2, 0), None);
        let mut network = Network::new(&star(&both));
        let path = network.pair(0, 2).unwrap();
        assert_eq!((network.pair(0, 2), network.latency(path), network.rate(path)), (Some(path), 15, 100));
        assert_eq!(network.pair(2, 0), None);
    }
}
