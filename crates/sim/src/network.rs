//! The channels between ranks, and who occupies them until when.

use std::collections::BTreeMap;

use tweed_schedule::{Link, Rank, Schedule};

use crate::clock::{time, Time};
use crate::{Setup, SimError};

/// A message on its way.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) send: u32,
    pub(crate) output: u32,
    pub(crate) slice: u32,
    pub(crate) src: Rank,
    pub(crate) dst: Rank,
    pub(crate) bytes: u64,
    pub(crate) value: u64,
    /// When the first and the last byte left the sender.
    pub(crate) left: (Time, Time),
    /// The last byte is behind the first by so much, as far as the message has come.
    pub(crate) behind: Time,
    /// How many channels it has taken.
    pub(crate) hops: usize,
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
    channels: Vec<Channel>,
    /// The channels of all sends, one send after the other.
    paths: Vec<u32>,
    /// Where the path of each send starts; one more for the end.
    starts: Vec<u32>,
    slow: Vec<f64>,
    header: u64,
    packet: Option<u64>,
}

impl Network {
    pub(crate) fn new(schedule: &Schedule, setup: &Setup) -> Result<Network, SimError> {
        let slow = |rank: u32| setup.slow.get(&rank).copied().unwrap_or(1.0);
        let (slow, &Setup { header, packet, .. }) = ((0..schedule.ranks()).map(slow).collect(), setup);
        let (channels, paths, starts) = (Vec::new(), Vec::new(), vec![0]);
        let mut network = Network { channels, paths, starts, slow, header, packet };
        match setup.topology.port() {
            Some(port) => network.add_ports(port, schedule, setup)?,
            None => network.add_links(schedule, setup)?,
        }
        Ok(network)
    }

    /// Each rank has a port out and a port in: those of senders come first.
    fn add_ports(&mut self, port: Link, schedule: &Schedule, setup: &Setup) -> Result<(), SimError> {
        let ranks = schedule.ranks();
        let ports = |latency| (0..ranks).map(move |_| Channel::new(port, latency));
        self.channels = ports(time(port.latency)).chain(ports(0)).collect();
        self.add_paths(schedule, setup, |from, to| {
            let there = setup.topology.has_link(from, to);
            there.then_some([Some(from), Some(ranks + to)])
        })
    }

    /// A channel per link, and one per switch with a capacity, which messages pass before the link behind it.
    fn add_links(&mut self, schedule: &Schedule, setup: &Setup) -> Result<(), SimError> {
        let mut of_link = BTreeMap::new();
        for (nodes, link) in setup.topology.links() {
            of_link.insert(nodes, self.channels.len() as u32);
            self.channels.push(Channel::new(link, time(link.latency)));
        }
        let mut of_switch = BTreeMap::new();
        for (&node, &capacity) in &setup.topology.traits().capacities {
            of_switch.insert(node, self.channels.len() as u32);
            self.channels.push(Channel::new(Link::new(capacity, std::time::Duration::ZERO), 0));
        }
        self.add_paths(schedule, setup, |from, to| {
            of_link.get(&(from, to)).map(|&link| [of_switch.get(&from).copied(), Some(link)])
        })
    }

    fn add_paths(
        &mut self,
        schedule: &Schedule,
        setup: &Setup,
        channels: impl Fn(u32, u32) -> Option<[Option<u32>; 2]>,
    ) -> Result<(), SimError> {
        for (send, s) in (0..).zip(schedule.sends()) {
            let hops = s.hops().filter(|_| !setup.is_local(s.src, s.dst));
            for (from, to) in hops {
                let found = channels(from, to).ok_or(SimError::NoSuchLink { send, from, to })?;
                self.paths.extend(found.into_iter().flatten());
            }
            self.starts.push(self.paths.len() as u32);
        }
        Ok(())
    }

    /// The channels that a send takes.
    fn path(&self, send: u32) -> &[u32] {
        &self.paths[self.starts[send as usize] as usize..self.starts[send as usize + 1] as usize]
    }

    /// The message has taken all of its channels.
    pub(crate) fn is_through(&self, message: &Message) -> bool {
        message.hops == self.path(message.send).len()
    }

    /// The time of an empty message, and of its acknowledgement.
    pub(crate) fn latency(&self, send: u32) -> Time {
        let path = self.path(send).iter();
        path.fold(0, |sum, &at| sum.saturating_add(self.channels[at as usize].latency))
    }

    /// The message's first byte reaches its next channel at `now`: takes it through.
    pub(crate) fn pass(&mut self, now: Time, message: &mut Message) -> Passage {
        let at = self.path(message.send)[message.hops] as usize;
        let slow = if message.hops == 0 { self.slow[message.src as usize] } else { 1.0 };
        let on_wire = self.on_wire(message.bytes);
        let channel = &mut self.channels[at];
        let busy = stretch(time(channel.link.busy(on_wire)), slow);
        let latency = channel.latency;
        let lane = channel.lane();
        let start = now.max(*lane);
        *lane = start.saturating_add(busy);
        // The last byte cannot leave before it has come. Others use the gaps that a slow sender leaves.
        let end = (*lane).max(now.saturating_add(message.behind));
        message.hops += 1;
        message.behind = end - start;
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
