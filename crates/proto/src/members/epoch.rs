//! What is agreed: an epoch.

use std::collections::BTreeSet;

use super::voters::Voters;
use crate::hub::Key;

/// No epoch has more members.
pub const MOST_MEMBERS: usize = 1024;
/// No epoch has more witnesses.
pub const MOST_WITNESSES: usize = 15;
/// No address of a witness is longer: the longest name of a host, and a port.
pub const MOST_ADDRESS_BYTES: usize = 260;
/// No epoch lists more missing links.
pub const MOST_MISSING: usize = 4096;

/// One life of a process that is a member or a witness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// Its static key: its permanent id.
    pub key: Key,
    /// Another one for each time that it begins without knowing what it promised before; a later one is higher.
    pub incarnation: u64,
}

/// One of those that decide on the next epoch without a part in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Witness {
    /// The witness as a member.
    pub member: Member,
    /// Where members call it, in their drivers' words.
    pub address: String,
}

/// What a process asks for that wants to be a witness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The witness in whose place it wants to be; its own key, if it is another life of that one.
    pub of: Key,
    /// Where it is called, as in [`Witness`].
    pub address: String,
}

/// Who is a member, from when on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// One more than the one before.
    pub number: u64,
    /// In the order of their ranks.
    pub members: Vec<Member>,
    /// Who decides on the next epoch.
    pub voters: Voters,
    /// Pairs of ranks, the lower one first and in order, that cannot use the link between them.
    pub missing: Vec<(u16, u16)>,
    /// It holds from this step on, or earlier if the epoch before it broke.
    pub first_step: u64,
    /// A member of the one before was lost, or a link that it did not list as missing: what waits for them waits in vain.
    /// Who leaves in good order is not lost.
    pub broken: bool,
}

impl Epoch {
    /// The epoch of the founders.
    pub fn first(members: Vec<Member>, voters: Voters) -> Epoch {
        Epoch { number: 1, members, voters, missing: Vec::new(), first_step: 0, broken: false }
    }

    /// The rank of this life of a process.
    pub fn rank(&self, member: Member) -> Option<usize> {
        self.members.iter().position(|&other| other == member)
    }

    /// The rank of whatever life of a process has this key.
    pub fn rank_of(&self, key: &Key) -> Option<usize> {
        self.members.iter().position(|other| other.key == *key)
    }

    /// Whether it can be an epoch at all, whoever says so.
    pub fn is_sound(&self) -> bool {
        let keys: BTreeSet<&Key> = self.members.iter().map(|member| &member.key).collect();
        let voters: BTreeSet<Key> = self.voters().iter().map(|voter| voter.key).collect();
        let (count, votes) = (self.members.len(), self.voters().len());
        let (most, witnesses) = match &self.voters {
            Voters::Members => (MOST_MEMBERS, &[][..]),
            Voters::Witnesses(witnesses) => (MOST_WITNESSES, &witnesses[..]),
        };
        let fits = |&(low, high): &(u16, u16)| low < high && usize::from(high) < count;
        (1..=MOST_MEMBERS).contains(&count)
            && (1..=most).contains(&votes)
            && (keys.len(), voters.len()) == (count, votes)
            && witnesses.iter().all(|witness| witness.address.len() <= MOST_ADDRESS_BYTES)
            && self.missing.len() <= MOST_MISSING
            && self.missing.iter().all(fits)
            && self.missing.is_sorted_by(|a, b| a < b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn epoch(count: u8) -> Epoch {
        Epoch::first((0..count).map(|id| Member { key: [id; 32], incarnation: 1 }).collect(), Voters::Members)
    }

    proptest! {
        #[test]
        fn a_set_and_its_complement_are_never_both_quorums(count in 1u8..14, picked in any::<u16>()) {
            let epoch = epoch(count);
            let (inside, outside): (BTreeSet<Member>, BTreeSet<Member>) =
                epoch.members.iter().partition(|member| picked >> member.key[0] & 1 == 1);
            prop_assert_eq!(u8::from(epoch.is_quorum(&inside)) + u8::from(epoch.is_quorum(&outside)), 1);
        }
    }

    #[test]
    fn another_incarnation_has_no_vote() {
        let mut votes: BTreeSet<Member> = epoch(3).members.into_iter().take(2).collect();
        assert!(epoch(3).is_quorum(&votes));
        votes = votes.into_iter().map(|member| Member { incarnation: 2, ..member }).collect();
        assert!(!epoch(3).is_quorum(&votes));
    }

    #[test]
    fn a_key_twice_or_a_link_to_nowhere_is_no_epoch() {
        let mut twice = epoch(2);
        assert!(twice.is_sound());
        twice.members[1] = Member { incarnation: 2, ..twice.members[0] };
        assert!(!twice.is_sound());
        for missing in [vec![(1, 0)], vec![(0, 2)], vec![(0, 1), (0, 1)]] {
            assert!(!Epoch { missing, ..epoch(2) }.is_sound());
        }
    }
}
