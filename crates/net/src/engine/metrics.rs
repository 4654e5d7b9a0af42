//! Figures of a group: what went over its links and who came last; and the notes that members leave at rank 0.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tweed_proto::Reach;
use tweed_schedule::Rank;

use super::{Engine, GroupState};
use crate::connect::descriptor::host_name;
use crate::link::message::{Kind, Message};
use crate::link::stats::{LinkStats, Packets, Wires};
use crate::link::stream::Payload;
use crate::operation::active::ActiveOp;

/// How a rank came to the operations of a group.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Punctuality {
    times_last: u64,
    lateness: Duration,
}

impl GroupState {
    /// Counts who came last to an operation that has ended well, and how long after the first, who may be this rank.
    pub(super) fn count_arrivals(&mut self, run: &ActiveOp) {
        let first = run.late.first_words().map(|(_, at)| at).fold(run.op.started, Instant::min);
        for (rank, at) in run.late.first_words() {
            self.punctuality.entry(rank).or_default().lateness += at - first;
        }
        let last = match run.came_last {
            true => Some(self.members.rank),
            false => run.late.first_words().max_by_key(|&(_, at)| at).map(|(rank, _)| rank),
        };
        if let Some(rank) = last {
            self.punctuality.entry(rank).or_default().times_last += 1;
        }
    }
}

impl Engine {
    /// One row per rank of a group; none if it is closed.
    pub(crate) fn stats(&self, group: u32) -> Vec<LinkStats> {
        self.groups.get(&group).map_or_else(Vec::new, |state| {
            (0..state.members.ranks()).map(|rank| self.link_stats(state, rank)).collect()
        })
    }

    fn link_stats(&self, state: &GroupState, rank: Rank) -> LinkStats {
        let members = &state.members;
        let Punctuality { times_last, lateness } = state.punctuality.get(&rank).copied().unwrap_or_default();
        let peer = self.links.peers.get(members.peers[rank as usize]);
        let link = match (peer, members.reach[rank as usize]) {
            (None, _) => "self",
            (Some(_), Reach::Shared) => "shm",
            (Some(_), Reach::Wire) => members.wire(),
        };
        let far = members.packets.as_ref().filter(|_| link == "ltp");
        let figures = far.and_then(|packets| packets.figures(members.peers[rank as usize]));
        LinkStats {
            rank,
            host: peer.map_or_else(host_name, |p| p.host.clone()),
            link,
            traffic: peer.map_or_else(Default::default, |p| p.traffic),
            wires: peer.map_or_else(Wires::default, |p| Wires::of(&p.streams)),
            packets: figures.map(Packets::from).unwrap_or_default(),
            times_last,
            lateness,
        }
    }

    /// Leaves a text at rank 0 of a group, over the one left before.
    pub(crate) fn set_note(&mut self, group: u32, text: Vec<u8>) {
        let Some(state) = self.groups.get_mut(&group) else { return };
        let rank = state.members.rank;
        if rank == 0 {
            state.notes.insert(rank, text);
            return;
        }
        let to = state.members.peers[0];
        let message = Message { bytes: text.len() as u32, ..Message::new(Kind::Note, group, 0) };
        self.links.carry(to, &message, Payload::Text(text));
        self.flush_wires();
    }

    /// A member has left a note here.
    pub(super) fn keep_note(&mut self, peer: usize, group: u32, text: Vec<u8>) {
        if let Some(state) = self.groups.get_mut(&group) {
            state.notes.extend(state.members.rank_of(peer).map(|rank| (rank, text)));
        }
    }

    /// The latest note of each rank that has left one.
    pub(crate) fn notes(&self, group: u32) -> BTreeMap<Rank, Vec<u8>> {
        self.groups.get(&group).map(|state| state.notes.clone()).unwrap_or_default()
    }
}
