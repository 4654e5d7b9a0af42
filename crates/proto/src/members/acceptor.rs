//! A voter's side of the agreement on one epoch.

use super::{Epoch, Member};

/// Ballots are compared by round, and then by who makes them; no two proposers ever make the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ballot {
    /// Counts what a proposer has tried.
    pub round: u64,
    /// The member that makes it.
    pub by: Member,
}

/// What a voter answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// No lower ballot is accepted any more. This is what was accepted before, if anything.
    Promised(Option<(Ballot, Epoch)>),
    /// The proposal is accepted.
    Accepted,
    /// This ballot was promised, which is higher.
    Refused(Ballot),
}

/// What a voter has promised and accepted, about the epoch after its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acceptor {
    /// The highest ballot that it has promised.
    pub promised: Option<Ballot>,
    /// What it has accepted under the highest ballot.
    pub accepted: Option<(Ballot, Epoch)>,
}

impl Acceptor {
    /// Asked to accept nothing lower than this.
    pub fn prepare(&mut self, ballot: Ballot) -> Answer {
        match self.promised {
            Some(promised) if promised > ballot => Answer::Refused(promised),
            _ => {
                self.promised = Some(ballot);
                Answer::Promised(self.accepted.clone())
            }
        }
    }

    /// Asked to accept an epoch.
    pub fn accept(&mut self, ballot: Ballot, epoch: Epoch) -> Answer {
        match self.promised {
            Some(promised) if promised > ballot => Answer::Refused(promised),
            _ => {
                self.promised = Some(ballot);
                self.accepted = Some((ballot, epoch));
                Answer::Accepted
            }
        }
    }
}
