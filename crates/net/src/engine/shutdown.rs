//! Leaving in good order: a group, or the network.
//!
//! A farewell must not overtake what was said before it. So it goes out over every stream of a pair, and counts
//! once it has come over all of them; and a group is left only when no peer reads from this rank any more.

use std::sync::Arc;

use tweed_schedule::Rank;

use super::Engine;
use crate::error::EngineError;
use crate::group::Membership;
use crate::link::message::{Kind, Message};
use crate::link::stream::Payload;
use crate::operation::active::ActiveOp;

impl Engine {
    /// Tells all peers that this process leaves.
    pub(crate) fn send_bye(&mut self) {
        for number in self.groups.keys().copied().collect::<Vec<_>>() {
            self.send_reason(number);
        }
        for peer in 0..self.links.peers.len() {
            self.send_shutdown(peer, Kind::Bye, 0);
        }
        self.flush_wires();
    }

    /// Tells the members of groups that were closed here, once nothing of them is under way.
    pub(super) fn send_leave(&mut self) {
        if self.leaving.is_empty() || self.links.is_congested() {
            return;
        }
        let ended = |members: &Arc<Membership>| !self.runs.iter().any(|r| r.key.group == members.number);
        let (left, leaving) = std::mem::take(&mut self.leaving).into_iter().partition(ended);
        self.leaving = leaving;
        for members in Vec::into_iter(left) {
            for &peer in members.peers.iter().filter(|&&p| p != usize::MAX) {
                self.send_shutdown(peer, Kind::Leave, members.number);
            }
        }
    }

    /// Tells the members of a group that cannot go on here why not. Else one that has not seen the cause yet would
    /// take the rank that leaves because of it for the cause.
    pub(super) fn send_reason(&mut self, number: u32) {
        let Some(state) = self.groups.get(&number) else { return };
        let Some(error) = &state.broken else { return };
        let text = error.to_string().into_bytes();
        let next = Message::new(Kind::Failed, number, state.next_op);
        let message = Message { send: error.code(), bytes: text.len() as u32, ..next };
        for &peer in state.members.peers.iter().filter(|&&p| p != usize::MAX) {
            self.links.carry(peer, &message, Payload::Text(text.clone()));
        }
    }

    fn send_shutdown(&mut self, peer: usize, kind: Kind, group: u32) {
        for stream in 0..self.links.peers[peer].streams.len() as u32 {
            let message = Message { slice: stream, ..Message::new(kind, group, 0) };
            self.links.carry(peer, &message, Payload::Nothing);
        }
    }

    /// `peer` has said farewell over one more stream.
    pub(super) fn handle_shutdown(&mut self, peer: usize, message: Message) {
        let heard = self.shutdowns.entry((peer, message.kind as u8, message.group)).or_default();
        *heard += 1;
        if *heard < self.links.peers[peer].streams.len() {
            return;
        }
        match message.kind {
            Kind::Bye => self.handle_lost(peer, super::faults::LEFT.into()),
            _ => self.handle_leave(peer, message.group),
        }
    }

    fn handle_leave(&mut self, peer: usize, number: u32) {
        self.catch_up();
        let Some(state) = self.groups.get_mut(&number) else { return };
        state.left.extend(state.members.rank_of(peer));
        self.fail_for_left(number);
    }

    /// Ends the operations of a group that wait for a rank which has left it.
    pub(super) fn fail_for_left(&mut self, number: u32) {
        let left = self.groups.get(&number).map(|state| state.left.clone());
        let Some(left) = left.filter(|left| !left.is_empty()) else { return };
        let waits = |run: &ActiveOp| -> Option<Rank> {
            let runs = run.key.group == number && run.is_alive();
            runs.then(|| run.waits_for())?.into_iter().find(|rank| left.contains(rank))
        };
        while let Some((index, rank)) =
            self.runs.iter().enumerate().find_map(|(i, r)| waits(r).map(|rank| (i, rank)))
        {
            let run = &self.runs[index];
            let host = &self.links.peers[run.group.peers[rank as usize]].host;
            let text = format!(
                "rank {rank} on {host} has left the group before {}: it called destroy_process_group, or ended. Let all \
                 ranks make the same calls before they leave",
                run.label()
            );
            let error = self.told_of(index).unwrap_or(EngineError::PeerLost(text));
            self.fail(index, error, true);
        }
    }
}
