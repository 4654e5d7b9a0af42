//! What should change, and whose turn it is to propose it.

use super::Node;
use crate::hub::Key;
use crate::members::{Epoch, Member, Seat, Standing, Voters, Why, Witness};

/// What a member would propose now.
struct Change {
    epoch: Epoch,
    /// Whether something is lost, somebody joins, a missing link works again, a vote has begun.
    why: [bool; 4],
    /// A link between two that are kept is found broken: one of both may be gone, which others do not know yet. Or others may
    /// still be found to hear whom this one does not.
    unsure: bool,
    /// So many of the members of the last epoch stay: at least one has to, for what the others have computed.
    stay: usize,
    /// So many members that are heard propose earlier.
    before: u64,
}

impl Node {
    /// Looks at what is known, and proposes an epoch if there is reason and it is this member's turn.
    pub(super) fn review(&mut self) {
        let Some(change) = self.change() else {
            self.since = [None; 4];
            self.proposer.stop();
            self.standing = Standing::Settled;
            return;
        };
        for (since, why) in self.since.iter_mut().zip(change.why) {
            *since = if why { since.or(Some(self.now)) } else { None };
        }
        if let Some(why) = self.obstacle(&change) {
            if matches!(why, Why::NoQuorum { .. }) {
                // When the network is whole again, all that are reached are heard before anybody is given up.
                self.pause_until = self.pause_until.max(self.now + self.settings.heartbeat + 2);
            }
            self.proposer.stop();
            self.standing = Standing::Waiting(why);
            return;
        }
        self.standing = Standing::Changing;
        if self.proposer.is_busy() {
            self.go_on();
        } else if self.now >= self.turn(&change).max(self.pause_until) {
            self.ballot_began = self.now;
            self.proposer.begin(change.epoch);
            self.ask_voters();
        }
    }

    fn go_on(&mut self) {
        let age = self.now - self.ballot_began;
        if age >= 4 * self.settings.stagger {
            self.pause();
        } else if age.is_multiple_of(self.settings.stagger.max(1)) {
            self.ask_voters();
        }
    }

    /// The tick at which to propose.
    fn turn(&self, change: &Change) -> u64 {
        let s = &self.settings;
        let loss = if change.unsure { s.heartbeat + 2 } else { 0 };
        let delays = [loss, s.batch, s.silence, 4 * s.stagger]; // by then whoever has begun has given up
        let due = self.since.iter().zip(delays).filter_map(|(since, delay)| Some((*since)? + delay));
        due.min().unwrap_or(self.now) + change.before * s.stagger
    }

    fn obstacle(&self, change: &Change) -> Option<Why> {
        let epoch = self.epoch.as_ref()?;
        let members = if change.stay == 0 { 0 } else { change.epoch.members.len() };
        let min = self.settings.min_members.max(1);
        let voters = epoch.voters();
        let heard = voters.iter().copied();
        let heard = heard.filter(|v| *v == self.me || self.view.is_mutual(&v.key, self.now)).collect();
        if !epoch.is_quorum(&heard) {
            return Some(Why::NoQuorum { heard: heard.len(), voters: voters.len() });
        }
        (members < min).then_some(Why::TooFew { members, min })
    }

    /// The epoch that should be next, if there should be another one.
    fn change(&self) -> Option<Change> {
        let last = self.epoch.as_ref()?;
        let (mut reached, broken) = self.view.reach(last, self.me, self.now);
        reached.retain(|&rank| !self.joins.members().any(|joiner| joiner.key == last.members[rank].key));
        let kept: Vec<usize> =
            reached.iter().copied().filter(|&rank| !self.leaves(last.members[rank])).collect();
        let members: Vec<Member> = kept.iter().map(|&rank| last.members[rank]).collect();
        let loss = kept.len() < last.members.len();
        // Who leaves takes part until the epoch holds: it breaks no step.
        let lost = reached.len() < last.members.len();
        let fresh = broken.iter().any(|pair| !last.missing.contains(pair));
        let is_broken = lost || fresh;
        let direct = |&&rank: &&usize| self.is_heard(last.members[rank]);
        let missing = renumbered(&broken, &kept);
        let mut epoch = Epoch {
            number: last.number + 1,
            first_step: self.first_step(last, is_broken),
            members,
            voters: self.next_voters(last),
            missing,
            broken: is_broken,
        };
        let mended = !loss && broken.len() < last.missing.len();
        let before = kept.iter().filter(|&&rank| last.members[rank] != self.me).filter(direct);
        let before = before.filter(|&&rank| last.rank(self.me).is_some_and(|own| rank < own)).count() as u64;
        let room = self.settings.max_members.saturating_sub(epoch.members.len());
        epoch.members.extend(self.joins.members().take(room));
        let join = epoch.members.len() > kept.len() || epoch.voters != last.voters;
        // Who was lost may have come back; but what was accepted would be decided with the next loss, and cost that one then.
        let begun = self.acceptor.accepted.is_some() || self.proposer.is_accepting();
        let why = [loss || fresh, join, mended, begun];
        // Who is new may hear one that is not reached, and say so with its first heartbeat.
        let unsure = fresh || (lost && self.view.has_new(last, self.now));
        why.contains(&true).then_some(Change { epoch, why, unsure, stay: kept.len(), before })
    }

    /// It has said that it leaves.
    fn leaves(&self, member: Member) -> bool {
        let says_so = self.view.heartbeat(&member.key, self.now).is_some_and(|heartbeat| heartbeat.leaving);
        says_so || (member == self.me && self.leaving)
    }

    fn is_heard(&self, member: Member) -> bool {
        member == self.me || self.view.is_mutual(&member.key, self.now)
    }

    /// Witnesses that were started anew take their own places again, and others those that they ask for: one each.
    fn next_voters(&self, last: &Epoch) -> Voters {
        let Voters::Witnesses(witnesses) = &last.voters else { return Voters::Members };
        let next = |old: &Witness| {
            let takes = |(new, seat): &(Member, &Seat)| match last.witness(&new.key) {
                Some(own) => own == old.member,
                None => seat.of == old.member.key,
            };
            let new = self.joins.witnesses().find(takes);
            new.map_or_else(
                || old.clone(),
                |(member, seat)| Witness { member, address: seat.address.clone() },
            )
        };
        Voters::Witnesses(witnesses.iter().map(next).collect())
    }

    /// The step after which all that are heard are, and a few more if nothing has broken.
    fn first_step(&self, last: &Epoch, is_broken: bool) -> u64 {
        let others = last.members.iter().filter_map(|member| self.view.heartbeat(&member.key, self.now));
        let furthest = others.map(|heartbeat| heartbeat.step).fold(self.step, u64::max);
        let lead = if is_broken { 0 } else { self.settings.lead_steps };
        furthest.saturating_add(lead).max(last.first_step)
    }

    /// The other member that would propose before all others, as far as this one knows.
    pub(super) fn first_proposer(&self) -> Option<Key> {
        let epoch = self.epoch.as_ref()?;
        let first = epoch.members.iter().find(|member| self.is_heard(**member))?;
        (*first != self.me).then_some(first.key)
    }
}

/// Pairs of ranks of the last epoch that are both kept, by their places among those that are.
fn renumbered(pairs: &[(u16, u16)], kept: &[usize]) -> Vec<(u16, u16)> {
    let place = |rank: u16| kept.binary_search(&usize::from(rank)).ok().map(|place| place as u16);
    let pairs = pairs.iter().filter_map(|&(low, high)| Some((place(low)?, place(high)?)));
    pairs.take(crate::members::MOST_MISSING).collect()
}
