//! Who votes on the next epoch: members, or witnesses that were named; and how many of them decide.

use std::collections::BTreeSet;

use super::epoch::{Epoch, Member, Witness};
use crate::hub::Key;

/// Who decides on the next epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Voters {
    /// The members themselves vote.
    Members,
    /// These alone: then members may be lost all but one at once.
    Witnesses(Vec<Witness>),
}

impl Epoch {
    /// The members or witnesses whose votes count.
    pub fn voters(&self) -> Vec<Member> {
        match &self.voters {
            Voters::Members => self.members.clone(),
            Voters::Witnesses(witnesses) => witnesses.iter().map(|witness| witness.member).collect(),
        }
    }

    /// More than half of the voters, or exactly half with the lowest of them. Any two that this holds for have a voter in common.
    pub fn is_quorum(&self, of: &BTreeSet<Member>) -> bool {
        let voters = self.voters();
        let count = voters.iter().filter(|voter| of.contains(voter)).count();
        let has_lowest = voters.iter().min().is_some_and(|lowest| of.contains(lowest));
        2 * count > voters.len() || (2 * count == voters.len() && has_lowest)
    }

    /// The witness with this key.
    pub fn witness(&self, key: &Key) -> Option<Member> {
        let Voters::Witnesses(witnesses) = &self.voters else { return None };
        witnesses.iter().map(|witness| witness.member).find(|other| other.key == *key)
    }
}
