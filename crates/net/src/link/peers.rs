//! The peers of this process, and how messages reach them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use crate::link::buffer_pool::BufferPool;
use crate::link::message::{Kind, Message};
use crate::link::shared_memory::Mapping;
use crate::link::shm_queue::ShmQueue;
use crate::link::stats::Traffic;
use crate::link::stream::{Payload, Stream, Ticket};
use crate::link::wakeup::Wakeup;

/// What followed a message over a wire.
#[derive(Default)]
pub(crate) struct Load {
    pub(crate) bytes: Vec<u8>,
    /// What of it did not arrive, and is zero.
    pub(crate) missing: Vec<Range<u32>>,
}

impl From<Vec<u8>> for Load {
    fn from(bytes: Vec<u8>) -> Load {
        Load { bytes, missing: Vec::new() }
    }
}

/// The memory of a peer on this host, and the two queues between us.
pub(crate) struct Shared {
    pub(crate) memory: Mapping,
    /// In the peer's memory: ours to put into.
    pub(crate) outgoing: *mut ShmQueue,
    /// In our memory: ours to take from.
    pub(crate) incoming: *mut ShmQueue,
    /// In the peer's memory.
    pub(crate) bell: *const Wakeup,
}

// SAFETY: the queues are used under the engine's lock only, one side each; the bell is atomic.
unsafe impl Send for Shared {}

/// Another process.
pub(crate) struct Peer {
    pub(crate) uid: String,
    pub(crate) host: String,
    pub(crate) shared: Option<Shared>,
    pub(crate) streams: Vec<Arc<Stream>>,
    /// Why it can no longer be reached.
    pub(crate) lost: Option<String>,
    /// Messages for which its queue had no room.
    backlog: VecDeque<Message>,
    pub(crate) traffic: Traffic,
    /// Streams whose queue has not been flushed.
    unflushed: BTreeSet<usize>,
    /// Signals put into its memory since its bell was last rung. The sleeper says how many are worth waking it.
    unrung: u32,
    unrung_reads: bool,
}

impl Peer {
    pub(crate) fn new(uid: String, host: String, shared: Option<Shared>, streams: Vec<Arc<Stream>>) -> Peer {
        Peer {
            uid,
            host,
            shared,
            streams,
            lost: None,
            backlog: VecDeque::new(),
            traffic: Traffic::default(),
            unflushed: BTreeSet::new(),
            unrung: 0,
            unrung_reads: false,
        }
    }

    /// Puts what is queued for it into its memory, as far as there is room.
    fn push_backlog(&mut self) {
        let Some(shared) = &self.shared else { return };
        while let Some(message) = self.backlog.front() {
            // SAFETY: the queue is mapped while `shared` lives, and the engine's lock makes us the only putter.
            if !unsafe { ShmQueue::put(shared.outgoing, message) } {
                break;
            }
            match message.kind {
                Kind::Read => self.unrung_reads = true,
                _ => self.unrung += 1,
            }
            self.backlog.pop_front();
        }
    }

    fn ring_bell(&mut self) {
        let (signals, reads) = (std::mem::take(&mut self.unrung), std::mem::take(&mut self.unrung_reads));
        // SAFETY: the bell lies in the peer's memory, which is mapped while `shared` lives.
        let Some(bell) = self.shared.as_ref().map(|s| unsafe { &*s.bell }) else { return };
        if signals > 0 {
            bell.ring(signals);
        } else if reads {
            bell.ring_for_read();
        }
    }
}

/// What has come in over a wire and not been used yet.
enum Landed {
    Kept(Load),
    /// It lies where it belongs in the end.
    Placed(*mut u8, u64),
}

// SAFETY: the address is used under the engine's lock only, while its operation lasts.
unsafe impl Send for Landed {}

/// All peers, and what has come in over wires.
#[derive(Default)]
pub(crate) struct Links {
    pub(crate) peers: Vec<Peer>,
    /// By number, with the operation it is for.
    landed: BTreeMap<u64, (u64, Landed)>,
    next_landing: u64,
    pub(crate) spare: Arc<BufferPool>,
    /// Payloads that have left.
    left: Vec<Ticket>,
}

impl Links {
    /// Sends a message without payload: through shared memory if there is any.
    pub(crate) fn signal(&mut self, to: usize, message: &Message) {
        if self.peers[to].shared.is_none() {
            return self.carry(to, message, Payload::Nothing);
        }
        let peer = &mut self.peers[to];
        if peer.lost.is_some() {
            return;
        }
        peer.traffic.sent(message);
        peer.backlog.push_back(*message);
        peer.push_backlog();
    }

    /// Sends a message over a stream; the slice says which. A value leaves at once, all else with the next flush.
    pub(crate) fn carry(&mut self, to: usize, message: &Message, payload: Payload) {
        let peer = &mut self.peers[to];
        if peer.lost.is_some() || peer.streams.is_empty() {
            return;
        }
        let index = message.slice as usize % peer.streams.len();
        let at_once = matches!(payload, Payload::Memory(..));
        peer.traffic.sent(message);
        peer.streams[index].queue(message, payload);
        peer.unflushed.insert(index);
        if at_once {
            self.flush_stream(to, index);
        }
    }

    /// Goes on where a socket had been full, or sends what is queued.
    pub(crate) fn flush_stream(&mut self, to: usize, index: usize) {
        let peer = &mut self.peers[to];
        peer.unflushed.remove(&index);
        match peer.streams[index].flush() {
            Ok(left) => self.left.extend(left),
            // The watcher sees the same error and reports the peer.
            Err(_) => peer.streams[index].socket.shut_down(),
        }
    }

    /// Sends what has been queued. Returns the tickets of the payloads that have left since the last time.
    pub(crate) fn flush(&mut self) -> Vec<Ticket> {
        for to in 0..self.peers.len() {
            while let Some(&index) = self.peers[to].unflushed.first() {
                self.flush_stream(to, index);
            }
        }
        std::mem::take(&mut self.left)
    }

    /// Takes all messages that lie in queues of shared memory.
    pub(crate) fn take(&mut self, mut on_message: impl FnMut(usize, Message)) -> bool {
        let mut any = false;
        for (index, peer) in self.peers.iter().enumerate() {
            let Some(shared) = &peer.shared else { continue };
            // SAFETY: the queue lies in our memory, and the engine's lock makes us the only taker.
            while let Some(message) = unsafe { ShmQueue::take(shared.incoming) } {
                any = true;
                on_message(index, message);
            }
        }
        any
    }

    /// Tells peers of what was put into their memory since the last time.
    pub(crate) fn ring_bells(&mut self) {
        for peer in &mut self.peers {
            peer.push_backlog();
            peer.ring_bell();
        }
    }

    /// Some peers share memory with this process.
    pub(crate) fn has_neighbours(&self) -> bool {
        self.peers.iter().any(|p| p.shared.is_some() && p.lost.is_none())
    }

    /// Some peer's queue is full.
    pub(crate) fn is_congested(&self) -> bool {
        self.peers.iter().any(|p| !p.backlog.is_empty() && p.lost.is_none())
    }

    /// Keeps what came in over a wire; the number stands for it until [`Links::drop_landed`].
    pub(crate) fn land(&mut self, run: u64, load: Load) -> u64 {
        self.note_landing(run, Landed::Kept(load))
    }

    /// As [`Links::land`], for what was written where it belongs.
    pub(crate) fn land_in_place(&mut self, run: u64, address: *mut u8, bytes: u64) -> u64 {
        self.note_landing(run, Landed::Placed(address, bytes))
    }

    fn note_landing(&mut self, run: u64, landed: Landed) -> u64 {
        self.next_landing += 1;
        self.landed.insert(self.next_landing, (run, landed));
        self.next_landing
    }

    /// Forgets all that came in for an operation that has failed.
    pub(crate) fn drop_all_landed(&mut self, run: u64) {
        self.landed.retain(|_, &mut (of, _)| of != run);
    }

    /// Forgets what came in over a wire, once it is used.
    pub(crate) fn drop_landed(&mut self, from: usize, at: u64) {
        if self.peers[from].shared.is_some() {
            return;
        }
        if let Some((_, Landed::Kept(load))) = self.landed.remove(&at) {
            self.spare.give(load.bytes);
        }
    }

    /// The address of a value that `from` has told of; `None` if it does not lie in its memory.
    pub(crate) fn resolve(&self, from: usize, at: u64, bytes: u64) -> Option<*mut u8> {
        match &self.peers[from].shared {
            Some(shared) => shared.memory.at(at, bytes),
            None => {
                let (address, length) = match &self.landed.get(&at)?.1 {
                    Landed::Kept(load) => (load.bytes.as_ptr().cast_mut(), load.bytes.len() as u64),
                    Landed::Placed(address, length) => (*address, *length),
                };
                (length == bytes).then_some(address)
            }
        }
    }

    /// What is missing of a value that `from` has sent.
    pub(crate) fn missing(&self, from: usize, at: u64) -> &[Range<u32>] {
        match self.landed.get(&at) {
            Some((_, Landed::Kept(load))) if self.peers[from].shared.is_none() => &load.missing,
            _ => &[],
        }
    }

    /// Something lies in a queue of shared memory.
    pub(crate) fn has_messages(&self) -> bool {
        let mut shared = self.peers.iter().filter_map(|p| p.shared.as_ref());
        // SAFETY: the queue lies in our mapped memory.
        shared.any(|s| !unsafe { ShmQueue::is_empty(s.incoming) })
    }
}
