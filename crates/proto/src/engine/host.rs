//! What the engine needs of its process: everything that it cannot decide by itself stands behind this one trait.

use std::time::Duration;

use tweed_schedule::Rank;

use super::message::Message;
use super::{Event, GroupNumber};
use crate::late::{Activity, RankStatus};
use crate::ltp::Outgoing;
use crate::trace::Trace;

/// Time since the process's engine was started.
pub type Time = Duration;

/// An address in the process, in its own memory or in a mapped part of a peer's. The engine only calculates with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub u64);

impl Address {
    /// The address that leads nowhere.
    pub const NULL: Address = Address(0);

    /// Whether the address leads nowhere.
    pub fn is_null(self) -> bool {
        self == Address::NULL
    }

    /// So many bytes further on.
    #[must_use]
    pub fn plus(self, bytes: u64) -> Address {
        Address(self.0.wrapping_add(bytes))
    }

    /// The address as a pointer, for those who may use it.
    pub fn as_ptr(self) -> *mut u8 {
        self.0 as *mut u8
    }
}

impl<T> From<*mut T> for Address {
    fn from(pointer: *mut T) -> Address {
        Address(pointer as u64)
    }
}

impl<T> From<*const T> for Address {
    fn from(pointer: *const T) -> Address {
        Address(pointer as u64)
    }
}

/// A permission to touch what an operation has exposed in shared memory: it holds while the owner's word number
/// `slot` holds `generation`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lease {
    /// Which word of the owner's table.
    pub slot: u32,
    /// What it holds until the owner revokes the lease. Never 0.
    pub generation: u32,
}

/// Which transmission of which operation a payload belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The operation's number in the engine.
    pub run: u64,
    /// Index of the send in the schedule.
    pub send: u32,
    /// The output that leaves.
    pub output: u32,
    /// The number of the slice.
    pub slice: u32,
    /// Rank in the program.
    pub to: u32,
}

/// What follows a message on a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// There is no payload.
    Nothing,
    /// Bytes of its own.
    Text(Vec<u8>),
    /// Memory that stays as it is until the ticket has come back, or [`Host::detach`] was called for its operation.
    Memory(Address, u64, Ticket),
}

/// The process that an engine lives in, and its links. Peers are known by number, in the order in which they came.
///
/// None of these calls waits. They are made under the engine's lock, so at most one at a time.
pub trait Host {
    /// A caller's handle on an operation; it comes back when the operation has ended.
    type Call;

    /// What has happened outside of the engine's lock since the last call, oldest first.
    fn take_events(&mut self) -> Vec<Event<Self::Call>>;

    /// Puts a message into the queue that a peer reads; `false` if it is full.
    fn put(&mut self, peer: usize, message: &Message) -> bool;
    /// Takes the oldest message of a peer's queue.
    fn take(&mut self, peer: usize) -> Option<Message>;
    /// Wakes a peer that sleeps: so many messages were put since the last time; 0: acknowledgements only.
    fn wake(&mut self, peer: usize, messages: u32);

    /// Takes a block of shared memory; its offset, or `None` if there is no room.
    fn reserve(&mut self, bytes: u64) -> Option<u64>;
    /// Gives a block back. No peer may still touch it.
    fn release(&mut self, offset: u64);
    /// The address of a part of this process's shared memory.
    fn address(&self, offset: u64) -> Address;
    /// Where `bytes` bytes at an address lie in this process's shared memory; `None` if they do not.
    fn offset(&self, at: Address, bytes: u64) -> Option<u64>;
    /// The address of a part of a peer's shared memory; `None` if it has no such part.
    fn peer_address(&mut self, peer: usize, offset: u64, bytes: u64) -> Option<Address>;
    /// These bytes become this process's own: what peers write to them is not seen any more.
    fn make_private(&mut self, at: Address, bytes: u64);

    /// Lets peers touch what is exposed under this lease.
    fn grant(&mut self, lease: Lease);
    /// From now on no peer begins to touch it.
    fn revoke(&mut self, lease: Lease);
    /// A peer is touching what was exposed under this lease.
    fn is_claimed(&self, peer: usize, lease: Lease) -> bool;
    /// Begins to touch what `peer` has exposed; `false` if it has revoked the lease.
    fn claim(&mut self, peer: usize, lease: Lease) -> bool;
    /// Touches it no more, and wakes the owner if it waits for that.
    fn let_go(&mut self, peer: usize, lease: Lease);

    /// Puts a message at the end of a stream's queue, or before frames of less urgency; `None`: it keeps its place.
    fn send(&mut self, peer: usize, stream: usize, message: &Message, payload: Payload, urgency: Option<i32>);
    /// What waits in streams of an operation's values becomes at least so urgent.
    fn lift(&mut self, run: u64, urgency: i32);
    /// Writes as much of a stream's queue as the kernel takes; the tickets of payloads that have left. A host may put it off
    /// until the lock is given back, and tell of them by [`Event::Left`].
    fn flush(&mut self, peer: usize, stream: usize) -> Vec<Ticket>;
    /// Peers and streams of which something waits that the kernel would take: they are flushed again after
    /// [`super::pace::AGAIN`].
    fn held_back(&self) -> Vec<(usize, usize)> {
        Vec::new()
    }
    /// Packets to the peer are lost, as far as is known once `left` bytes of values have left for it: values go over all its streams.
    fn is_lossy(&mut self, peer: usize, left: u64) -> bool;
    /// What the streams to a peer hold that the kernel has not taken.
    fn queued_bytes(&self, peer: usize) -> u64;
    /// Reads no memory of that operation any more.
    fn detach(&mut self, run: u64);
    /// The peer is lost: its streams end, and nothing is sent to its endpoints any more. The tickets of payloads that have
    /// not left: they never will, and their memory is read no more.
    fn close_peer(&mut self, peer: usize) -> Vec<Ticket>;
    /// No operation needs its memory any more: what it shared is given back.
    fn unmap(&mut self, peer: usize);
    /// A buffer that a payload came in, for the next one.
    fn recycle(&mut self, buffer: Vec<u8>);

    /// Sends a value in datagrams; `Event::Delivered` with `number` comes back, unless it is cancelled.
    fn send_datagrams(&mut self, endpoint: u64, peer: usize, what: Outgoing, at: Address, number: u64);
    /// Once this has returned, the value's memory is read no more.
    fn cancel_datagrams(&mut self, endpoint: u64, peer: usize, number: u64);
    /// Times at which messages close are measured anew.
    fn end_epoch(&mut self, endpoint: u64);
    /// How to send datagrams to a peer's endpoint of that number.
    fn keep_offer(&mut self, peer: usize, number: u64, offer: Vec<u8>);

    /// Copies between two places of this process.
    fn copy(&mut self, from: Address, to: Address, bytes: u64);
    /// The bytes at an address.
    fn read(&self, at: Address, bytes: u64) -> Vec<u8>;

    /// Where a rank of a group is, and what the system lets us see of it.
    fn rank_status(&self, group: GroupNumber, rank: Rank) -> RankStatus;
    /// What this process's main thread does.
    fn activity(&self) -> Activity;
    /// Writes down how an operation went.
    fn save_trace(&mut self, name: &str, trace: &Trace);
    /// What people should know of what was asked of this process, to be printed once the lock is free.
    fn take_lines(&mut self) -> Vec<String> {
        Vec::new()
    }
}
