//! What peers say, and to which operation it belongs.

use tweed_proto::{Action, Arrival, Ready};
use tweed_schedule::Rank;

use super::early_messages::MOST_BYTES;
use super::Engine;
use crate::error::EngineError;
use crate::link::message::{Kind, Message, WHOLE_GROUP};
use crate::link::peers::Load;
use crate::link::stream::Ticket;
use crate::operation::active::Key;
use crate::operation::p2p::Numbers;

impl Engine {
    /// A message that has just come.
    pub(super) fn handle_new(&mut self, peer: usize, message: Message, load: Load) {
        self.links.peers[peer].traffic.received(&message);
        self.handle(peer, message, load);
    }

    pub(super) fn handle(&mut self, peer: usize, message: Message, load: Load) {
        if message.op == WHOLE_GROUP && self.groups.contains_key(&message.group) {
            let error =
                EngineError::from_peer(message.send, String::from_utf8_lossy(&load.bytes).into_owned());
            return self.fail_group(message.group, &error);
        }
        match message.kind {
            Kind::Bye => return self.handle_shutdown(peer, message),
            Kind::Leave if self.groups.contains_key(&message.group) => {
                return self.handle_shutdown(peer, message)
            }
            Kind::Invite => return self.home.endpoints.keep(peer, message.at, load.bytes),
            Kind::Note => return self.keep_note(peer, message.group, load.bytes),
            Kind::Ask => return self.answer(peer, &message),
            Kind::State => return self.take_report(peer, &message, &load.bytes),
            _ => {}
        }
        let Some(index) = self.find_run(peer, &message) else { return self.keep_early(peer, message, load) };
        let from = self.hear(index, peer);
        match message.kind {
            Kind::Describe => return self.handle_description(index, from, load.bytes),
            Kind::Failed => return self.handle_failure(index, message.send, &load.bytes),
            Kind::Missing => return self.note_missing(index, peer, &message, &load.bytes),
            Kind::Read => self.note_read(index, peer, &message),
            _ => {}
        }
        if message.signature != self.runs[index].signature {
            return self.start_dispute(index);
        }
        if let Err(what) = self.deliver(index, message, load) {
            let text = format!(
                "{}: rank {from} sent {what}; do all ranks run the same tweed?",
                self.runs[index].label()
            );
            self.fail(index, EngineError::ShapeMismatch(text), true);
        }
    }

    /// Notes that `peer` has said something about an operation. Returns its rank.
    pub(super) fn hear(&mut self, index: usize, peer: usize) -> Rank {
        let run = &mut self.runs[index];
        let from = run.group.rank_of(peer).unwrap_or(0);
        run.late.hear(from, self.clock);
        from
    }

    pub(super) fn deliver(&mut self, index: usize, message: Message, load: Load) -> Result<(), &'static str> {
        let at = match message.kind {
            Kind::Carried => self.links.land(self.runs[index].run, load),
            _ => message.at,
        };
        self.hand_over(index, message, at)
    }

    /// Tells the executor that a value can be read at `at`.
    pub(super) fn hand_over(&mut self, index: usize, message: Message, at: u64) -> Result<(), &'static str> {
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
            kind => Ready::Readable(Arrival { at, writable: kind == Kind::Writable }),
        };
        run.executor.handle_ready(message.slice, message.send, ready)
    }

    /// The operation under way that a message of `peer` is about.
    pub(super) fn find_run(&self, peer: usize, message: &Message) -> Option<usize> {
        self.runs.iter().position(|run| {
            let Key { group, op, peer: pair } = run.key;
            (group, op) == (message.group, message.op) && (pair.is_none() || run.group.rank_of(peer) == pair)
        })
    }

    /// Keeps what a faster peer says of an operation, or of a group, that this rank has not come to yet.
    fn keep_early(&mut self, peer: usize, message: Message, load: Load) {
        let Some(state) = self.groups.get_mut(&message.group) else {
            if !self.closed.contains(&message.group) {
                let fits = self.early.keep_for_group((peer, message, load));
                self.check_ahead(peer, fits);
            }
            return;
        };
        let pair = if Numbers::is_point_to_point(message.op) { state.members.rank_of(peer) } else { None };
        if message.kind == Kind::Failed && pair.is_none() {
            // Even if the call ended well here: its sender may leave before this rank learns why by itself.
            let error =
                EngineError::from_peer(message.send, String::from_utf8_lossy(&load.bytes).into_owned());
            state.verdict.get_or_insert(error);
        }
        let past = pair.is_none() && message.op < state.next_op;
        if past || matches!(message.kind, Kind::Read | Kind::Missing) {
            return;
        }
        let key = Key { group: message.group, op: message.op, peer: pair };
        let fits = self.early.keep(key, (peer, message, load));
        self.check_ahead(peer, fits);
        if pair.is_some() {
            self.answer_open();
        }
    }

    /// Parts with a peer that waits for nobody, before it fills this rank's memory.
    fn check_ahead(&mut self, peer: usize, fits: bool) {
        if !fits {
            let gib = MOST_BYTES >> 30;
            self.handle_lost(peer, format!("it is more than {gib} GiB of messages ahead of this rank"));
        }
    }

    pub(super) fn handle_left(&mut self, ticket: Ticket) {
        if let Some(run) = self.runs.iter_mut().find(|r| r.run == ticket.run) {
            let Ticket { send, to, output, slice, .. } = ticket;
            run.executor.finished(&Action::Transmit { send, to, output, slice });
        }
    }
}
