//! [`World`]: virtual time, channels, connections, and what is checked.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use tweed_proto::ltp::{LinkMetrics, Outgoing, Settings};

use super::channel::{Channel, Conditions};
use super::end::{check, End, Ending, Happened, Message, Ticket};
use tweed_rng::Rng;

/// Something happened that never may: a defect of tweed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("seed {seed}, at {at:?}: {what}; this is a defect of tweed, please report it")]
pub struct Defect {
    /// The seed of the run.
    pub seed: u64,
    /// The virtual time when it happened.
    pub at: Duration,
    /// What has gone wrong.
    pub what: String,
}

/// Two ends and the channels between them.
#[derive(Debug)]
struct Connection {
    settings: Settings,
    /// `None` while that end is down.
    ends: [Option<End>; 2],
    /// What each end believes the other's number is.
    peers: [u32; 2],
    /// The channel that each end sends into.
    channels: [usize; 2],
}

/// A packet under way; the oldest arrival is the largest, since [`BinaryHeap`] gives the largest first.
type Flying = Reverse<(Duration, u64, usize, usize, Vec<u8>)>;

/// Time, channels, connections and messages.
#[derive(Debug)]
pub struct World {
    seed: u64,
    now: Duration,
    rng: Rng,
    channels: Vec<Channel>,
    connections: Vec<Connection>,
    messages: Vec<Message>,
    flying: BinaryHeap<Flying>,
    packets: u64,
    links: u32,
    /// How much has happened at this instant.
    at_once: u32,
}

impl World {
    /// A world without anything in it.
    pub fn new(seed: u64) -> World {
        World {
            seed,
            now: Duration::ZERO,
            rng: Rng::new(seed),
            channels: Vec::new(),
            connections: Vec::new(),
            messages: Vec::new(),
            flying: BinaryHeap::new(),
            packets: 0,
            links: 0,
            at_once: 0,
        }
    }

    /// Adds a channel; returns its index.
    pub fn channel(&mut self, conditions: Conditions) -> usize {
        self.channels.push(Channel::new(conditions));
        self.channels.len() - 1
    }

    /// Connects two ends over the channels that end 0 and end 1 send into; returns the connection's index.
    pub fn connect(&mut self, channels: [usize; 2], settings: Settings) -> usize {
        let connection = Connection { settings, ends: [None, None], peers: [0; 2], channels };
        self.connections.push(connection);
        let index = self.connections.len() - 1;
        self.restart(index);
        index
    }

    /// The virtual time now.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// All messages, by ticket.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// What a link has done and knows; `None` while that end is down.
    pub fn metrics(&self, connection: usize, end: usize) -> Option<LinkMetrics> {
        self.connections[connection].ends[end].as_ref().map(|end| end.link.metrics())
    }

    /// Packets that entered a channel, and those of them that its full queue dropped.
    pub fn overflow(&self, channel: usize) -> (u64, u64) {
        (self.channels[channel].offered, self.channels[channel].overflowed)
    }

    /// Changes what a channel does from now on.
    pub fn set_conditions(&mut self, channel: usize, conditions: Conditions) {
        self.channels[channel].conditions = conditions;
    }

    /// A channel drops everything, or no longer.
    pub fn cut(&mut self, channel: usize, cut: bool) {
        self.channels[channel].cut = cut;
    }

    /// Sends a message from one end. While that end is down, it ends at once. Its tag is overwritten.
    pub fn send(&mut self, connection: usize, end: usize, mut what: Outgoing) -> Result<Ticket, Defect> {
        let ticket = self.messages.len();
        what.tag[..8].copy_from_slice(&(ticket as u64).to_le_bytes());
        let mut message = Message { what, given_at: self.now, received: None, ended: None };
        match &mut self.connections[connection].ends[end] {
            Some(end) => end.send(ticket, message.what.clone()),
            None => message.ended = Some((self.now, Ending::LinkLost)),
        }
        self.messages.push(message);
        self.flush(connection, end)?;
        Ok(ticket)
    }

    /// One end dies: what it was sending ends, and packets to it find nobody. The other end does not know.
    pub fn crash(&mut self, connection: usize, end: usize) {
        let gone = self.connections[connection].ends[end].take();
        for ticket in gone.into_iter().flat_map(|end| end.sending.into_values()) {
            self.messages[ticket].ended = Some((self.now, Ending::LinkLost));
        }
    }

    /// Both ends have learnt that the other was gone, and begin anew: new links, with new numbers.
    pub fn restart(&mut self, connection: usize) {
        for end in 0..2 {
            self.crash(connection, end);
            self.links += 1;
            let connection = &mut self.connections[connection];
            connection.ends[end] = Some(End::new(&connection.settings, self.links));
            connection.peers[1 - end] = self.links;
        }
    }

    /// An epoch ends at all ends: Early Close sets its thresholds anew.
    pub fn end_epoch(&mut self) {
        let ends = || self.connections.iter().flat_map(|connection| connection.ends.iter().flatten());
        let slowest = ends().filter_map(|end| end.link.metrics().coming_threshold).max();
        for end in self.connections.iter_mut().flat_map(|connection| connection.ends.iter_mut().flatten()) {
            end.link.end_epoch(slowest);
        }
    }

    /// Lets everything happen until `until`.
    ///
    /// # Errors
    /// Something happened that never may.
    pub fn run(&mut self, until: Duration) -> Result<(), Defect> {
        while self.step(until)? {}
        Ok(())
    }

    /// Lets the next thing happen. False, and it is `until`, if nothing does before that.
    ///
    /// # Errors
    /// Something happened that never may.
    pub fn step(&mut self, until: Duration) -> Result<bool, Defect> {
        let arrival = self.flying.peek().map(|Reverse((at, ..))| *at);
        let timeout = self.next_timeout();
        let due = timeout.map(|(at, ..)| at);
        let Some(next) = [arrival, due].into_iter().flatten().min().filter(|next| *next <= until) else {
            self.now = until;
            return Ok(false);
        };
        self.at_once = if next > self.now { 0 } else { self.at_once + 1 };
        self.now = self.now.max(next);
        if self.at_once > 1_000_000 {
            return Err(self.defect("time stands still".to_string()));
        }
        if arrival == Some(next) {
            self.arrive()?;
        } else if let Some((_, connection, end)) = timeout {
            if let Some(state) = &mut self.connections[connection].ends[end] {
                state.link.handle_timeout(self.now);
            }
            self.settle(connection, end)?;
        }
        Ok(true)
    }

    fn next_timeout(&self) -> Option<(Duration, usize, usize)> {
        let ends = self.connections.iter().enumerate().flat_map(|(index, connection)| {
            connection.ends.iter().enumerate().map(move |(end, state)| (state, index, end))
        });
        let due =
            ends.filter_map(|(state, index, end)| Some((state.as_ref()?.link.next_timeout()?, index, end)));
        due.min()
    }

    fn arrive(&mut self) -> Result<(), Defect> {
        let Some(Reverse((_, _, connection, end, packet))) = self.flying.pop() else { return Ok(()) };
        let Some(state) = &mut self.connections[connection].ends[end] else { return Ok(()) };
        let result = state.arrive(self.now, &packet);
        result.map_err(|what| self.defect(what))?;
        self.settle(connection, end)
    }

    /// Takes an end's events, and lets it send.
    fn settle(&mut self, connection: usize, end: usize) -> Result<(), Defect> {
        while let Some(happened) = self.connections[connection].ends[end].as_mut().and_then(End::poll_event) {
            self.happened(happened).map_err(|what| self.defect(what))?;
        }
        self.flush(connection, end)
    }

    fn happened(&mut self, happened: Happened) -> Result<(), String> {
        match happened {
            Happened::Cancelled => Err("a message was cancelled by nobody".to_string()),
            Happened::Received { tag, missing, landed } => {
                let ticket = u64::from_le_bytes(*tag.first_chunk().ok_or("no tag")?) as usize;
                let message = self.messages.get_mut(ticket).ok_or("a message that nobody sent")?;
                if message.received.is_some() {
                    return Err(format!("message {ticket} is received twice"));
                }
                check(ticket, &message.what, &landed, &missing)?;
                message.received = Some(missing);
                Ok(())
            }
            Happened::Delivered { ticket, missing } => {
                let ticket = ticket.ok_or("a message ends twice")?;
                let message = &mut self.messages[ticket];
                if message.received.as_ref() != Some(&missing) {
                    let received = &message.received;
                    return Err(format!("message {ticket}: lacks {missing:?} here and {received:?} there"));
                }
                message.ended = Some((self.now, Ending::Delivered(missing)));
                Ok(())
            }
        }
    }

    fn flush(&mut self, index: usize, end: usize) -> Result<(), Defect> {
        let connection = &mut self.connections[index];
        let (peer, channel) = (connection.peers[end], connection.channels[end]);
        let Some(state) = &mut connection.ends[end] else { return Ok(()) };
        loop {
            match state.poll_packet(self.now, peer) {
                Err(what) => return Err(self.defect(what)),
                Ok(None) => return Ok(()),
                Ok(Some(packet)) => {
                    let bytes = packet.len() + LOWER_LAYERS;
                    let arrivals = self.channels[channel].enter(self.now, bytes, &mut self.rng);
                    for at in arrivals.into_iter().flatten() {
                        self.packets += 1;
                        self.flying.push(Reverse((at, self.packets, index, 1 - end, packet.clone())));
                    }
                }
            }
        }
    }

    fn defect(&self, what: String) -> Defect {
        Defect { seed: self.seed, at: self.now, what }
    }
}

/// Bytes that UDP, IP and Ethernet add.
const LOWER_LAYERS: usize = 46;
