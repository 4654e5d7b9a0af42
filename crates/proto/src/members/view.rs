//! Who hears whom, as far as a member knows.

use std::collections::BTreeMap;

use super::{Epoch, Heartbeat, Member, Ranks};
use crate::hub::Key;

/// What is known of one process, from its last heartbeat.
#[derive(Clone, Debug)]
struct Heard {
    at: u64,
    /// False also when its link has ended since.
    hears_me: bool,
    /// Before this tick it is new: it is taken to be heard though nothing may have come of it yet.
    new_until: u64,
    has_spoken: bool,
    heartbeat: Heartbeat,
}

/// What a member has heard of the others of its epoch.
#[derive(Clone, Debug, Default)]
pub struct View {
    heard: BTreeMap<Key, Heard>,
    silence: u64,
}

impl View {
    /// Who was not heard for `silence` ticks is lost.
    pub fn new(silence: u64) -> View {
        View { heard: BTreeMap::new(), silence }
    }

    /// These are heard from now on. Who is new among them has as much time to be heard as who fell silent now.
    pub(super) fn watch(&mut self, peers: impl Iterator<Item = Member>, now: u64) {
        let mut before = std::mem::take(&mut self.heard);
        for peer in peers {
            let known =
                before.remove(&peer.key).filter(|heard| heard.heartbeat.incarnation == peer.incarnation);
            let heartbeat = Heartbeat { incarnation: peer.incarnation, ..Heartbeat::default() };
            // A member that votes comes twice.
            let new = Heard {
                at: now,
                hears_me: true,
                new_until: now + self.silence,
                has_spoken: false,
                heartbeat,
            };
            self.heard.entry(peer.key).or_insert(known.unwrap_or(new));
        }
    }

    /// A process has sent a heartbeat. Whether it is one of those that are heard: another life of it is not.
    pub(super) fn note(&mut self, from: &Key, heartbeat: Heartbeat, now: u64) -> bool {
        match self.heard.get_mut(from) {
            Some(heard) if heard.heartbeat.incarnation == heartbeat.incarnation => {
                *heard =
                    Heard { at: now, hears_me: heartbeat.hears_you, heartbeat, has_spoken: true, ..*heard };
                true
            }
            _ => false,
        }
    }

    /// The link to a process has ended, or it was started anew. Whether that is news.
    pub(super) fn lost(&mut self, key: &Key) -> bool {
        let Some(heard) = self.heard.get_mut(key) else { return false };
        heard.at = 0;
        std::mem::take(&mut heard.hears_me)
    }

    /// Whether anything has come from it lately.
    pub(super) fn hears(&self, key: &Key, now: u64) -> bool {
        self.heard.get(key).is_some_and(|heard| heard.at > 0 && now - heard.at < self.silence)
    }

    /// Whether this process and that one hear each other.
    pub(super) fn is_mutual(&self, key: &Key, now: u64) -> bool {
        self.hears(key, now) && self.heard.get(key).is_some_and(|heard| heard.hears_me)
    }

    /// What it has said last, if it is heard.
    pub(super) fn heartbeat(&self, key: &Key, now: u64) -> Option<&Heartbeat> {
        self.heard.get(key).filter(|_| self.is_mutual(key, now)).map(|heard| &heard.heartbeat)
    }

    /// The ranks that hear `me`, one of the members, and are heard by it; those that are new are taken to.
    fn mutual(&self, epoch: &Epoch, me: Member, now: u64) -> Ranks {
        let others = epoch.members.iter().enumerate();
        others.filter(|(_, m)| **m == me || self.is_mutual(&m.key, now)).map(|(rank, _)| rank).collect()
    }

    /// What `me` says to others of that: those that it has heard.
    pub(super) fn said(&self, epoch: &Epoch, me: Member, now: u64) -> Ranks {
        let has_spoken = |key: &Key| self.heard.get(key).is_some_and(|heard| heard.has_spoken);
        let mutual = self.mutual(epoch, me, now);
        let others = epoch.members.iter().enumerate().filter(|(rank, _)| mutual.contains(*rank));
        others.filter(|(_, m)| **m == me || has_spoken(&m.key)).map(|(rank, _)| rank).collect()
    }

    /// Some member of the epoch is new, and may have yet to say whom it hears.
    pub(super) fn has_new(&self, epoch: &Epoch, now: u64) -> bool {
        epoch.members.iter().any(|member| self.is_new(&member.key, now))
    }

    fn is_new(&self, key: &Key, now: u64) -> bool {
        self.heard.get(key).is_some_and(|heard| now < heard.new_until)
    }

    /// Which ranks `me` reaches, over others if need be, and which links between them do not work.
    pub(super) fn reach(&self, epoch: &Epoch, me: Member, now: u64) -> (Vec<usize>, Vec<(u16, u16)>) {
        let own = self.mutual(epoch, me, now);
        let rows: Vec<Option<&Ranks>> = epoch.members.iter().map(|m| self.row(epoch, &m.key, now)).collect();
        let size = epoch.members.len();
        let mut all =
            rows.iter().zip(&epoch.members).map(|(row, m)| if *m == me { Some(&own) } else { *row });
        if all.all(|row| row.is_some_and(|row| row.has_all(size))) {
            return ((0..size).collect(), Vec::new()); // as nearly always, and much quicker
        }
        let is_new = |rank: usize| self.is_new(&epoch.members[rank].key, now);
        let is_listed = |a: usize, b: usize| epoch.missing.contains(&(a.min(b) as u16, a.max(b) as u16));
        let works = |a: usize, b: usize| match (epoch.members[a] == me, epoch.members[b] == me) {
            (true, _) => own.contains(b),
            (_, true) => own.contains(a),
            // Who is new, or has not said anything about this epoch yet, is not held against.
            _ if is_new(a) || is_new(b) => true,
            _ => match (rows[a], rows[b]) {
                (Some(a_hears), Some(b_hears)) => a_hears.contains(b) && b_hears.contains(a),
                (Some(a_hears), None) => a_hears.contains(b),
                (None, Some(b_hears)) => b_hears.contains(a),
                // Whom this one does not hear others may hear, who will say so with their first heartbeat.
                (None, None) => (own.contains(a) || own.contains(b)) && !is_listed(a, b),
            },
        };
        let mut kept: Vec<usize> = epoch.rank(me).into_iter().collect();
        let mut rest: Vec<usize> = (0..epoch.members.len()).filter(|rank| !kept.contains(rank)).collect();
        let mut next = 0;
        while next < kept.len() {
            let from = kept[next];
            // Where one of both is new, it is reached over another only if that is said.
            let must_be_said = |rank: usize| epoch.members[from] != me && (is_new(from) || is_new(rank));
            let reaches = |&rank: &usize| match must_be_said(rank) {
                true => rows[from].is_some_and(|hears| hears.contains(rank)),
                false => works(from, rank),
            };
            let (found, others) = rest.into_iter().partition(reaches);
            kept.extend::<Vec<usize>>(found);
            (rest, next) = (others, next + 1);
        }
        kept.sort_unstable();
        let mut missing = Vec::new();
        for (place, &a) in kept.iter().enumerate() {
            missing
                .extend(kept[place + 1..].iter().filter(|&&b| !works(a, b)).map(|&b| (a as u16, b as u16)));
        }
        (kept, missing)
    }

    /// With whom a member says that it hears each other, if it is heard and of this epoch.
    fn row(&self, epoch: &Epoch, key: &Key, now: u64) -> Option<&Ranks> {
        self.heartbeat(key, now)
            .filter(|heartbeat| heartbeat.epoch == epoch.number)
            .map(|heartbeat| &heartbeat.mutual)
    }
}
