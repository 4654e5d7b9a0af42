//! Leaving in good order: a group, or the network.
//!
//! That a process leaves must not overtake what it sent before. So it goes out over every stream of a pair, and counts
//! once it has come over all of them; and a group is left only when no peer reads from this rank any more.

use std::sync::Arc;

use tweed_schedule::Rank;

use super::error::EngineError;
use super::host::{Host, Payload};
use super::members::Members;
use super::message::{Kind, Message};
use super::operation::ActiveOp;
use super::{Engine, GroupNumber, Key};

/// Why a peer is gone that has announced it.
pub(super) const LEFT: &str = "it has left in good order";

/// What takes effect once all that had come before it was handled.
#[derive(Debug)]
pub(super) enum Departure {
    /// A peer is lost.
    Lost(usize, String),
    /// A peer has left a group.
    Left(usize, GroupNumber),
}

impl<H: Host> Engine<H> {
    /// Tells all peers that this process leaves.
    pub fn send_bye(&mut self) {
        for number in self.groups.keys().copied().collect::<Vec<_>>() {
            self.send_reason(number);
        }
        for peer in 0..self.peers.len() {
            self.send_shutdown(peer, Kind::Bye, GroupNumber::NONE);
        }
        self.sent_bye = true;
        self.flush_wires();
    }

    /// Tells the members of groups that were closed here, once nothing of them is under way.
    pub(super) fn send_leave(&mut self) {
        if self.leaving.is_empty() || self.peers.is_congested() {
            return;
        }
        let ended = |members: &Arc<Members>| !self.active.iter().any(|a| a.key.group == members.number);
        let (left, leaving) = std::mem::take(&mut self.leaving).into_iter().partition(ended);
        self.leaving = leaving;
        for members in Vec::into_iter(left) {
            members.others().for_each(|peer| self.send_shutdown(peer, Kind::Leave, members.number));
        }
    }

    /// Tells the members of a group that cannot go on here why not. Else one that has not seen the cause yet would
    /// take the rank that leaves because of it for the cause.
    pub(super) fn send_reason(&mut self, number: GroupNumber) {
        let Some(group) = self.groups.get(&number) else { return };
        let Some(error) = &group.broken else { return };
        let (members, error) = (Arc::clone(&group.members), error.clone());
        let key = Key { group: number, op: group.next_op, peer: None };
        self.send_failed(&members, key, &error);
    }

    fn send_shutdown(&mut self, peer: usize, kind: Kind, group: GroupNumber) {
        let streams = self.peers.get(peer).map_or(0, |p| p.streams);
        for stream in 0..streams as u32 {
            let message = Message { slice: stream, ..Message::new(kind, group, 0) };
            self.peers.send(peer, &message, Payload::Nothing, &mut self.host);
        }
    }

    /// `peer` has sent over one more stream that it leaves.
    pub(super) fn handle_shutdown(&mut self, peer: usize, message: Message) {
        let key = (peer, message.kind as u8, message.group);
        let received = self.shutdowns.entry(key).or_default();
        *received += 1;
        if *received < self.peers.get(peer).map_or(0, |p| p.streams) {
            return;
        }
        self.shutdowns.remove(&key);
        match message.kind {
            Kind::Bye => self.handle_lost(peer, LEFT.into()),
            _ => self.losing.push_back(Departure::Left(peer, message.group)),
        }
    }

    /// Nothing else is left to handle: what was put off takes effect, one after the other.
    pub(super) fn depart(&mut self) -> bool {
        match self.losing.pop_front() {
            Some(Departure::Lost(peer, why)) => self.finish_loss(peer, why),
            Some(Departure::Left(peer, group)) => self.finish_leave(peer, group),
            None => return false,
        }
        true
    }

    /// All that the peer had sent was handled. It reads nothing of the group any more.
    fn finish_leave(&mut self, peer: usize, number: GroupNumber) {
        self.active.iter_mut().filter(|a| a.key.group == number).for_each(|active| active.forgo(peer));
        let Some(group) = self.groups.get_mut(&number) else { return };
        group.left.extend(group.members.rank_of(peer));
        self.fail_for_left(number);
    }

    /// Ends the operations of a group that wait for a rank which has left it.
    pub(super) fn fail_for_left(&mut self, number: GroupNumber) {
        let left = self.groups.get(&number).map(|group| group.left.clone());
        let Some(left) = left.filter(|left| !left.is_empty()) else { return };
        let waits = |(index, active): (usize, &ActiveOp<H::Call>)| -> Option<(usize, Rank)> {
            let runs = active.key.group == number && active.is_alive();
            left.iter().find(|&&rank| runs && active.needs(rank)).map(|&rank| (index, rank))
        };
        while let Some((index, rank)) = self.active.iter().enumerate().find_map(waits) {
            let error = self.verdict_on(index).unwrap_or_else(|| self.left_error(index, rank));
            self.fail(index, error, true);
        }
    }

    fn left_error(&self, index: usize, rank: Rank) -> EngineError {
        let active = &self.active[index];
        let peer = self.peers.get(active.group.peers[rank as usize]);
        let host = peer.map_or("an unknown host", |p| p.host.as_str());
        EngineError::PeerLost(format!(
            "rank {rank} on {host} has left the group before {}: it called destroy_process_group, or ended. Let all \
             ranks make the same calls before they leave",
            active.label()
        ))
    }
}
