//! The engine's [`Host`] in the simulator.

use std::cell::RefCell;
use std::rc::Rc;

use tweed_proto::engine::message::Message;
use tweed_proto::engine::{Address, Event, GroupNumber, Host, Lease, Payload, Ticket};
use tweed_proto::late::{Activity, Process, RankStatus};
use tweed_proto::ltp::Outgoing;
use tweed_proto::Trace;
use tweed_rng::mix;
use tweed_schedule::Rank;

use super::kernel::{CallId, Kernel};
use super::link::Channel;
use super::locks::Lock;
use super::scenario::Sabotage;

/// A process of the simulation, seen by its engine.
pub(super) struct SimHost {
    pub(super) me: usize,
    pub(super) kernel: Rc<RefCell<Kernel>>,
}

impl SimHost {
    fn other(&self, peer: usize) -> usize {
        self.kernel.borrow().there(self.me, peer).process
    }

    fn is(&self, sabotage: Sabotage) -> bool {
        self.kernel.borrow().sabotage == Some(sabotage)
    }
}

impl Host for SimHost {
    type Call = CallId;

    fn take_events(&mut self) -> Vec<Event<CallId>> {
        let process = &mut self.kernel.borrow_mut().processes[self.me];
        process.locks.note(Lock::Engine, Lock::Inbox);
        std::mem::take(&mut process.inbox)
    }

    fn put(&mut self, peer: usize, message: &Message) -> bool {
        self.kernel.borrow_mut().there_mut(self.me, peer).put(message)
    }

    fn take(&mut self, peer: usize) -> Option<Message> {
        self.kernel.borrow_mut().here_mut(self.me, peer).queue.pop_front()
    }

    fn wake(&mut self, peer: usize, messages: u32) {
        let to = self.other(peer);
        let wakeup = &mut self.kernel.borrow_mut().processes[to].wakeup;
        match messages {
            0 => wakeup.ring_for_read(),
            messages => wakeup.ring(messages),
        }
    }

    fn reserve(&mut self, bytes: u64) -> Option<u64> {
        self.kernel.borrow_mut().reserve(self.me, bytes)
    }

    fn release(&mut self, offset: u64) {
        self.kernel.borrow_mut().release(self.me, offset);
    }

    fn address(&self, offset: u64) -> Address {
        Kernel::address(self.me, offset)
    }

    fn offset(&self, at: Address, bytes: u64) -> Option<u64> {
        self.kernel.borrow().shared_offset(self.me, at, bytes)
    }

    fn peer_address(&mut self, peer: usize, offset: u64, _bytes: u64) -> Option<Address> {
        let owner = self.other(peer);
        self.kernel.borrow().here(self.me, peer).mapped.then(|| Kernel::address(owner, offset))
    }

    fn make_private(&mut self, at: Address, bytes: u64) {
        self.kernel.borrow_mut().withdraw(self.me, at, bytes);
    }

    fn grant(&mut self, lease: Lease) {
        self.kernel.borrow_mut().set_lease(self.me, lease.slot, lease.generation);
    }

    fn revoke(&mut self, lease: Lease) {
        self.kernel.borrow_mut().set_lease(self.me, lease.slot, 0);
    }

    fn is_claimed(&self, peer: usize, lease: Lease) -> bool {
        !self.is(Sabotage::NoLeases) && self.kernel.borrow().there(self.me, peer).claim == Some(lease)
    }

    fn claim(&mut self, peer: usize, lease: Lease) -> bool {
        let owner = self.other(peer);
        let mut kernel = self.kernel.borrow_mut();
        kernel.here_mut(self.me, peer).claim = Some(lease);
        kernel.is_valid(owner, lease) || kernel.sabotage == Some(Sabotage::NoLeases)
    }

    fn let_go(&mut self, peer: usize, lease: Lease) {
        let owner = self.other(peer);
        let mut kernel = self.kernel.borrow_mut();
        kernel.here_mut(self.me, peer).claim = None;
        if !kernel.is_valid(owner, lease) {
            kernel.processes[owner].wakeup.ring(1 << 16);
        }
    }

    fn send(
        &mut self,
        peer: usize,
        stream: usize,
        message: &Message,
        payload: Payload,
        urgency: Option<i32>,
    ) {
        self.kernel.borrow_mut().here_mut(self.me, peer).streams[stream].send(message, payload, urgency);
    }

    fn lift(&mut self, run: u64, urgency: i32) {
        self.kernel.borrow_mut().lift(self.me, run, urgency);
    }

    fn flush(&mut self, peer: usize, stream: usize) -> Vec<Ticket> {
        let mut kernel = self.kernel.borrow_mut();
        if !kernel.is_sealed(self.me, peer) {
            return kernel.flush(self.me, peer, stream);
        }
        kernel.processes[self.me].unsealed.insert((peer, stream));
        Vec::new()
    }

    /// Anything goes: an operation may begin over one stream and go on over all.
    fn is_lossy(&mut self, peer: usize, left: u64) -> bool {
        mix(left ^ mix((self.me as u64) << 32 | peer as u64)) & 1 == 1
    }

    fn queued_bytes(&self, peer: usize) -> u64 {
        self.kernel.borrow().here(self.me, peer).streams.iter().map(Channel::queued_bytes).sum()
    }

    fn detach(&mut self, run: u64) {
        self.kernel.borrow_mut().detach(self.me, run);
    }

    fn close_peer(&mut self, peer: usize) -> Vec<Ticket> {
        let mut kernel = self.kernel.borrow_mut();
        kernel.shut_down(self.me, peer);
        // Nothing more is read for its packets.
        kernel.processes[self.me].locks.note(Lock::Engine, Lock::Endpoints);
        kernel.here_mut(self.me, peer).streams.iter_mut().flat_map(Channel::close).collect()
    }

    fn unmap(&mut self, peer: usize) {
        if !self.is(Sabotage::KeepMappings) {
            self.kernel.borrow_mut().here_mut(self.me, peer).mapped = false;
        }
    }

    fn recycle(&mut self, _buffer: Vec<u8>) {}

    fn send_datagrams(&mut self, _: u64, _: usize, _: Outgoing, _: Address, _: u64) {
        unreachable!("no scenario has endpoints for datagrams: `ltp` is simulated by itself");
    }

    fn cancel_datagrams(&mut self, _: u64, _: usize, _: u64) {}

    fn end_epoch(&mut self, _: u64) {}

    fn keep_offer(&mut self, _: usize, _: u64, _: Vec<u8>) {}

    fn copy(&mut self, from: Address, to: Address, bytes: u64) {
        let mut kernel = self.kernel.borrow_mut();
        let values = kernel.read(from, bytes);
        kernel.write(self.me, to, &values);
    }

    fn read(&self, at: Address, bytes: u64) -> Vec<u8> {
        self.kernel.borrow().read(at, bytes)
    }

    fn rank_status(&self, _group: GroupNumber, rank: Rank) -> RankStatus {
        let host = format!("host-of-{rank}");
        RankStatus { host, pid: rank, link: "sim".into(), process: Process::Unseen }
    }

    fn activity(&self) -> Activity {
        Activity::Unknown
    }

    fn save_trace(&mut self, _name: &str, _trace: &Trace) {}
}
