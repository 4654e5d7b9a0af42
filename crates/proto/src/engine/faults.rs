//! What goes wrong: peers that are gone, ranks that disagree, time that runs out.
//!
//! A collective that fails ends its group at every member: each hears of it from the rank where it failed, and from then on
//! nobody reads anything of the group any more. So its operations are retired, also those that had ended well here.

use std::collections::BTreeSet;
use std::sync::Arc;

use tweed_schedule::Rank;

use super::error::EngineError;
use super::host::{Host, Ticket, Time};
use super::message::{Kind, Message, WHOLE_GROUP};
use super::operation::ActiveOp;
use super::shutdown::{Departure, LEFT};
use super::{Draft, Engine, GroupNumber, GroupState};

impl<H: Host> Engine<H> {
    /// A peer is lost. That counts once all that it had sent before was handled.
    pub(super) fn handle_lost(&mut self, peer: usize, why: String) {
        self.losing.push_back(Departure::Lost(peer, why));
    }

    /// All that it had sent was handled.
    pub(super) fn finish_loss(&mut self, peer: usize, why: String) {
        if self.peers.is_lost(peer) {
            return;
        }
        self.peers.get_mut(peer).lost = Some(why);
        // It may hear of it over some other stream than the one that broke.
        let unsent = self.host.close_peer(peer);
        let held = self.groups.values_mut().flat_map(|group| group.flow.drop_peer(peer));
        let unsent: Vec<Ticket> = unsent.into_iter().chain(held).collect();
        self.fail_for_lost(peer);
        unsent.into_iter().for_each(|ticket| self.handle_left(ticket));
        self.drop_packet_sends(peer);
        self.shutdowns.retain(|&(of, ..), _| of != peer);
        if !self.has_left(peer) {
            self.early.drop_peer(peer);
        }
        self.tend_leases();
        self.unmap(peer);
    }

    /// It made all its calls before it went: what this rank has not come to may have come already.
    fn has_left(&self, peer: usize) -> bool {
        self.peers.get(peer).is_some_and(|p| p.lost.as_deref() == Some(LEFT))
    }

    /// Gives back what a lost peer has shared, once no operation takes values from it.
    pub(super) fn unmap(&mut self, peer: usize) {
        let meant = |group: &GroupState| self.has_left(peer) && group.members.rank_of(peer).is_some();
        let needed = self.active.iter().any(|active| active.program_rank(peer).is_some())
            || self.groups.values().any(meant);
        if !needed && std::mem::take(&mut self.peers.get_mut(peer).mapped) {
            self.host.unmap(peer);
        }
    }

    /// Ends the operations that wait for a peer that is gone. Its unread values need no acknowledgement any more.
    pub(super) fn fail_for_lost(&mut self, peer: usize) {
        let waits = |(index, active): (usize, &ActiveOp<H::Call>)| {
            let rank = active.group.rank_of(peer).filter(|&rank| active.is_alive() && active.needs(rank));
            rank.map(|rank| (index, rank))
        };
        while let Some((index, rank)) = self.active.iter().enumerate().find_map(waits) {
            let error = self.verdict_on(index).unwrap_or_else(|| self.lost_error(index, rank, peer));
            self.fail(index, error, true);
        }
        self.active.iter_mut().for_each(|active| active.forgo(peer));
        let of_it = self.groups.iter().filter(|(_, g)| g.members.rank_of(peer).is_some());
        let numbers: Vec<GroupNumber> = of_it.map(|(&number, _)| number).collect();
        numbers.into_iter().for_each(|number| self.break_group(number, peer));
    }

    /// Why another call failed elsewhere: whoever leaves because of it has sent that first.
    pub(super) fn verdict_on(&self, index: usize) -> Option<EngineError> {
        let active = &self.active[index];
        Some(self.groups.get(&active.key.group)?.verdict.clone()?.about(&active.label()))
    }

    fn lost_error(&self, index: usize, rank: Rank, peer: usize) -> EngineError {
        let (host, why) = self.obituary(peer);
        EngineError::PeerLost(format!(
            "rank {rank} on {host} was lost during {} ({why}). Make the group anew without it, or restart it",
            self.active[index].label()
        ))
    }

    fn obituary(&self, peer: usize) -> (String, String) {
        let Some(state) = self.peers.get(peer) else { return Default::default() };
        (state.host.clone(), state.lost.clone().unwrap_or_else(|| "unknown".into()))
    }

    pub(super) fn break_group(&mut self, number: GroupNumber, peer: usize) {
        let (host, why) = self.obituary(peer);
        if let Some(group) = self.groups.get_mut(&number).filter(|g| g.broken.is_none()) {
            let rank = group.members.rank_of(peer).unwrap_or(0);
            if why == LEFT {
                group.left.insert(rank);
                return;
            }
            let name = &group.members.name;
            let gone = EngineError::PeerLost(format!(
                "rank {rank} on {host} of group {name:?} is gone ({why}). Make the group anew without it, or restart it"
            ));
            // Whoever leaves because of a failure sends why first.
            group.broken = Some(group.verdict.clone().unwrap_or(gone));
        }
    }

    /// Ends one operation badly. Its group cannot go on, unless it was point-to-point.
    pub(super) fn fail(&mut self, index: usize, error: EngineError, notify_others: bool) {
        let active = self.active.remove(index);
        let (key, run) = (active.key, active.run);
        self.landed.forget_all(run);
        self.cancel_packet_sends(run);
        self.host.detach(run);
        if notify_others {
            self.send_failed(&active.group, key, &error);
        }
        active.save_trace(&mut self.host);
        self.retire(active, Some(Err(error.clone())));
        if key.peer.is_none() {
            self.fail_group(key.group, &error);
        }
    }

    /// Ends all operations of a group, also those whose callers have their result: nobody reads of them any more.
    pub(super) fn fail_group(&mut self, number: GroupNumber, error: &EngineError) {
        if let Some(group) = self.groups.get_mut(&number) {
            group.broken.get_or_insert_with(|| error.clone());
        }
        while let Some(index) = self.active.iter().position(|a| a.key.group == number) {
            self.fail(index, error.clone(), false);
        }
        self.fail_open(number, error);
    }

    /// Ends those operations of a group whose callers have no result; peers may still read of the others.
    pub(super) fn fail_unfinished(&mut self, number: GroupNumber, error: &EngineError) {
        let unfinished = |a: &ActiveOp<H::Call>| a.key.group == number && !a.has_result();
        while let Some(index) = self.active.iter().position(unfinished) {
            let active = self.active.remove(index);
            self.landed.forget_all(active.run);
            self.cancel_packet_sends(active.run);
            self.host.detach(active.run);
            self.retire(active, Some(Err(error.clone())));
        }
        self.fail_open(number, error);
    }

    fn fail_open(&mut self, number: GroupNumber, error: &EngineError) {
        let of_group = |d: &Draft<H::Call>| d.group.number == number;
        let (gone, open) = std::mem::take(&mut self.open).into_iter().partition::<Vec<_>, _>(of_group);
        self.open = open;
        gone.into_iter().for_each(|draft| self.end(draft.call, Err(error.clone())));
    }

    /// Ends all operations of a group, here and at all its members.
    pub(super) fn abort(&mut self, number: GroupNumber, why: String) {
        let error = EngineError::Aborted(why);
        let Some(members) = self.groups.get(&number).map(|group| Arc::clone(&group.members)) else { return };
        let message = Message { send: error.code(), ..Message::new(Kind::Failed, number, WHOLE_GROUP) };
        for peer in members.others() {
            let text = format!("rank {}: {error}", members.rank);
            self.peers.send_text(peer, &message, text.into_bytes(), &mut self.host);
        }
        self.fail_group(number, &error);
    }

    pub(super) fn start_dispute(&mut self, index: usize) {
        let active = &mut self.active[index];
        if active.dispute.since.is_some() {
            return;
        }
        let call = active.request.describe();
        active.dispute.since = Some(self.clock);
        active.dispute.calls.insert(active.group.rank, call.clone());
        let message = active.message(Kind::Describe, 0, 0);
        for peer in active.concerned() {
            self.peers.send_text(peer, &message, call.clone().into_bytes(), &mut self.host);
        }
    }

    pub(super) fn handle_description(&mut self, index: usize, from: Rank, body: Vec<u8>) {
        let call = String::from_utf8_lossy(&body).into_owned();
        self.active[index].dispute.calls.insert(from, call);
        self.start_dispute(index);
        let active = &self.active[index];
        if active.dispute.calls.len() == active.concerned().len() + 1 {
            self.end_dispute(index);
        }
    }

    fn end_dispute(&mut self, index: usize) {
        let active = &self.active[index];
        let ranks: BTreeSet<Rank> = match active.key.peer {
            Some(peer) => [active.group.rank, peer].into(),
            None => (0..active.group.ranks()).collect(),
        };
        let silent = "has not called it".to_owned();
        let calls =
            ranks.iter().map(|r| format!("\n  rank {r}: {}", active.dispute.calls.get(r).unwrap_or(&silent)));
        let text = format!(
            "{}: ranks disagree on what it is:{}\nMake every rank call the same operation with the same shape and dtype",
            active.label(),
            calls.collect::<String>()
        );
        self.fail(index, EngineError::ShapeMismatch(text), false);
    }

    /// Ends what has run out of time.
    pub(super) fn expire(&mut self, now: Time) {
        let disputed = |a: &ActiveOp<H::Call>| a.end_of_dispute().is_some_and(|end| now >= end);
        while let Some(index) = self.active.iter().position(disputed) {
            self.busy_turn = true;
            self.end_dispute(index);
        }
        self.tend(now);
        while let Some(index) = self.open.iter().position(|d| now >= self.end_of(d)) {
            let draft = self.open.remove(index);
            let text = format!(
                "{}: nobody has sent in {:.1?}. Which rank was to send, and with this tag?",
                draft.label(),
                now.saturating_sub(draft.started)
            );
            self.end(draft.call, Err(EngineError::Deadline(text)));
        }
    }

    /// When a receive from anybody has failed.
    pub(super) fn end_of(&self, draft: &Draft<H::Call>) -> Time {
        draft.started.saturating_add(self.limits(draft, None).fail)
    }
}
