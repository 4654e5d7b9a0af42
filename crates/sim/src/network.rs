//! The channels between ranks, and who occupies them until when.

use std::collections::BTreeMap;

use tweed_schedule::{Link, Rank, Schedule, Send};

use crate::clock::{time, Time};
use crate::{Setup, SimError};

/// A message on its way.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) send: u32,
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

/// One thing that carries one message at a time.
#[derive(Debug)]
struct Channel {
    link: Link,
    latency: Time,
    free: Time,
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
    /// The channel of each link. In a flat network ports take their place: those of senders, then of receivers.
    of_link: BTreeMap<(u32, u32), usize>,
    is_flat: bool,
    ranks: usize,
    slow: Vec<f64>,
}

impl Network {
    pub(crate) fn new(schedule: &Schedule, setup: &Setup) -> Result<Network, SimError> {
        let ranks = schedule.ranks() as usize;
        let slow = |rank: u32| setup.slow.get(&rank).copied().unwrap_or(1.0);
        let mut network = Network {
            channels: Vec::new(),
            of_link: BTreeMap::new(),
            is_flat: setup.topology.port().is_some(),
            ranks,
            slow: (0..schedule.ranks()).map(slow).collect(),
        };
        match setup.topology.port() {
            Some(port) => network.add_ports(port),
            None => network.add_links(setup),
        }
        network.check(schedule, setup)?;
        Ok(network)
    }

    fn add_ports(&mut self, port: Link) {
        let ports = |latency| (0..self.ranks).map(move |_| Channel { link: port, latency, free: 0 });
        self.channels = ports(time(port.latency)).chain(ports(0)).collect();
    }

    fn add_links(&mut self, setup: &Setup) {
        for (nodes, link) in setup.topology.links() {
            self.of_link.insert(nodes, self.channels.len());
            self.channels.push(Channel { link, latency: time(link.latency), free: 0 });
        }
    }

    fn check(&self, schedule: &Schedule, setup: &Setup) -> Result<(), SimError> {
        let remote = |s: &Send| !setup.is_local(s.src, s.dst);
        for (send, s) in (0..).zip(schedule.sends()).filter(|(_, s)| remote(s)) {
            let mut hops = s.hops();
            if let Some((from, to)) = hops.find(|&(a, b)| !setup.topology.has_link(a, b)) {
                return Err(SimError::NoSuchLink { send, from, to });
            }
        }
        Ok(())
    }

    /// How many channels a send takes.
    pub(crate) fn hops(&self, send: &Send) -> usize {
        match self.is_flat {
            true => 2,
            false => send.route.len() + 1,
        }
    }

    /// The time of an empty message, and of its acknowledgement.
    pub(crate) fn latency(&self, send: &Send) -> Time {
        let channels = (0..self.hops(send)).map(|hop| &self.channels[self.channel(send, hop)]);
        channels.fold(0, |sum, c| sum.saturating_add(c.latency))
    }

    /// The message's first byte reaches its next channel at `now`: takes it through.
    pub(crate) fn pass(&mut self, now: Time, send: &Send, message: &mut Message) -> Passage {
        let at = self.channel(send, message.hops);
        let slow = if message.hops == 0 { self.slow[send.src as usize] } else { 1.0 };
        let channel = &mut self.channels[at];
        let start = now.max(channel.free);
        let busy = stretch(time(channel.link.busy(message.bytes)), slow);
        // The last byte cannot leave before it has come.
        let end = start.saturating_add(busy).max(now.saturating_add(message.behind));
        channel.free = end;
        message.hops += 1;
        message.behind = end - start;
        let later = |t: Time| t.saturating_add(channel.latency);
        Passage { enters: (start, end), leaves: (later(start), later(end)) }
    }

    fn channel(&self, send: &Send, hop: usize) -> usize {
        if self.is_flat {
            return match hop {
                0 => send.src as usize,
                _ => self.ranks + send.dst as usize,
            };
        }
        let link = send.hops().nth(hop).expect("a message takes no more hops than its send has");
        self.of_link[&link]
    }
}

/// `duration` times `factor`, to the nanosecond.
pub(crate) fn stretch(duration: Time, factor: f64) -> Time {
    match factor {
        1.0 => duration,
        _ => (duration as f64 * factor).round() as Time,
    }
}
