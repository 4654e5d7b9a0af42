//! What processes have in common: memory, queues and wake-up words of neighbours, and the kernel's sockets.
//!
//! Everything here happens at once; which thread does it when is for the scheduler. What a `write` takes is drawn.

use std::collections::VecDeque;

use tweed_proto::engine::message::Message;
use tweed_proto::engine::{Address, Event, Lease, Payload, Ticket, Time};

use super::scenario::Sabotage;
use crate::rng::Rng;

/// A thread of a process, by its place among them.
pub(super) type ThreadId = usize;
/// A call of a process, by its place among them.
pub(super) type CallId = usize;

/// Messages that a queue in shared memory holds.
const QUEUE_SLOTS: usize = 6;
/// Bytes of a process's memory; the first half is shared.
pub(super) const MEMORY_BYTES: u64 = 4 << 20;
const SHARED_BYTES: u64 = MEMORY_BYTES / 2;
/// What freed memory holds.
const POISON: u8 = 0xa5;

/// The sleepers of a wake-up word, as `tweed-net` has it; loom has looked at the protocol itself.
#[derive(Debug, Default)]
pub(super) struct Wakeup {
    pub(super) count: u32,
    pub(super) attended: bool,
    /// The count at which the waiter wakes, while it sleeps, and whether acknowledgements wake it.
    pub(super) waiter: Option<(u32, bool)>,
    /// The leader sleeps, and whether acknowledgements wake it.
    pub(super) leader: Option<bool>,
    /// Whom the last rings have woken.
    pub(super) woken: [bool; 2],
}

impl Wakeup {
    pub(super) fn ring(&mut self, signals: u32) {
        self.count = self.count.wrapping_add(signals);
        match self.waiter {
            Some((at, _)) if self.count.wrapping_sub(at) as i32 >= 0 => self.woken[0] = true,
            None if !self.attended && self.leader.is_some() => self.woken[1] = true,
            _ => {}
        }
    }

    pub(super) fn ring_for_read(&mut self) {
        let wanted = match self.attended {
            true => self.waiter.is_some_and(|(_, reads)| reads),
            false => self.leader == Some(true),
        };
        if wanted {
            self.ring(1);
        }
    }

    pub(super) fn ring_all(&mut self) {
        self.count = self.count.wrapping_add(1 << 16);
        self.woken = [self.waiter.is_some(), self.leader.is_some()];
    }
}

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
}

/// One direction of a stream.
#[derive(Debug, Default)]
pub(super) struct Channel {
    queue: VecDeque<Frame>,
    pub(super) pipe: VecDeque<Segment>,
    in_pipe: u64,
    capacity: u64,
    /// The kernel had no room; its writer hears when it has.
    full: bool,
    /// No more is written, and the reader comes to the end.
    pub(super) ended: bool,
    /// Nothing gets through.
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

    pub(super) fn take(&mut self) -> Option<Segment> {
        let segment = self.pipe.pop_front()?;
        self.in_pipe -= cost(&segment);
        Some(segment)
    }

    fn holds_frames(&self) -> bool {
        !self.queue.is_empty()
    }
}

fn cost(segment: &Segment) -> u64 {
    segment.bytes.len() as u64 + 48
}

/// A stretch of shared memory, and how much of it is used; 0 if it is free.
#[derive(Debug)]
struct Block {
    at: u64,
    bytes: u64,
    used: u64,
}

/// What one process shows to the others and to the kernel.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) memory: Vec<u8>,
    blocks: Vec<Block>,
    user_top: u64,
    /// By the other process.
    pub(super) queues: Vec<VecDeque<Message>>,
    pub(super) claims: Vec<Option<Lease>>,
    leases: Vec<u32>,
    pub(super) wakeup: Wakeup,
    pub(super) inbox: Vec<Event<CallId>>,
    /// Ranges that were taken away from peers.
    withdrawn: Vec<(u64, u64)>,
    /// Peers whose memory is mapped.
    pub(super) mapped: Vec<bool>,
    pub(super) alive: bool,
    /// A pidfd of it can be read by that process.
    pub(super) end_seen: Vec<bool>,
}

/// See the module's documentation.
pub(super) struct Kernel {
    pub(super) processes: Vec<Process>,
    /// By sender, receiver and stream.
    channels: Vec<Vec<Vec<Channel>>>,
    /// Two of them share memory.
    pub(super) neighbours: Vec<Vec<bool>>,
    pub(super) sabotage: Option<Sabotage>,
    pub(super) rng: Rng,
}

impl Kernel {
    pub(super) fn new(
        hosts: &[u32],
        streams: usize,
        capacity: u64,
        sabotage: Option<Sabotage>,
        rng: Rng,
    ) -> Kernel {
        let n = hosts.len();
        let process = |_| Process {
            memory: vec![POISON; MEMORY_BYTES as usize],
            blocks: Vec::new(),
            user_top: SHARED_BYTES,
            queues: (0..n).map(|_| VecDeque::new()).collect(),
            claims: vec![None; n],
            leases: vec![0; 64],
            wakeup: Wakeup::default(),
            inbox: Vec::new(),
            withdrawn: Vec::new(),
            mapped: vec![true; n],
            alive: true,
            end_seen: vec![false; n],
        };
        let neighbours: Vec<Vec<bool>> =
            (0..n).map(|a| (0..n).map(|b| a != b && hosts[a] == hosts[b]).collect()).collect();
        let count = |a: usize, b: usize| if neighbours[a][b] { 1 } else { streams };
        let channel = |_| Channel { capacity, ..Channel::default() };
        let channels =
            (0..n).map(|a| (0..n).map(|b| (0..count(a, b)).map(channel).collect()).collect()).collect();
        Kernel { processes: (0..n).map(process).collect(), channels, neighbours, sabotage, rng }
    }

    pub(super) fn streams(&self, a: usize, b: usize) -> usize {
        self.channels[a][b].len()
    }

    pub(super) fn channel(&self, from: usize, to: usize, stream: usize) -> &Channel {
        &self.channels[from][to][stream]
    }

    pub(super) fn channel_mut(&mut self, from: usize, to: usize, stream: usize) -> &mut Channel {
        &mut self.channels[from][to][stream]
    }

    /// Both directions of all streams between two processes, as `(from, to)`.
    pub(super) fn each_channel(&mut self, a: usize, b: usize, change: impl Fn(&mut Channel)) {
        for (from, to) in [(a, b), (b, a)] {
            self.channels[from][to].iter_mut().for_each(&change);
        }
    }

    // Memory.

    pub(super) fn address(process: usize, offset: u64) -> Address {
        Address((process as u64 + 1) << 32 | offset)
    }

    /// The address lies in the memory of a simulated process.
    pub(super) fn owns(at: Address) -> bool {
        (1..=16).contains(&(at.0 >> 32))
    }

    fn place(at: Address) -> (usize, u64) {
        ((at.0 >> 32) as usize - 1, at.0 & 0xffff_ffff)
    }

    pub(super) fn read(&self, at: Address, bytes: u64) -> Vec<u8> {
        let (process, offset) = Kernel::place(at);
        self.processes[process].memory[offset as usize..(offset + bytes) as usize].to_vec()
    }

    /// Writes on behalf of a process; what was withdrawn from it goes nowhere.
    pub(super) fn write(&mut self, by: usize, at: Address, bytes: &[u8]) {
        let (process, offset) = Kernel::place(at);
        let owner = &mut self.processes[process];
        let end = offset + bytes.len() as u64;
        let gone = by != process && owner.withdrawn.iter().any(|&(from, to)| offset < to && from < end);
        if !gone {
            owner.memory[offset as usize..end as usize].copy_from_slice(bytes);
        }
    }

    /// A block of shared memory; freed ones first, the latest of them before others.
    pub(super) fn reserve(&mut self, process: usize, bytes: u64) -> Option<u64> {
        let bytes = bytes.next_multiple_of(64);
        let blocks = &mut self.processes[process].blocks;
        if let Some(free) = blocks.iter_mut().rev().find(|block| block.used == 0 && block.bytes >= bytes) {
            free.used = bytes;
            return Some(free.at);
        }
        let top = blocks.iter().map(|block| block.at + block.bytes).max().unwrap_or(0);
        (top + bytes <= SHARED_BYTES).then(|| {
            blocks.push(Block { at: top, bytes, used: bytes });
            top
        })
    }

    pub(super) fn release(&mut self, process: usize, offset: u64) {
        let owner = &mut self.processes[process];
        let block = owner.blocks.iter_mut().find(|block| block.at == offset && block.used > 0);
        let block = block.expect("a block is given back once");
        block.used = 0;
        let range = block.at as usize..(block.at + block.bytes) as usize;
        owner.memory[range].fill(POISON);
    }

    /// Bytes of shared memory that are taken.
    pub(super) fn reserved(&self, process: usize) -> u64 {
        self.processes[process].blocks.iter().map(|block| block.used).sum()
    }

    /// Memory of the program: shared with neighbours, or ordinary.
    pub(super) fn user_memory(&mut self, process: usize, bytes: u64, shared: bool) -> u64 {
        if shared {
            return self.reserve(process, bytes).expect("scenarios are small");
        }
        let top = &mut self.processes[process].user_top;
        let at = *top;
        *top += bytes.next_multiple_of(64);
        assert!(*top <= MEMORY_BYTES, "scenarios are small");
        at
    }

    pub(super) fn shared_offset(&self, process: usize, at: Address, bytes: u64) -> Option<u64> {
        if at.is_null() {
            return None;
        }
        let (owner, offset) = Kernel::place(at);
        let withdrawn = |&(from, to): &(u64, u64)| offset < to && from < offset + bytes;
        let gone = self.processes[owner].withdrawn.iter().any(withdrawn);
        (owner == process && offset + bytes <= SHARED_BYTES && !gone).then_some(offset)
    }

    pub(super) fn withdraw(&mut self, process: usize, at: Address, bytes: u64) {
        let (_, offset) = Kernel::place(at);
        self.processes[process].withdrawn.push((offset, offset + bytes));
    }

    // Leases.

    pub(super) fn set_lease(&mut self, process: usize, slot: u32, generation: u32) {
        self.processes[process].leases[slot as usize] = generation;
    }

    pub(super) fn is_valid(&self, owner: usize, lease: Lease) -> bool {
        self.processes[owner].leases[lease.slot as usize] == lease.generation
    }

    /// All leases are revoked and nothing is claimed.
    pub(super) fn holds_leases(&self, process: usize) -> bool {
        self.processes[process].leases.iter().any(|&generation| generation != 0)
    }

    // Shared queues.

    pub(super) fn put(&mut self, from: usize, to: usize, message: &Message) -> bool {
        let queue = &mut self.processes[to].queues[from];
        if queue.len() == QUEUE_SLOTS {
            return false;
        }
        queue.push_back(*message);
        true
    }

    // Streams.

    pub(super) fn send(
        &mut self,
        from: usize,
        to: usize,
        stream: usize,
        message: &Message,
        payload: Payload,
    ) {
        let frame = Frame { message: *message, payload, written: 0 };
        self.channels[from][to][stream].queue.push_back(frame);
    }

    /// Writes what the kernel takes, which may be less than it has room for.
    pub(super) fn flush(&mut self, from: usize, to: usize, stream: usize) -> Vec<Ticket> {
        let mut left = Vec::new();
        loop {
            let channel = &mut self.channels[from][to][stream];
            channel.full = false;
            if channel.ended || !self.processes[from].alive {
                channel.queue.clear();
                return left;
            }
            let Some(frame) = channel.queue.front() else { return left };
            let room = channel.capacity.saturating_sub(channel.in_pipe);
            let wanted = frame.len() - frame.written;
            let step = wanted.min(room.min(1 + self.rng.up_to(room)));
            if (wanted > 0 && step == 0) || (wanted == 0 && room == 0) {
                channel.full = true;
                return left;
            }
            left.extend(self.write_some(from, to, stream, step));
        }
    }

    fn write_some(&mut self, from: usize, to: usize, stream: usize, step: u64) -> Option<Ticket> {
        let channel = &mut self.channels[from][to][stream];
        let frame = channel.queue.front_mut().expect("just seen");
        let (start, end) = (frame.written, frame.written + step);
        frame.written = end;
        let (message, last) = (frame.message, end == frame.len());
        let (bytes, ticket) = match &frame.payload {
            Payload::Nothing => (Vec::new(), None),
            Payload::Text(text) => (text[start as usize..end as usize].to_vec(), None),
            Payload::Memory(at, _, ticket) => {
                let (owner, offset) = Kernel::place(at.plus(start));
                let range = offset as usize..(offset + step) as usize;
                (self.processes[owner].memory[range].to_vec(), Some(*ticket))
            }
        };
        let segment = Segment { message, bytes, last };
        channel.in_pipe += cost(&segment);
        channel.pipe.push_back(segment);
        if last {
            channel.queue.pop_front();
        }
        ticket.filter(|_| last)
    }

    pub(super) fn queued_bytes(&self, from: usize, to: usize) -> u64 {
        self.channels[from][to].iter().flat_map(|c| &c.queue).map(|frame| frame.len() - frame.written).sum()
    }

    /// Reads no memory of an operation any more: what has begun goes on from a copy.
    pub(super) fn detach(&mut self, process: usize, run: u64) {
        let Kernel { channels, processes, .. } = self;
        let of_run = |frame: &Frame| matches!(frame.payload, Payload::Memory(_, _, t) if t.run == run);
        for channel in channels[process].iter_mut().flatten() {
            channel.queue.retain(|frame| frame.written > 0 || !of_run(frame));
            for frame in channel.queue.iter_mut().filter(|frame| of_run(frame)) {
                if let Payload::Memory(at, bytes, _) = frame.payload {
                    let (owner, offset) = Kernel::place(at);
                    let range = offset as usize..(offset + bytes) as usize;
                    frame.payload = Payload::Text(processes[owner].memory[range].to_vec());
                }
            }
        }
    }

    /// Nothing waits to be sent between two live processes.
    pub(super) fn is_drained(&self, from: usize, to: usize) -> bool {
        self.channels[from][to].iter().all(|c| c.ended || c.cut || (!c.holds_frames() && c.pipe.is_empty()))
    }
}

/// The time at which something that sleeps until `until` wakes.
pub(super) fn earlier(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    a.into_iter().chain(b).min()
}
