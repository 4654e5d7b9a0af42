//! Who may have a link to a hub, and which one is whose.
//!
//! A member is its key. When it calls again its newer link counts, and the older one ends: what broke it may not have been
//! heard of at this end. Who was expelled stays out, whatever else is said.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The public half of a member's key pair: its permanent id.
pub type Key = [u8; 32];

/// Why a caller that has proven its key gets no link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barred {
    /// There is a list, and it is not on it.
    Unlisted,
    /// The caller was expelled.
    Expelled,
    /// There are as many members as there may be.
    Full,
}

impl fmt::Display for Barred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Barred::Unlisted => "its key is not on the list of members",
            Barred::Expelled => "it was expelled",
            Barred::Full => "there are as many members as there may be",
        })
    }
}

/// The members of a hub that are linked, and who else may be.
#[derive(Debug)]
pub struct Roster {
    linked: BTreeMap<Key, u64>,
    listed: Option<BTreeSet<Key>>,
    expelled: BTreeSet<Key>,
    most: usize,
}

impl Default for Roster {
    /// A roster by which anybody may come.
    fn default() -> Roster {
        Roster { linked: BTreeMap::new(), listed: None, expelled: BTreeSet::new(), most: usize::MAX }
    }
}

impl Roster {
    /// Lets only those on the list come from now on, if there is one, and at most `most` at a time. Returns the links that
    /// have to end.
    pub fn admit(&mut self, listed: Option<BTreeSet<Key>>, most: usize) -> Vec<u64> {
        (self.listed, self.most) = (listed, most);
        let turned: Vec<Key> = self.linked.keys().filter(|key| self.barred(key).is_some()).copied().collect();
        turned.iter().filter_map(|key| self.linked.remove(key)).collect()
    }

    /// This one does not come any more. Returns its link, which has to end.
    pub fn expel(&mut self, key: &Key) -> Option<u64> {
        self.expelled.insert(*key);
        self.linked.remove(key)
    }

    /// A caller that has proven this key has the link `link` from now on. Returns an older one of its, which has to end.
    pub fn enter(&mut self, key: Key, link: u64) -> Result<Option<u64>, Barred> {
        if let Some(why) = self.barred(&key) {
            return Err(why);
        }
        if !self.linked.contains_key(&key) && self.linked.len() >= self.most {
            return Err(Barred::Full);
        }
        Ok(self.linked.insert(key, link))
    }

    /// The link has ended, if it is still the member's.
    pub fn leave(&mut self, key: &Key, link: u64) {
        if self.linked.get(key) == Some(&link) {
            self.linked.remove(key);
        }
    }

    /// How many are linked.
    pub fn linked(&self) -> usize {
        self.linked.len()
    }

    fn barred(&self, key: &Key) -> Option<Barred> {
        let unlisted = self.listed.as_ref().is_some_and(|listed| !listed.contains(key));
        if self.expelled.contains(key) {
            return Some(Barred::Expelled);
        }
        unlisted.then_some(Barred::Unlisted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Key = [1; 32];
    const B: Key = [2; 32];

    #[test]
    fn a_member_that_calls_again_has_its_newer_link() {
        let mut roster = Roster::default();
        assert_eq!(roster.enter(A, 1), Ok(None));
        assert_eq!(roster.enter(A, 2), Ok(Some(1)));
        roster.leave(&A, 1); // news of the older one, which come late
        assert_eq!(roster.linked(), 1);
        roster.leave(&A, 2);
        assert_eq!(roster.linked(), 0);
    }

    #[test]
    fn a_full_hub_lets_in_who_is_in_already() {
        let mut roster = Roster::default();
        roster.admit(None, 1);
        assert_eq!(roster.enter(A, 1), Ok(None));
        assert_eq!(roster.enter(B, 2), Err(Barred::Full));
        assert_eq!(roster.enter(A, 3), Ok(Some(1)));
    }

    #[test]
    fn who_is_taken_off_the_list_loses_its_link() {
        let mut roster = Roster::default();
        roster.enter(A, 1).unwrap();
        roster.enter(B, 2).unwrap();
        assert_eq!(roster.admit(Some(BTreeSet::from([B])), 10), [1]);
        assert_eq!(roster.enter(A, 3), Err(Barred::Unlisted));
        assert_eq!(roster.admit(Some(BTreeSet::from([A, B])), 10), [0u64; 0]);
        assert_eq!(roster.enter(A, 4), Ok(None));
    }

    #[test]
    fn who_was_expelled_stays_out_though_it_is_listed() {
        let mut roster = Roster::default();
        roster.enter(A, 1).unwrap();
        assert_eq!(roster.expel(&A), Some(1));
        assert_eq!(roster.expel(&A), None);
        roster.admit(Some(BTreeSet::from([A])), 10);
        assert_eq!(roster.enter(A, 2), Err(Barred::Expelled));
    }
}
