//! What processes have in common: memory, wake-up words, and their links.
//!
//! Everything here happens at once; which thread does it when is for the scheduler. What a `write` takes is drawn.

use std::collections::BTreeSet;

use tweed_proto::engine::{Address, Event, Lease, Ticket};

use super::link::{End, Link, Written};
use super::locks::LockOrder;
use super::scenario::{Sabotage, Scenario};
use tweed_rng::Rng;

/// A thread of a process, by its place among them.
pub(super) type ThreadId = usize;
/// A call of a process, by its place among them.
pub(super) type CallId = usize;

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
            // A waiter that is there but awake looks at the count before it sleeps.
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

/// A stretch of shared memory, and how much of it is used; 0 if it is free.
#[derive(Debug)]
struct Block {
    at: u64,
    bytes: u64,
    used: u64,
}

/// What one process shows to the others and to the kernel.
#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) memory: Vec<u8>,
    blocks: Vec<Block>,
    user_top: u64,
    /// The links to its peers, by the number that its engine knows them by.
    pub(super) peers: Vec<usize>,
    leases: Vec<u32>,
    pub(super) wakeup: Wakeup,
    pub(super) inbox: Vec<Event<CallId>>,
    /// Ranges that were taken away from peers.
    withdrawn: Vec<(u64, u64)>,
    /// Streams that are to be flushed once the engine's lock is given back.
    pub(super) unsealed: BTreeSet<(usize, usize)>,
    pub(super) locks: LockOrder,
    pub(super) alive: bool,
}

pub(super) struct Kernel {
    pub(super) processes: Vec<Process>,
    pub(super) links: Vec<Link>,
    /// The host of each process.
    hosts: Vec<u32>,
    /// Streams between hosts, and how much the kernel keeps of each.
    sockets: (usize, u64),
    /// Links between hosts are sealed.
    sealed: bool,
    pub(super) sabotage: Option<Sabotage>,
    rng: Rng,
}

impl Kernel {
    pub(super) fn new(scenario: &Scenario, sabotage: Option<Sabotage>, rng: Rng) -> Kernel {
        let Scenario { hosts, streams, capacity, sealed, .. } = scenario;
        let process = |_| Process {
            memory: vec![POISON; MEMORY_BYTES as usize],
            user_top: SHARED_BYTES,
            leases: vec![0; 64],
            alive: true,
            ..Process::default()
        };
        let (processes, sockets) = (hosts.iter().map(process).collect(), (*streams, *capacity));
        Kernel { processes, links: Vec::new(), hosts: hosts.clone(), sockets, sealed: *sealed, sabotage, rng }
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
        read(&self.processes, at, bytes)
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

    // Links.

    /// Both have met by a call; each end's engine is told of it by a thread of its own.
    pub(super) fn connect(&mut self, processes: [usize; 2], attempt: u64) -> usize {
        let near = self.hosts[processes[0]] == self.hosts[processes[1]];
        self.links.push(Link::new(processes, near, attempt, self.sockets));
        self.links.len() - 1
    }

    /// The engine of `me` knows the other end of that link under the next number, which is returned.
    pub(super) fn add_peer(&mut self, me: usize, link: usize) -> usize {
        let side = self.links[link].side(me);
        let peers = &mut self.processes[me].peers;
        peers.push(link);
        self.links[link].ends[side].peer = Some(peers.len() - 1);
        peers.len() - 1
    }

    /// A link and which end of it is that of `me`.
    fn place_of(&self, me: usize, peer: usize) -> (usize, usize) {
        let link = self.processes[me].peers[peer];
        (link, self.links[link].side(me))
    }

    /// The end of `me` of its link to `peer`.
    pub(super) fn here(&self, me: usize, peer: usize) -> &End {
        let (link, side) = self.place_of(me, peer);
        &self.links[link].ends[side]
    }

    pub(super) fn here_mut(&mut self, me: usize, peer: usize) -> &mut End {
        let (link, side) = self.place_of(me, peer);
        &mut self.links[link].ends[side]
    }

    /// The other end of the link.
    pub(super) fn there(&self, me: usize, peer: usize) -> &End {
        let (link, side) = self.place_of(me, peer);
        &self.links[link].ends[1 - side]
    }

    pub(super) fn there_mut(&mut self, me: usize, peer: usize) -> &mut End {
        let (link, side) = self.place_of(me, peer);
        &mut self.links[link].ends[1 - side]
    }

    /// Shuts all streams down, both ways.
    pub(super) fn shut_down(&mut self, me: usize, peer: usize) {
        let (link, _) = self.place_of(me, peer);
        self.links[link].streams_mut().for_each(|stream| stream.ended = true);
    }

    /// What goes over it is sealed.
    pub(super) fn is_sealed(&self, me: usize, peer: usize) -> bool {
        self.sealed && !self.links[self.processes[me].peers[peer]].near
    }

    /// Writes what the kernel takes, which may be less than it has room for.
    pub(super) fn flush(&mut self, me: usize, peer: usize, stream: usize) -> Vec<Ticket> {
        let (link, side) = self.place_of(me, peer);
        let mut left = Vec::new();
        loop {
            let Kernel { links, processes, rng, .. } = self;
            let channel = &mut links[link].ends[side].streams[stream];
            match channel.write_some(|room| rng.below(room), |at, bytes| read(processes, at, bytes)) {
                Written::Blocked => return left,
                Written::Some(ticket) => left.extend(ticket),
            }
        }
    }

    /// What waits of an operation becomes at least so urgent.
    pub(super) fn lift(&mut self, process: usize, run: u64, urgency: i32) {
        let ends = self.links.iter_mut().flat_map(|link| &mut link.ends);
        let streams = ends.filter(|end| end.process == process).flat_map(|end| &mut end.streams);
        streams.for_each(|stream| stream.lift(run, urgency));
    }

    /// Reads no memory of an operation any more: what has begun goes on from a copy.
    pub(super) fn detach(&mut self, process: usize, run: u64) {
        let Kernel { links, processes, .. } = self;
        let memory = |at: Address, bytes: u64| read(processes, at, bytes);
        for end in links.iter_mut().flat_map(|link| &mut link.ends).filter(|end| end.process == process) {
            end.streams.iter_mut().for_each(|stream| stream.detach(run, memory));
        }
    }
}

fn read(processes: &[Process], at: Address, bytes: u64) -> Vec<u8> {
    let (owner, offset) = Kernel::place(at);
    processes[owner].memory[offset as usize..(offset + bytes) as usize].to_vec()
}
