//! What leads from one process to another: queues and claims in shared memory, and the kernel's sockets.

use std::collections::VecDeque;

use tweed_proto::engine::message::Message;
use tweed_proto::engine::urgency::UrgencyQueue;
use tweed_proto::engine::{Address, Lease, Payload, Ticket};

/// Messages that a queue in shared memory holds.
const QUEUE_SLOTS: usize = 6;

/// A stretch of a frame that the receiver's kernel has.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) message: Message,
    pub(super) bytes: Vec<u8>,
    pub(super) last: bool,
}

#[derive(Debug)]
struct Frame {
    message: Message,
    payload: Payload,
    written: u64,
}

impl Frame {
    fn len(&self) -> u64 {
        match &self.payload {
            Payload::Nothing => 0,
            Payload::Text(text) => text.len() as u64,
            Payload::Memory(_, bytes, _) => *bytes,
        }
    }

    /// It is a value of operation `run`.
    fn is_of(&self, run: u64) -> bool {
        matches!(self.payload, Payload::Memory(_, _, ticket) if ticket.run == run)
    }
}

/// One direction of a stream.
#[derive(Debug, Default)]
pub(super) struct Channel {
    queue: UrgencyQueue<Frame>,
    pub(super) pipe: VecDeque<Segment>,
    in_pipe: u64,
    capacity: u64,
    /// The kernel had no room; its writer hears when it has.
    full: bool,
    /// No more is written, and the reader comes to the end.
    pub(super) ended: bool,
    /// Whether nothing gets through.
    pub(super) cut: bool,
}

impl Channel {
    /// There is something to read, or the end.
    pub(super) fn is_readable(&self) -> bool {
        !self.cut && (!self.pipe.is_empty() || self.ended)
    }

    /// A writer that has found it full would be told.
    pub(super) fn is_writable_again(&self) -> bool {
        !self.cut && self.full && self.in_pipe < self.capacity
    }

    /// Puts a message at the end of what is to be written, or before what it overtakes.
    pub(super) fn send(&mut self, message: &Message, payload: Payload, urgency: Option<i32>) {
        self.queue.push(Frame { message: *message, payload, written: 0 }, urgency);
    }

    /// What waits of operation `run` becomes at least so urgent.
    pub(super) fn lift(&mut self, run: u64, urgency: i32) {
        self.queue.lift(|frame| frame.is_of(run), urgency);
    }

    /// Writes a stretch of the first frame: `take` says how much more than a byte of the room is used, `memory` reads.
    pub(super) fn write_some(
        &mut self,
        mut take: impl FnMut(u64) -> u64,
        memory: impl Fn(Address, u64) -> Vec<u8>,
    ) -> Written {
        self.full = false;
        let Some(waiting) = self.queue.front_mut().filter(|_| !self.ended) else { return Written::Blocked };
        let frame = &mut waiting.frame;
        let room = self.capacity.saturating_sub(self.in_pipe);
        let wanted = frame.len() - frame.written;
        let step = wanted.min(room.min(1 + take(room)));
        // A frame without a payload takes room for its header.
        if (wanted > 0 && step == 0) || (wanted == 0 && room == 0) {
            self.full = true;
            return Written::Blocked;
        }
        let start = frame.written;
        frame.written += step;
        let last = frame.written == frame.len();
        let (bytes, ticket) = match &frame.payload {
            Payload::Nothing => (Vec::new(), None),
            Payload::Text(text) => (text[start as usize..(start + step) as usize].to_vec(), None),
            Payload::Memory(at, _, ticket) => (memory(at.plus(start), step), Some(*ticket)),
        };
        let segment = Segment { message: frame.message, bytes, last };
        match last {
            true => drop(self.queue.pop()),
            false => waiting.fix(),
        }
        self.in_pipe += cost(&segment);
        self.pipe.push_back(segment);
        Written::Some(ticket.filter(|_| last))
    }

    pub(super) fn queued_bytes(&self) -> u64 {
        self.queue.iter().map(|frame| frame.len() - frame.written).sum()
    }

    /// The tickets of payloads that never leave.
    pub(super) fn close(&mut self) -> Vec<Ticket> {
        let ticket = |frame: Frame| match frame.payload {
            Payload::Memory(_, _, ticket) => Some(ticket),
            Payload::Nothing | Payload::Text(_) => None,
        };
        std::iter::from_fn(|| self.queue.pop()).filter_map(ticket).collect()
    }

    /// Reads no memory of an operation any more: what has begun goes on from a copy.
    pub(super) fn detach(&mut self, run: u64, memory: impl Fn(Address, u64) -> Vec<u8>) {
        self.queue.retain_mut(|frame| {
            if let Payload::Memory(at, bytes, _) = frame.payload {
                if frame.is_of(run) && frame.written > 0 {
                    frame.payload = Payload::Text(memory(at, bytes));
                }
            }
            !frame.is_of(run)
        });
    }

    pub(super) fn take(&mut self) -> Option<Segment> {
        let segment = self.pipe.pop_front()?;
        self.in_pipe -= cost(&segment);
        Some(segment)
    }
}

/// What became of an attempt to write.
pub(super) enum Written {
    /// There is nothing to write, or no room.
    Blocked,
    /// A stretch; the ticket of a payload that has left with it.
    Some(Option<Ticket>),
}

fn cost(segment: &Segment) -> u64 {
    segment.bytes.len() as u64 + 48
}

/// One end of a link.
#[derive(Debug, Default)]
pub(super) struct End {
    pub(super) process: usize,
    /// The number that this end's engine knows the other end by; `None` until it has added it.
    pub(super) peer: Option<usize>,
    /// The streams that leave this end.
    pub(super) streams: Vec<Channel>,
    /// What lies in this end's memory for it to take.
    pub(super) queue: VecDeque<Message>,
    /// What of the other end's memory it is touching.
    pub(super) claim: Option<Lease>,
    /// It maps the other end's memory.
    pub(super) mapped: bool,
    /// Its pidfd of the other end can be read.
    pub(super) end_seen: bool,
}

impl End {
    /// Puts a message where this end takes it from; `false` if there is no room.
    pub(super) fn put(&mut self, message: &Message) -> bool {
        let fits = self.queue.len() < QUEUE_SLOTS;
        if fits {
            self.queue.push_back(*message);
        }
        fits
    }
}

/// Two processes that have met. Those that lose each other and meet again do so over a new one.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) ends: [End; 2],
    /// Whether the two share memory.
    pub(super) near: bool,
    /// The call that has made it.
    pub(super) attempt: u64,
}

impl Link {
    pub(super) fn new(
        processes: [usize; 2],
        near: bool,
        attempt: u64,
        (streams, capacity): (usize, u64),
    ) -> Link {
        let streams = if near { 1 } else { streams };
        let channel = |_| Channel { capacity, ..Channel::default() };
        let streams = || (0..streams).map(channel).collect();
        let end = |process| End { process, streams: streams(), mapped: near, ..End::default() };
        Link { ends: processes.map(end), near, attempt }
    }

    /// Which end is that process's.
    pub(super) fn side(&self, process: usize) -> usize {
        usize::from(self.ends[1].process == process)
    }

    /// All streams, both ways.
    pub(super) fn streams_mut(&mut self) -> impl Iterator<Item = &mut Channel> {
        self.ends.iter_mut().flat_map(|end| &mut end.streams)
    }

    /// Nothing is on its way.
    pub(super) fn is_drained(&self) -> bool {
        let drained =
            |c: &Channel| c.ended || c.cut || (c.queue.iter().next().is_none() && c.pipe.is_empty());
        self.ends.iter().flat_map(|end| &end.streams).all(drained)
    }
}
