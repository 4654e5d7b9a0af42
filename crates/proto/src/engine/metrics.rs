//! What is measured of a group: what went over its links and who came last; and the notes that members leave at rank 0.

use std::collections::BTreeMap;
use std::time::Duration;

use tweed_schedule::Rank;

use super::group_number::GroupNumber;
use super::groups::GroupState;
use super::host::{Host, Time};
use super::message::{Kind, Message};
use super::operation::ActiveOp;
use super::Engine;

/// What a process and one of its peers have sent each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes of values sent, or exposed to be read.
    pub bytes_out: u64,
    /// Bytes of values received, or announced.
    pub bytes_in: u64,
    /// Messages of any kind.
    pub messages_out: u64,
    /// Messages of any kind.
    pub messages_in: u64,
}

impl Traffic {
    /// Counts a message that leaves.
    pub(super) fn sent(&mut self, message: &Message) {
        self.messages_out += 1;
        self.bytes_out += value_bytes(message);
    }

    /// A message has come.
    pub(super) fn received(&mut self, message: &Message) {
        self.messages_in += 1;
        self.bytes_in += value_bytes(message);
    }
}

/// Bytes of the value that a message carries, or that it announces.
fn value_bytes(message: &Message) -> u64 {
    match message.kind {
        Kind::Readable | Kind::Writable | Kind::Placed | Kind::Carried => u64::from(message.bytes),
        _ => 0,
    }
}

/// While rank 0 does not take so much of what was sent before, notes are left out: the next one says more anyway.
const MOST_QUEUED_NOTES: u64 = 256 << 10;

/// How a rank came to the operations of a group.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Punctuality {
    times_last: u64,
    lateness: Duration,
}

/// For how long operations of a group have been under way here: from their begin to their end, several at once counted once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UnderWay {
    operations: usize,
    since: Time,
    before: Duration,
}

impl UnderWay {
    /// One more has begun.
    pub(super) fn begin(&mut self, now: Time) {
        if self.operations == 0 {
            self.since = now;
        }
        self.operations += 1;
    }

    /// One of them has ended, well or not.
    pub(super) fn end(&mut self, now: Time) {
        self.before = self.total(now);
        self.since = now;
        self.operations -= 1;
    }

    fn total(&self, now: Time) -> Duration {
        match self.operations {
            0 => self.before,
            _ => self.before + now.saturating_sub(self.since),
        }
    }
}

impl GroupState {
    /// Counts who came last to an operation that has ended well, and how long after the first, who may be this rank.
    pub(super) fn count_arrivals<C>(&mut self, active: &ActiveOp<C>) {
        let came = &active.late.first_messages;
        let first = came.values().copied().fold(active.started, Time::min);
        for (&rank, &at) in came {
            self.punctuality.entry(rank).or_default().lateness += at - first;
        }
        let last = match active.came_last {
            true => Some(self.members.rank),
            false => came.iter().max_by_key(|&(_, at)| at).map(|(&rank, _)| rank),
        };
        if let Some(rank) = last {
            self.punctuality.entry(rank).or_default().times_last += 1;
        }
    }
}

/// What this process has to do with one rank of a group, as far as the engine knows.
#[derive(Clone, Copy, Debug)]
pub struct RankStats {
    /// The process; `None` for this rank itself.
    pub peer: Option<usize>,
    /// What went to and fro, in all groups.
    pub traffic: Traffic,
    /// In so many operations of the group it was the last to come, as seen from here.
    pub times_last: u64,
    /// How long after the call here, or the first message of anybody, its first one came: all operations together.
    pub lateness: Duration,
}

impl<H: Host> Engine<H> {
    /// One row per rank of a group; none if it is closed.
    pub fn stats(&self, group: GroupNumber) -> Vec<RankStats> {
        let Some(group) = self.groups.get(&group) else { return Vec::new() };
        let row = |rank: Rank| {
            let number = group.members.peers[rank as usize];
            let peer = self.peers.get(number);
            let Punctuality { times_last, lateness } =
                group.punctuality.get(&rank).copied().unwrap_or_default();
            let traffic = peer.map(|p| p.traffic).unwrap_or_default();
            RankStats { peer: peer.map(|_| number), traffic, times_last, lateness }
        };
        (0..group.members.ranks()).map(row).collect()
    }

    /// For how long at least one operation of a group has been under way here; zero if it is closed.
    pub fn under_way(&self, group: GroupNumber) -> Duration {
        self.groups.get(&group).map(|group| group.under_way.total(self.clock)).unwrap_or_default()
    }

    /// Leaves a text at rank 0 of a group, over the one left before.
    pub fn set_note(&mut self, group: GroupNumber, text: Vec<u8>) {
        let Some(group) = self.groups.get_mut(&group) else { return };
        let rank = group.members.rank;
        if rank == 0 {
            group.notes.insert(rank, text);
            return;
        }
        let (to, message) = (group.members.peers[0], Message::new(Kind::Note, group.members.number, 0));
        if self.host.queued_bytes(to) <= MOST_QUEUED_NOTES {
            self.peers.send_text(to, &message, text, &mut self.host);
        }
        self.flush_wires();
    }

    /// A member has left a note here.
    pub(super) fn keep_note(&mut self, peer: usize, group: GroupNumber, text: Vec<u8>) {
        if let Some(group) = self.groups.get_mut(&group) {
            group.notes.extend(group.members.rank_of(peer).map(|rank| (rank, text)));
        }
    }

    /// The latest note of each rank that has left one.
    pub fn notes(&self, group: GroupNumber) -> BTreeMap<Rank, Vec<u8>> {
        self.groups.get(&group).map(|group| group.notes.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_operations_at_once_are_counted_once() {
        let ms = Duration::from_millis;
        let mut under_way = UnderWay::default();
        under_way.begin(ms(10));
        under_way.begin(ms(12));
        under_way.end(ms(15));
        assert_eq!(under_way.total(ms(18)), ms(8));
        under_way.end(ms(20));
        assert_eq!(under_way.total(ms(90)), ms(10));
        under_way.begin(ms(100));
        assert_eq!(under_way.total(ms(101)), ms(11));
    }
}
