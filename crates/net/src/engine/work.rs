//! Carries out what the executors ask for.

use std::sync::Arc;
use std::time::Instant;

use tweed_proto::{Action, Notice, Signal};

use super::late::note_end;
use super::{Engine, QUANTUM_BYTES};
use crate::error::EngineError;
use crate::link::message::Kind;
use crate::link::stream::{Payload, Ticket};

impl Engine {
    /// Carries out actions until a piece of work worth looking up from; `false` if there was none.
    pub(super) fn run_some(&mut self) -> bool {
        let mut any = false;
        let mut index = 0;
        while index < self.runs.len() {
            while let Some(action) = self.runs[index].executor.poll() {
                any = true;
                let heavy = self.perform(index, &action);
                if heavy || !self.still_runs(index) {
                    self.settle();
                    return true;
                }
            }
            index += 1;
        }
        self.settle();
        any
    }

    pub(super) fn still_runs(&self, index: usize) -> bool {
        index < self.runs.len()
    }

    /// Returns whether it was a lot of work.
    pub(super) fn perform(&mut self, index: usize, action: &Action) -> bool {
        match action {
            Action::Signal(signal) => {
                self.pass_on(index, signal);
                false
            }
            Action::Transmit { send, to, output, slice } => {
                self.transmit(
                    index,
                    Ticket {
                        run: self.runs[index].run,
                        send: *send,
                        output: *output,
                        slice: *slice,
                        to: *to,
                    },
                );
                true
            }
            Action::Combine(_) | Action::Stage { .. } => {
                let heavy = self.weight(index, action) >= QUANTUM_BYTES;
                if heavy {
                    self.links.ring_bells();
                }
                match self.runs[index].compute(action, &mut self.links) {
                    Ok(()) => self.runs[index].executor.finished(action),
                    Err(rank) => {
                        let text = format!(
                            "{}: rank {rank} told of memory that it does not have",
                            self.runs[index].label()
                        );
                        self.fail(index, EngineError::ShapeMismatch(text), true);
                        return true;
                    }
                }
                heavy
            }
        }
    }

    pub(super) fn weight(&self, index: usize, action: &Action) -> u64 {
        let run = &self.runs[index];
        let program = run.executor.program();
        match action {
            Action::Combine(c) => {
                let input = &program.inputs[c.input as usize];
                run.piece_bytes(input.chunk, c.slice) * input.sends.len() as u64
            }
            Action::Stage { output, slice } => {
                run.piece_bytes(program.outputs[*output as usize].chunk, *slice)
            }
            _ => 0,
        }
    }

    pub(super) fn pass_on(&mut self, index: usize, signal: &Signal) {
        let run = &self.runs[index];
        let peer = run.peer(signal.to);
        let mut message = run.message(Kind::Read, signal.send, signal.slice);
        match signal.what {
            Notice::Read => {}
            Notice::Placed => {
                message.kind = Kind::Placed;
                message.bytes = run.sent_bytes(signal.send, signal.slice);
            }
            Notice::Readable { output, writable } => {
                let (at, whole) =
                    run.exposed_at(output, signal.slice).expect("what is exposed lies in the arena");
                message.kind = if writable && whole { Kind::Writable } else { Kind::Readable };
                message.at = at;
                message.bytes = run.sent_bytes(signal.send, signal.slice);
            }
        }
        self.links.signal(peer, &message);
    }

    pub(super) fn transmit(&mut self, index: usize, ticket: Ticket) {
        let run = &self.runs[index];
        let (data, bytes) = run.leaving(ticket.output, ticket.slice);
        let mut message = run.message(Kind::Carried, ticket.send, ticket.slice);
        message.bytes = bytes as u32;
        let to = run.peer(ticket.to);
        if self.links.peers[to].lost.is_some() {
            return self.handle_left(ticket);
        }
        if bytes > 0 && run.group.packets.is_some() {
            return self.dispatch(index, ticket, message);
        }
        self.links.carry(to, &message, Payload::Memory(data, bytes, ticket));
    }

    /// Sends what is queued for wires; `false` if nothing came of it.
    pub(super) fn flush_wires(&mut self) -> bool {
        let left = self.links.flush();
        left.iter().for_each(|&ticket| self.handle_left(ticket));
        !left.is_empty()
    }

    /// Tells callers whose operation is done, and forgets operations that nobody needs.
    pub(super) fn settle(&mut self) {
        let (ended, home, groups) = (&mut self.ended, &self.home, &mut self.groups);
        self.runs.retain_mut(|run| {
            if run.executor.is_finished() && !run.told {
                run.told = true;
                note_end(groups, run, Instant::now());
                if let Some(state) = groups.get_mut(&run.key.group) {
                    state.deliveries.keep(std::mem::take(&mut run.delivery));
                    Engine::count_epoch(state, run);
                }
                ended.push((Arc::clone(&run.op), Ok(())));
            }
            let closed = run.executor.is_closed();
            if closed {
                run.save_trace(home);
            }
            !closed
        });
    }
}
