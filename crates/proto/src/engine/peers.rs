//! The peers of this process, and how messages reach them.
//!
//! A message without payload goes through the queue in the peer's memory if there is one, all else over a stream. What a
//! queue has no room for waits in the backlog; what a socket does not take waits in the stream.

use std::collections::{BTreeSet, VecDeque};

use super::host::{Host, Payload, Ticket};
use super::message::{Kind, Message};
use super::metrics::Traffic;

/// More messages than any sleeper waits for.
const EVERYBODY: u32 = 1 << 16;

/// Another process, as this one knows it.
#[derive(Debug, Default)]
pub struct Peer {
    /// Its name; no other process has it.
    pub uid: String,
    /// The name of its host.
    pub host: String,
    /// It shares memory with this process.
    pub shared: bool,
    /// How many streams lead to it.
    pub streams: usize,
    /// Why it can no longer be reached.
    pub lost: Option<String>,
    /// What went to and fro.
    pub traffic: Traffic,
    /// Its memory is still mapped.
    pub(super) mapped: bool,
    /// Messages for which its queue had no room.
    backlog: VecDeque<Message>,
    /// Streams whose queue has not been flushed.
    unflushed: BTreeSet<usize>,
    /// Messages put since it was last woken. The sleeper knows how many are worth waking it.
    unannounced: u32,
    unannounced_reads: bool,
}

impl Peer {
    /// A process that was just met.
    pub fn new(uid: String, host: String, shared: bool, streams: usize) -> Peer {
        Peer { uid, host, shared, streams, mapped: shared, ..Peer::default() }
    }

    /// Puts what is queued for it into its memory, as far as there is room.
    fn push_backlog(&mut self, number: usize, host: &mut impl Host) {
        while let Some(message) = self.backlog.front() {
            if self.lost.is_some() || !host.put(number, message) {
                break;
            }
            match message.kind {
                Kind::Read => self.unannounced_reads = true,
                _ => self.unannounced += 1,
            }
            self.backlog.pop_front();
        }
    }

    fn announce(&mut self, number: usize, host: &mut impl Host) {
        self.push_backlog(number, host);
        let (messages, reads) =
            (std::mem::take(&mut self.unannounced), std::mem::take(&mut self.unannounced_reads));
        if !self.backlog.is_empty() && self.lost.is_none() {
            // Its reader may be waiting for something else, and would never make room.
            host.wake(number, EVERYBODY);
        } else if messages > 0 || reads {
            host.wake(number, messages);
        }
    }
}

/// All peers, by number.
#[derive(Default)]
pub struct Peers {
    all: Vec<Peer>,
    /// Payloads that have left.
    left: Vec<Ticket>,
}

impl Peers {
    /// Adds a process that was just met. Its number.
    pub fn add(&mut self, peer: Peer) -> usize {
        self.all.push(peer);
        self.all.len() - 1
    }

    /// The peer of that number; `None` for this rank itself.
    pub fn get(&self, number: usize) -> Option<&Peer> {
        self.all.get(number)
    }

    pub(super) fn get_mut(&mut self, number: usize) -> &mut Peer {
        &mut self.all[number]
    }

    /// It can no longer be reached.
    pub fn is_lost(&self, number: usize) -> bool {
        self.all.get(number).is_some_and(|p| p.lost.is_some())
    }

    /// How many there are, lost ones included.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is no peer.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Sends a message without payload: through shared memory if there is any, where none overtakes another.
    pub(super) fn signal(&mut self, to: usize, message: &Message, urgency: i32, host: &mut impl Host) {
        if !self.all[to].shared {
            return self.send_by_urgency(to, message, Payload::Nothing, Some(urgency), host);
        }
        let peer = &mut self.all[to];
        if peer.lost.is_some() {
            return;
        }
        peer.traffic.sent(message);
        peer.backlog.push_back(*message);
        peer.push_backlog(to, host);
    }

    /// Sends a message that keeps its place among those before and behind it.
    pub fn send(&mut self, to: usize, message: &Message, payload: Payload, host: &mut impl Host) {
        self.send_by_urgency(to, message, payload, None, host);
    }

    /// Sends a message over a stream, which its send and slice decide but for values while nothing is lost. A value leaves
    /// at once, or as soon as none of more urgency waits; all else with the next flush.
    pub(super) fn send_by_urgency(
        &mut self,
        to: usize,
        message: &Message,
        payload: Payload,
        urgency: Option<i32>,
        host: &mut impl Host,
    ) {
        let peer = &mut self.all[to];
        if peer.lost.is_some() || peer.streams == 0 {
            return;
        }
        let is_value = message.kind == Kind::Carried;
        let is_alone = is_value && !host.is_lossy(to, peer.traffic.bytes_out);
        let stream = message.stream(if is_alone { 1 } else { peer.streams });
        let at_once = matches!(payload, Payload::Memory(..));
        peer.traffic.sent(message);
        host.send(to, stream, message, payload, urgency);
        peer.unflushed.insert(stream);
        if at_once {
            self.flush_stream(to, stream, host);
        }
    }

    /// Sends a message with a text, whose length it announces.
    pub(super) fn send_text(&mut self, to: usize, message: &Message, text: Vec<u8>, host: &mut impl Host) {
        let message = Message { bytes: text.len() as u32, ..*message };
        self.send(to, &message, Payload::Text(text), host);
    }

    /// Goes on where a socket had been full, or sends what is queued.
    pub fn flush_stream(&mut self, to: usize, stream: usize, host: &mut impl Host) {
        self.all[to].unflushed.remove(&stream);
        self.left.extend(host.flush(to, stream));
    }

    /// Sends what has been queued. Returns the tickets of the payloads that have left since the last time.
    pub fn flush(&mut self, host: &mut impl Host) -> Vec<Ticket> {
        for (to, stream) in host.held_back() {
            self.all[to].unflushed.insert(stream);
        }
        for to in 0..self.all.len() {
            while let Some(&stream) = self.all[to].unflushed.first() {
                self.flush_stream(to, stream, host);
            }
        }
        std::mem::take(&mut self.left)
    }

    /// Takes all messages that lie in queues of shared memory.
    pub(super) fn take(&mut self, host: &mut impl Host, into: &mut Vec<(usize, Message)>) {
        for (number, _) in self.all.iter().enumerate().filter(|(_, p)| p.mapped) {
            while let Some(message) = host.take(number) {
                into.push((number, message));
            }
        }
    }

    /// Wakes the peers for whom something was put since the last time.
    pub(super) fn announce(&mut self, host: &mut impl Host) {
        self.all.iter_mut().enumerate().for_each(|(number, peer)| peer.announce(number, host));
    }

    /// Some peer's queue is full.
    pub(super) fn is_congested(&self) -> bool {
        self.all.iter().any(|p| !p.backlog.is_empty() && p.lost.is_none())
    }

    /// Some peers share memory with this process.
    pub fn has_neighbours(&self) -> bool {
        self.all.iter().any(|p| p.shared && p.lost.is_none())
    }
}
