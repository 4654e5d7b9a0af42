//! A process as voter and as proposer: what of the agreement goes over the wire.

use std::cmp::Ordering;

use super::Node;
use crate::hub::Key;
use crate::members::proposer::Question;
use crate::members::{Answer, Ballot, Epoch, Member, Message};

impl Node {
    pub(super) fn handle_vote(&mut self, from: Key, message: Message) {
        use Message::{Accept, Accepted, Prepare, Promise, Refuse};
        let (Prepare { base, .. }
        | Promise { base, .. }
        | Refuse { base, .. }
        | Accept { base, .. }
        | Accepted { base, .. }) = message
        else {
            return;
        };
        let Some(epoch) = self.epoch.clone() else { return };
        match base.cmp(&epoch.number) {
            Ordering::Less => return self.send(from, Message::Decided(epoch)),
            Ordering::Greater => return self.send_heartbeat(from), // which is answered by the epoch
            Ordering::Equal => {}
        }
        match message {
            Prepare { ballot, .. } => self.vote(&epoch, from, ballot, None),
            Accept { ballot, value, .. } => self.vote(&epoch, from, ballot, Some(value)),
            Promise { ballot, voter, accepted, .. } if voter.key == from => {
                self.promised(&epoch, ballot, voter, accepted);
            }
            Accepted { ballot, voter, .. } if voter.key == from => self.accepted(&epoch, ballot, voter),
            Refuse { promised, .. } => self.refused(promised),
            _ => {}
        }
    }

    /// Asks all voters for what they have not answered yet.
    pub(super) fn ask_voters(&mut self) {
        let Some(epoch) = self.epoch.clone() else { return };
        let (base, ballot, own) = (epoch.number, self.proposer.ballot(), self.me.key);
        // Itself last: with its own vote the agreement may be over.
        for voter in epoch.voters().iter().filter(|voter| voter.key != own) {
            let message = match self.proposer.question(*voter) {
                Some(Question::Promise) => Message::Prepare { base, ballot },
                Some(Question::Accept(value)) => Message::Accept { base, ballot, value: value.clone() },
                None => continue,
            };
            self.send(voter.key, message);
        }
        let value = match self.proposer.question(self.me) {
            Some(Question::Accept(value)) => Some(value.clone()),
            Some(Question::Promise) => None,
            None => return,
        };
        if epoch.voters().contains(&self.me) {
            self.vote(&epoch, self.me.key, ballot, value);
        }
    }

    /// Votes on a ballot, if it is a voter: promises it, or accepts an epoch under it.
    fn vote(&mut self, epoch: &Epoch, from: Key, ballot: Ballot, value: Option<Epoch>) {
        let (base, voter) = (epoch.number, self.me);
        let follows = value.as_ref().is_none_or(|value| value.number == base + 1);
        if !epoch.voters().contains(&voter) || !follows {
            return;
        }
        let answer = match value {
            None => self.acceptor.prepare(ballot),
            Some(value) => self.acceptor.accept(ballot, value),
        };
        if !matches!(answer, Answer::Refused(_)) {
            self.store();
        }
        match (answer, from == self.me.key) {
            (Answer::Promised(accepted), true) => self.promised(epoch, ballot, voter, accepted),
            (Answer::Accepted, true) => self.accepted(epoch, ballot, voter),
            (Answer::Refused(promised), true) => self.refused(promised),
            (Answer::Promised(accepted), false) => {
                self.send(from, Message::Promise { base, ballot, voter, accepted });
            }
            (Answer::Accepted, false) => self.send(from, Message::Accepted { base, ballot, voter }),
            (Answer::Refused(promised), false) => self.send(from, Message::Refuse { base, promised }),
        }
    }

    fn promised(&mut self, epoch: &Epoch, ballot: Ballot, voter: Member, accepted: Option<(Ballot, Epoch)>) {
        if self.proposer.promised(epoch, ballot, voter, accepted) {
            self.ask_voters();
        }
    }

    fn accepted(&mut self, epoch: &Epoch, ballot: Ballot, voter: Member) {
        let Some(decided) = self.proposer.accepted(epoch, ballot, voter) else { return };
        let mut hear: Vec<Key> = self.peers();
        hear.extend(decided.members.iter().copied().chain(decided.voters()).map(|member| member.key));
        hear.sort_unstable();
        hear.dedup();
        hear.retain(|&key| key != self.me.key);
        hear.into_iter().for_each(|to| self.send(to, Message::Decided(decided.clone())));
        self.adopt(decided);
    }

    fn refused(&mut self, by: Ballot) {
        if self.proposer.refused(by) {
            self.pause();
        }
    }

    /// Leaves it to others for a while, each time longer on average.
    pub(super) fn pause(&mut self) {
        self.proposer.stop();
        self.outdone = (self.outdone + 1).min(5);
        self.pause_until = self.now + 1 + self.rng.below(self.settings.stagger << self.outdone);
    }
}
