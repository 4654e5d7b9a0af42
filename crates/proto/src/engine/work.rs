//! Carries out what the executors ask for.

use crate::executor::{Action, Notice, Signal};
use crate::layout::Reach;

use super::error::EngineError;
use super::flow::Value;
use super::host::{Host, Payload, Ticket};
use super::message::Kind;
use super::operation::job::{claim, Job, NoJob};
use super::Engine;

impl<H: Host> Engine<H> {
    /// Carries out actions up to the next piece of arithmetic, which is for whoever drives the engine.
    pub(super) fn run_some(&mut self) -> Option<Job> {
        let mut index = 0;
        while index < self.active.len() {
            let run = self.active[index].run;
            while let Some(action) = self.active[index].executor.poll() {
                self.busy_turn = true;
                if let Some(job) = self.perform(index, action) {
                    self.finish_ended();
                    return Some(job);
                }
                if self.active.get(index).is_none_or(|active| active.run != run) {
                    // It has failed, and others with it.
                    break;
                }
            }
            if self.active.get(index).is_some_and(|active| active.run == run) {
                index += 1;
            }
        }
        self.finish_ended();
        None
    }

    fn perform(&mut self, index: usize, action: Action) -> Option<Job> {
        match action {
            Action::Signal(signal) => {
                self.pass_on(index, &signal);
                None
            }
            Action::Transmit { send, to, output, slice } => {
                self.transmit(index, Ticket { run: self.active[index].run, send, output, slice, to });
                None
            }
            Action::Stage { output, slice } => Some(self.active[index].staging(output, slice, &self.host)),
            Action::Combine(combine) => {
                let active = &self.active[index];
                let found = active.combining(&combine, (&self.peers, &self.landed), &mut self.host);
                let found = found.and_then(|job| match claim(&job, &mut self.host) {
                    Ok(()) => Ok(job),
                    Err(peer) => Err(NoJob::Revoked(active.group.rank_of(peer).unwrap_or(0))),
                });
                match found {
                    Ok(job) => return Some(job),
                    Err(NoJob::Revoked(rank)) => drop(self.active[index].withdrawn.insert(rank)),
                    Err(NoJob::Outside(rank)) => self.refuse_memory(index, rank),
                }
                None
            }
        }
    }

    fn refuse_memory(&mut self, index: usize, rank: u32) {
        let label = self.active[index].label();
        let what = "announced memory that it does not have; do all ranks run the same tweed?";
        self.fail(index, EngineError::ShapeMismatch(format!("{label}: rank {rank} {what}")), true);
    }

    /// The arithmetic is done.
    pub fn handle_computed(&mut self, job: Job) {
        for &(peer, lease) in &job.claims {
            self.host.let_go(peer, lease);
        }
        if let Some(active) = self.active.iter_mut().find(|a| a.run == job.run) {
            active.finish(job, &mut self.landed, &mut self.host);
        }
    }

    fn pass_on(&mut self, index: usize, signal: &Signal) {
        let active = &self.active[index];
        let peer = active.peer(signal.to);
        let mut message = active.message(Kind::Read, signal.send, signal.slice);
        match signal.what {
            Notice::Read => {}
            Notice::Placed => {
                message.kind = Kind::Placed;
                message.bytes = active.sent_bytes(signal.send, signal.slice);
            }
            Notice::Readable { output, writable } => {
                let (at, whole) = active
                    .exposed_at(output, signal.slice, &self.host)
                    .expect("what is exposed lies in shared memory");
                message.kind = if writable && whole { Kind::Writable } else { Kind::Readable };
                message.at = at;
                message.bytes = active.sent_bytes(signal.send, signal.slice);
                message.lease = active.lease.unwrap_or_default();
            }
        }
        self.peers.signal(peer, &message, active.request.urgency, &mut self.host);
    }

    /// Sends a value over a wire, or holds it back until its receiver has come so far.
    fn transmit(&mut self, index: usize, ticket: Ticket) {
        let active = &self.active[index];
        let (_, bytes) = active.leaving(ticket.output, ticket.slice, &self.host);
        let (to, key) = (active.peer(ticket.to), active.key);
        if self.peers.is_lost(to) {
            return self.handle_left(ticket);
        }
        let flow = self.groups.get_mut(&key.group).map(|group| &mut group.flow);
        let value = Value { op: key.op, urgency: active.request.urgency, bytes, ticket };
        if flow.is_some_and(|flow| !flow.admit(to, value)) {
            return;
        }
        self.send_value(index, ticket);
    }

    /// Sends a value that may leave.
    pub(super) fn send_value(&mut self, index: usize, ticket: Ticket) {
        let active = &self.active[index];
        let (at, bytes) = active.leaving(ticket.output, ticket.slice, &self.host);
        let mut message = active.message(Kind::Carried, ticket.send, ticket.slice);
        message.bytes = bytes as u32;
        let to = active.peer(ticket.to);
        let direct = active.executor.layout().reach[ticket.to as usize] == Reach::Wire;
        if bytes > 0 && direct && active.group.endpoint.is_some() {
            return self.send_datagrams(index, ticket, message);
        }
        let urgency = Some(active.request.urgency);
        let payload = Payload::Memory(at, bytes, ticket);
        self.peers.send_by_urgency(to, &message, payload, urgency, &mut self.host);
    }

    /// A value has left: its memory is no longer read.
    pub(super) fn handle_left(&mut self, ticket: Ticket) {
        if let Some(active) = self.active.iter_mut().find(|a| a.run == ticket.run) {
            let Ticket { send, to, output, slice, .. } = ticket;
            active.executor.finished(&Action::Transmit { send, to, output, slice });
            self.busy_turn = true;
        }
    }

    /// Sends what is queued for wires; `false` if nothing came of it.
    pub fn flush_wires(&mut self) -> bool {
        let left = self.peers.flush(&mut self.host);
        left.iter().for_each(|&ticket| self.handle_left(ticket));
        !left.is_empty()
    }

    /// Tells callers whose operation is done, and forgets operations that nobody needs.
    pub(super) fn finish_ended(&mut self) {
        let mut index = 0;
        while index < self.active.len() {
            let active = &mut self.active[index];
            if active.executor.is_finished() && active.call.is_some() {
                self.note_end(index);
            }
            if !self.active[index].executor.is_closed() {
                index += 1;
                continue;
            }
            let active = self.active.remove(index);
            active.save_trace(&mut self.host);
            self.retire(active, None);
        }
    }
}
