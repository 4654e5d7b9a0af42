//! What peers say, and to which operation it belongs.

use tweed_proto::{Action, Arrival, Ready};

use super::Engine;
use crate::error::EngineError;
use crate::message::{Kind, Message};
use crate::p2p::Numbers;
use crate::running::Key;
use crate::stream::Ticket;

impl Engine {
    pub(super) fn handle(&mut self, peer: usize, message: Message, body: Vec<u8>) {
        let Some(key) = self.key_of(peer, &message) else { return };
        if message.kind == Kind::Bye {
            return self.handle_lost(peer, "it has left in good order".into());
        }
        let Some(index) = self.runs.iter().position(|r| r.key == key) else {
            return self.keep_early(key, peer, message, body);
        };
        let from = key.peer.or_else(|| self.runs[index].group.rank_of(peer)).unwrap_or(0);
        self.runs[index].heard.insert(from);
        match message.kind {
            Kind::Describe => return self.handle_description(index, from, body),
            Kind::Failed => return self.handle_failure(index, message.send, &body),
            _ => {}
        }
        if message.signature != self.runs[index].signature {
            return self.start_dispute(index);
        }
        if let Err(what) = self.deliver(index, message, body) {
            let text = format!(
                "{}: rank {from} sent {what}; do all ranks run the same tweed?",
                self.runs[index].label()
            );
            self.fail(index, EngineError::ShapeMismatch(text), true);
        }
    }

    pub(super) fn deliver(
        &mut self,
        index: usize,
        message: Message,
        body: Vec<u8>,
    ) -> Result<(), &'static str> {
        let run = &mut self.runs[index];
        if message.kind == Kind::Read {
            return run.executor.handle_read(message.slice, message.send);
        }
        let (input, _) =
            run.executor.program().arrival(message.send).ok_or("a send that does not end at this rank")?;
        let chunk = run.executor.program().inputs[input as usize].chunk;
        if run.piece_bytes(chunk, message.slice) != u64::from(message.bytes) {
            return Err("a piece of another length");
        }
        let ready = match message.kind {
            Kind::Placed => Ready::Placed,
            Kind::Carried => Ready::Readable(Arrival { at: self.links.land(body), writable: false }),
            kind => Ready::Readable(Arrival { at: message.at, writable: kind == Kind::Writable }),
        };
        run.executor.handle_ready(message.slice, message.send, ready)
    }

    /// The operation that a message is about, as this rank names it.
    pub(super) fn key_of(&self, peer: usize, message: &Message) -> Option<Key> {
        if message.kind == Kind::Bye || !Numbers::is_point_to_point(message.op) {
            return Some(Key { group: message.group, op: message.op, peer: None });
        }
        let club = self.clubs.get(&message.group);
        let rank = club.and_then(|c| c.members.rank_of(peer));
        Some(Key { group: message.group, op: message.op, peer: rank.or(Some(u32::MAX)) })
    }

    pub(super) fn keep_early(&mut self, key: Key, peer: usize, message: Message, body: Vec<u8>) {
        let next = self.clubs.get(&key.group).map_or(0, |c| c.next_op);
        let past = key.peer.is_none() && key.op < next;
        if past || matches!(message.kind, Kind::Read) {
            return;
        }
        self.early.entry(key).or_default().push((peer, message, body));
        if key.peer.is_some() {
            self.answer_open();
        }
    }

    pub(super) fn handle_left(&mut self, ticket: Ticket) {
        if let Some(run) = self.runs.iter_mut().find(|r| r.run == ticket.run) {
            let Ticket { send, to, output, slice, .. } = ticket;
            run.executor.finished(&Action::Transmit { send, to, output, slice });
        }
    }
}
