//! What goes wrong: peers that are gone, ranks that disagree, time that runs out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use tweed_schedule::Rank;

use super::Engine;
use crate::error::EngineError;
use crate::link::message::{Kind, Message, WHOLE_GROUP};
use crate::link::stream::Payload;
use crate::operation::active::{ActiveOp, Draft};

/// Why a peer is gone that has said so.
pub(super) const LEFT: &str = "it has left in good order";

impl Engine {
    /// Takes in what has come already: what a peer had said, and taken, before it went still counts.
    pub(super) fn catch_up(&mut self) {
        while self.take_inbox() | self.flush_wires() | self.take_messages() | self.run_some() {}
    }

    pub(super) fn handle_lost(&mut self, peer: usize, why: String) {
        let peer_state = &mut self.links.peers[peer];
        if peer_state.lost.is_some() {
            return;
        }
        self.catch_up();
        self.links.peers[peer].lost = Some(why);
        // It may hear of it over some other stream than the one that broke.
        self.links.peers[peer].streams.iter().for_each(|s| s.socket.shut_down());
        self.home.endpoints.drop_peer(peer);
        self.fail_for_lost(peer);
        self.drop_flights(peer);
    }

    /// Ends the operations that wait for a peer that is gone. Its unread values need no acknowledgement any more.
    pub(super) fn fail_for_lost(&mut self, peer: usize) {
        let waits = |run: &ActiveOp| {
            run.group.rank_of(peer).filter(|rank| run.is_alive() && run.waits_for().contains(rank))
        };
        while let Some((index, rank)) =
            self.runs.iter().enumerate().find_map(|(i, r)| waits(r).map(|rank| (i, rank)))
        {
            let error = self.told_of(index).unwrap_or_else(|| self.lost_error(index, rank, peer));
            self.fail(index, error, true);
        }
        for run in &mut self.runs {
            if let Some(rank) = run.program_rank(peer) {
                run.executor.handle_gone(rank);
            }
        }
        let groups: Vec<u32> =
            self.groups.iter().filter(|(_, c)| c.members.rank_of(peer).is_some()).map(|(&n, _)| n).collect();
        for number in groups {
            self.break_group(number, peer);
        }
    }

    /// Why another call failed elsewhere: whoever leaves because of it has said so first.
    pub(super) fn told_of(&self, index: usize) -> Option<EngineError> {
        let run = &self.runs[index];
        Some(self.groups.get(&run.key.group)?.verdict.clone()?.about(&run.label()))
    }

    pub(super) fn lost_error(&self, index: usize, rank: Rank, peer: usize) -> EngineError {
        let state = &self.links.peers[peer];
        let (host, why) = (&state.host, state.lost.as_deref().unwrap_or("unknown"));
        EngineError::PeerLost(format!(
            "rank {rank} on {host} was lost during {} ({why}). Make the group anew without it, or restart it",
            self.runs[index].label()
        ))
    }

    pub(super) fn break_group(&mut self, number: u32, peer: usize) {
        let state = &self.links.peers[peer];
        let why = state.lost.clone().unwrap_or_default();
        let host = state.host.clone();
        if let Some(state) = self.groups.get_mut(&number).filter(|c| c.broken.is_none()) {
            let rank = state.members.rank_of(peer).unwrap_or(0);
            if why == LEFT {
                // It made all its calls, and what this rank has not come to may have come already.
                state.left.insert(rank);
                return;
            }
            let name = &state.members.name;
            let gone = EngineError::PeerLost(format!(
                "rank {rank} on {host} of group {name:?} is gone ({why}). Make the group anew without it, or restart it"
            ));
            // Whoever leaves because of a failure says why first.
            state.broken = Some(state.verdict.clone().unwrap_or(gone));
        }
    }

    /// Ends one operation badly. Its group cannot go on, unless it was point-to-point.
    pub(super) fn fail(&mut self, index: usize, error: EngineError, tell_others: bool) {
        let run = self.runs.remove(index);
        self.links.drop_all_landed(run.run);
        self.cancel_flights(run.run);
        for peer in &self.links.peers {
            peer.streams.iter().for_each(|s| s.detach(run.run));
        }
        if tell_others {
            self.tell_others(&run, &error);
        }
        if !run.told {
            self.ended.push((Arc::clone(&run.op), Err(error.clone())));
        }
        if run.key.peer.is_none() {
            self.fail_group(run.key.group, &error);
        }
    }

    pub(super) fn fail_group(&mut self, number: u32, error: &EngineError) {
        let Some(state) = self.groups.get_mut(&number) else { return };
        state.broken.get_or_insert_with(|| error.clone());
        while let Some(index) = self.runs.iter().position(|r| r.key.group == number && !r.told) {
            self.fail(index, error.clone(), false);
        }
        let (gone, open) =
            std::mem::take(&mut self.open).into_iter().partition(|d: &Draft| d.group.number == number);
        self.open = open;
        self.ended.extend(Vec::into_iter(gone).map(|d: Draft| (d.op, Err(error.clone()))));
    }

    /// Ends all operations of a group, here and at all its members.
    pub(super) fn abort(&mut self, number: u32, why: String) {
        let error = EngineError::Aborted(why);
        let Some(state) = self.groups.get(&number) else { return };
        let members = Arc::clone(&state.members);
        let text = error.to_string().into_bytes();
        let bytes = text.len() as u32;
        let message =
            Message { send: error.code(), bytes, ..Message::new(Kind::Failed, number, WHOLE_GROUP) };
        for &peer in members.peers.iter().filter(|&&p| p != usize::MAX) {
            self.links.carry(peer, &message, Payload::Text(text.clone()));
        }
        self.fail_group(number, &error);
    }

    pub(super) fn tell_others(&mut self, run: &ActiveOp, error: &EngineError) {
        let text = error.to_string().into_bytes();
        let mut message = run.message(Kind::Failed, error.code(), 0);
        message.bytes = text.len() as u32;
        for peer in run.concerned() {
            self.links.carry(peer, &message, Payload::Text(text.clone()));
        }
    }

    pub(super) fn handle_failure(&mut self, index: usize, code: u32, body: &[u8]) {
        let error = EngineError::from_peer(code, String::from_utf8_lossy(body).into_owned());
        let error = error.about(&self.runs[index].label());
        self.fail(index, error, false);
    }

    pub(super) fn start_dispute(&mut self, index: usize) {
        let call = self.runs[index].request.describe();
        let run = &mut self.runs[index];
        if run.dispute.since.is_some() {
            return;
        }
        run.dispute.since = Some(Instant::now());
        let own = run.group.rank;
        run.dispute.calls.insert(own, call.clone());
        let concerned = self.runs[index].concerned();
        let mut message = self.runs[index].message(Kind::Describe, 0, 0);
        message.bytes = call.len() as u32;
        for peer in concerned {
            self.links.carry(peer, &message, Payload::Text(call.clone().into_bytes()));
        }
    }

    pub(super) fn handle_description(&mut self, index: usize, from: Rank, body: Vec<u8>) {
        let call = String::from_utf8_lossy(&body).into_owned();
        self.runs[index].dispute.calls.insert(from, call);
        self.start_dispute(index);
        let run = &self.runs[index];
        if run.dispute.calls.len() == run.concerned().len() + 1 {
            self.end_dispute(index);
        }
    }

    pub(super) fn end_dispute(&mut self, index: usize) {
        let run = &self.runs[index];
        let ranks: BTreeSet<Rank> = match run.key.peer {
            Some(peer) => [run.group.rank, peer].into(),
            None => (0..run.group.ranks()).collect(),
        };
        let silent = "has not called it".to_owned();
        let calls =
            ranks.iter().map(|r| format!("\n  rank {r}: {}", run.dispute.calls.get(r).unwrap_or(&silent)));
        let text = format!(
            "{}: ranks disagree on what it is:{}\nMake every rank call the same operation with the same shape and dtype",
            run.label(),
            calls.collect::<String>()
        );
        self.fail(index, EngineError::ShapeMismatch(text), false);
    }

    /// Ends what has run out of time.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some(index) =
            self.runs.iter().position(|r| r.end_of_dispute().is_some_and(|end| now >= end))
        {
            self.end_dispute(index);
        }
        self.tend(now);
        while let Some(index) = self.open.iter().position(|d| now >= self.end_of(d)) {
            let draft = self.open.remove(index);
            let text = format!(
                "{}: nobody has sent in {:.1?}. Which rank was to send, and with this tag?",
                draft.label(),
                now - draft.op.started
            );
            self.ended.push((draft.op, Err(EngineError::Deadline(text))));
        }
    }

    /// When a receive from anybody has failed.
    pub(super) fn end_of(&self, draft: &Draft) -> Instant {
        draft.op.started + self.limits(draft, None).fail
    }
}
