//! A proposer's side of the agreement on one epoch: ballots, one at a time, until one is decided.

use std::collections::{BTreeMap, BTreeSet};

use super::{Ballot, Epoch, Member};

/// Proposes epochs, as the module describes it.
#[derive(Clone, Debug)]
pub struct Proposer {
    me: Member,
    round: u64,
    phase: Phase,
}

#[derive(Clone, Debug)]
enum Phase {
    Idle,
    /// Asks for promises; has its own proposal, and what voters had accepted.
    Preparing {
        own: Epoch,
        promised: BTreeMap<Member, Option<(Ballot, Epoch)>>,
    },
    /// Asks voters to accept this.
    Accepting {
        value: Epoch,
        accepted: BTreeSet<Member>,
    },
}

/// What a voter is asked for.
pub(super) enum Question<'a> {
    Promise,
    Accept(&'a Epoch),
}

impl Proposer {
    /// A proposer that has proposed nothing.
    pub fn new(me: Member) -> Proposer {
        Proposer { me, round: 0, phase: Phase::Idle }
    }

    /// Whether a ballot of its own is under way.
    pub fn is_busy(&self) -> bool {
        !matches!(self.phase, Phase::Idle)
    }

    /// Whether voters are asked to accept an epoch: it may be decided.
    pub fn is_accepting(&self) -> bool {
        matches!(self.phase, Phase::Accepting { .. })
    }

    /// The ballot that is under way, or was the last one.
    pub fn ballot(&self) -> Ballot {
        Ballot { round: self.round, by: self.me }
    }

    /// Begins a ballot above all it has heard of.
    pub fn begin(&mut self, own: Epoch) {
        self.round = self.round.saturating_add(1);
        self.phase = Phase::Preparing { own, promised: BTreeMap::new() };
    }

    /// Gives its ballot up.
    pub fn stop(&mut self) {
        self.phase = Phase::Idle;
    }

    /// A voter has promised another ballot. Whether that ends this one's.
    pub fn refused(&mut self, by: Ballot) -> bool {
        let ends = self.is_busy() && by > self.ballot();
        self.round = self.round.max(by.round);
        if ends {
            self.stop();
        }
        ends
    }

    /// A voter of `base` has promised this ballot. Whether voters are to be asked to accept an epoch now.
    pub fn promised(
        &mut self,
        base: &Epoch,
        ballot: Ballot,
        voter: Member,
        accepted: Option<(Ballot, Epoch)>,
    ) -> bool {
        let expected = self.ballot();
        let Phase::Preparing { own, promised } = &mut self.phase else { return false };
        if ballot != expected {
            return false;
        }
        promised.insert(voter, accepted);
        if !base.is_quorum(&promised.keys().copied().collect()) {
            return false;
        }
        let highest = promised.values().flatten().max_by_key(|(ballot, _)| *ballot);
        let value = highest.map_or_else(|| own.clone(), |(_, epoch)| epoch.clone());
        self.phase = Phase::Accepting { value, accepted: BTreeSet::new() };
        true
    }

    /// A voter of `base` has accepted under this ballot. Returns the next epoch, if that decides it.
    pub fn accepted(&mut self, base: &Epoch, ballot: Ballot, voter: Member) -> Option<Epoch> {
        let expected = self.ballot();
        let Phase::Accepting { value, accepted } = &mut self.phase else { return None };
        if ballot != expected {
            return None;
        }
        accepted.insert(voter);
        let decided = base.is_quorum(accepted);
        decided.then(|| value.clone())
    }

    /// What a voter has still to be asked for, as nothing has come from it.
    pub(super) fn question(&self, voter: Member) -> Option<Question<'_>> {
        match &self.phase {
            Phase::Preparing { promised, .. } if !promised.contains_key(&voter) => Some(Question::Promise),
            Phase::Accepting { value, accepted } if !accepted.contains(&voter) => {
                Some(Question::Accept(value))
            }
            _ => None,
        }
    }
}
