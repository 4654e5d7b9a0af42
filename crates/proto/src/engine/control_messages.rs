//! What peers send, and to which operation it belongs.

use tweed_schedule::Rank;

use super::early_messages::MOST_BYTES;
use super::error::EngineError;
use super::group_number::GroupNumber;
use super::host::{Host, Payload};
use super::landed::Received;
use super::message::{Kind, Message, WHOLE_GROUP};
use super::operation::Key;
use super::p2p::Numbers;
use super::Engine;
use crate::executor::{Arrival, Ready};

impl<H: Host> Engine<H> {
    pub(super) fn handle(&mut self, peer: usize, message: Message, received: Received) {
        if message.kind == Kind::Failed && self.ends_group(&message) {
            let error = EngineError::from_peer(message.send, &received.bytes);
            return self.fail_group(message.group, &error);
        }
        match message.kind {
            Kind::Bye => return self.handle_shutdown(peer, message),
            Kind::Leave if self.is_known(message.group) => return self.handle_shutdown(peer, message),
            Kind::Invite => return self.host.keep_offer(peer, message.at, received.bytes),
            Kind::Note => return self.keep_note(peer, message.group, received.bytes),
            Kind::Ask => return self.answer(peer, &message),
            Kind::State => return self.take_report(peer, &message, &received.bytes),
            _ => {}
        }
        self.note_begun(peer, &message);
        let Some(index) = self.find_run(peer, &message) else {
            return self.keep_early(peer, message, received);
        };
        let from = self.note_sender(index, peer);
        match message.kind {
            Kind::Describe => return self.handle_description(index, from, received.bytes),
            Kind::Failed => {
                let error = EngineError::from_peer(message.send, &received.bytes);
                return self.fail(index, error.about(&self.active[index].label()), false);
            }
            Kind::Missing => return self.note_missing(index, peer, &message, &received.bytes),
            Kind::Begun => return,
            Kind::Read => self.note_read(index, peer, &message),
            _ => {}
        }
        if message.signature != self.active[index].signature {
            return self.start_dispute(index);
        }
        let at = match message.kind {
            Kind::Carried => self.landed.keep(self.active[index].run, received),
            _ => message.at,
        };
        self.hand_over_or_fail(index, peer, message, at);
    }

    /// The group is open here, or was.
    fn is_known(&self, group: GroupNumber) -> bool {
        self.groups.contains_key(&group) || self.closed.contains(&group)
    }

    /// A failure that leaves nothing of its group: of all of it, or of a collective of a group that is closed here.
    fn ends_group(&self, failed: &Message) -> bool {
        let whole = failed.op == WHOLE_GROUP && self.is_known(failed.group);
        whole || (self.closed.contains(&failed.group) && !Numbers::is_point_to_point(failed.op))
    }

    /// The peer has come so far: values that were held back for it may leave.
    pub(super) fn note_begun(&mut self, peer: usize, message: &Message) {
        let Some(group) = self.groups.get_mut(&message.group) else { return };
        for ticket in group.flow.handle_begun(peer, message.op) {
            if let Some(index) = self.active.iter().position(|a| a.run == ticket.run) {
                self.send_value(index, ticket);
            }
        }
    }

    /// Notes that `peer` has sent something about an operation. Returns its rank.
    pub(super) fn note_sender(&mut self, index: usize, peer: usize) -> Rank {
        let active = &mut self.active[index];
        let from = active.group.rank_of(peer).unwrap_or(0);
        active.late.note_message(from, self.clock);
        from
    }

    /// Tells the executor that a value can be read at `at`, or has been read.
    pub(super) fn hand_over_or_fail(&mut self, index: usize, peer: usize, message: Message, at: u64) {
        self.busy_turn = true;
        if let Err(what) = self.hand_over(index, peer, message, at) {
            let active = &self.active[index];
            let (label, from) = (active.label(), active.group.rank_of(peer).unwrap_or(0));
            let text = format!("{label}: rank {from} sent {what}; do all ranks active the same tweed?");
            self.fail(index, EngineError::ShapeMismatch(text), true);
        }
    }

    fn hand_over(
        &mut self,
        index: usize,
        peer: usize,
        message: Message,
        at: u64,
    ) -> Result<(), &'static str> {
        let active = &mut self.active[index];
        if message.kind == Kind::Read {
            return active.executor.handle_read(message.slice, message.send);
        }
        let program = active.executor.program();
        let (input, _) = program.arrival(message.send).ok_or("a send that does not end at this rank")?;
        let chunk = program.inputs[input as usize].chunk;
        if active.piece_bytes(chunk, message.slice) != u64::from(message.bytes) {
            return Err("a piece of another length");
        }
        let ready = match message.kind {
            Kind::Placed => Ready::Placed,
            kind => Ready::Readable(Arrival { at, writable: kind == Kind::Writable }),
        };
        if matches!(message.kind, Kind::Readable | Kind::Writable) {
            active.leases.insert(peer, message.lease);
        }
        active.executor.handle_ready(message.slice, message.send, ready)
    }

    /// The operation under way that a message of `peer` is about.
    pub(super) fn find_run(&self, peer: usize, message: &Message) -> Option<usize> {
        self.active.iter().position(|active| {
            let Key { group, op, peer: pair } = active.key;
            (group, op) == (message.group, message.op)
                && (pair.is_none() || active.group.rank_of(peer) == pair)
        })
    }

    /// Keeps what a faster peer says of an operation, or of a group, that this rank has not come to yet.
    fn keep_early(&mut self, peer: usize, message: Message, received: Received) {
        let Some(state) = self.groups.get_mut(&message.group) else {
            if !self.closed.contains(&message.group) {
                let fits = self.early.keep(None, (peer, message, received));
                self.check_ahead(peer, fits);
            }
            return;
        };
        let pair = if Numbers::is_point_to_point(message.op) { state.members.rank_of(peer) } else { None };
        if message.kind == Kind::Failed && pair.is_none() {
            // Even if the call ended well here: its sender may leave before this rank learns why by itself.
            let error = EngineError::from_peer(message.send, &received.bytes);
            state.verdict.get_or_insert_with(|| error.clone());
            if message.op >= state.next_op {
                return self.fail_behind(message.group, error);
            }
        }
        let past = match pair {
            Some(rank) => state.numbers.is_past(rank, message.op),
            None => message.op < state.next_op,
        } || state.broken.is_some();
        if past || matches!(message.kind, Kind::Read | Kind::Missing | Kind::Begun) {
            return;
        }
        let key = Key { group: message.group, op: message.op, peer: pair };
        let fits = self.early.keep(Some(key), (peer, message, received));
        self.check_ahead(peer, fits);
        self.show_ahead(peer, key.group);
        if pair.is_some() {
            self.answer_open();
        }
    }

    /// A call that this rank has not come to has failed. Who says so holds nothing of the group any more, of earlier calls
    /// neither, so those under way here could wait for ever.
    fn fail_behind(&mut self, group: GroupNumber, error: EngineError) {
        match self.active.iter().position(|active| active.key.group == group && active.is_alive()) {
            Some(index) => self.fail(index, error.about(&self.active[index].label()), false),
            None => self.fail_group(group, &error),
        }
    }

    /// Parts with a peer that waits for nobody, before it fills this rank's memory.
    fn check_ahead(&mut self, peer: usize, fits: bool) {
        if !fits {
            let gib = MOST_BYTES >> 30;
            self.handle_lost(peer, format!("it is more than {gib} GiB of messages ahead of this rank"));
        }
    }

    /// A peer is ahead of this rank: it must know how far this rank is, or it could hold back what is waited for here.
    fn show_ahead(&mut self, peer: usize, group: GroupNumber) {
        let Some(state) = self.groups.get_mut(&group).filter(|g| g.members.has_wires) else { return };
        let mut shown = state.flow.show(peer);
        let open = self.open.iter().filter(|draft| draft.group.number == group);
        if let Some(rank) = state.members.rank_of(peer) {
            shown.extend(open.filter_map(|draft| state.numbers.expected(draft, rank)));
        }
        for op in shown {
            let message = Message::new(Kind::Begun, group, op);
            self.peers.send_by_urgency(peer, &message, Payload::Nothing, Some(0), &mut self.host);
        }
    }
}
