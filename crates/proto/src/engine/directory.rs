//! Which processes this one has met, and by which call: so that both ends of a pair mean the same link.
//!
//! Theory of operation. A link is made by one call of the process that dials; the call's number (`attempt`) grows with
//! each call of that process and goes with the greeting, so it names the link at both ends. An entry is
//!
//! - *live* from `enter` on;
//! - *broken* once the engine has lost the peer (`Peers::is_lost`), or from
//!   `give_up` on, when the other end has told that it lost the link. It never becomes live again: both ends meet anew,
//!   as a peer with a new number, and the old number stays with the groups that used it;
//! - *replaced* by an entry with a greater `attempt`. A smaller one is refused, so a half-dead old call cannot push out
//!   a newer link.
//!
//! Its lock is the innermost: nothing else is locked while it is held.

use std::collections::BTreeMap;

/// A descriptor lists no more broken links than this, the latest ones: it goes through the launcher's store.
pub const MOST_BROKEN: usize = 64;

/// The link to one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known<K> {
    /// Its number in the engine.
    pub peer: usize,
    /// The call that made the link.
    pub attempt: u64,
    /// The key that the process has proven to have, over sealed wires.
    pub key: Option<K>,
    given_up: bool,
}

/// A call that a later one of the same process has overtaken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outdated;

/// The peers that this process knows; the module's documentation describes it.
#[derive(Debug)]
pub struct Directory<K> {
    by_uid: BTreeMap<String, Known<K>>,
}

impl<K> Default for Directory<K> {
    fn default() -> Directory<K> {
        Directory { by_uid: BTreeMap::new() }
    }
}

impl<K: Copy> Directory<K> {
    /// Notes a link that has just been made. Returns the one that it replaces.
    ///
    /// # Errors
    /// A later call of that process has made one.
    pub fn enter(
        &mut self,
        uid: &str,
        peer: usize,
        (attempt, key): (u64, Option<K>),
    ) -> Result<Option<usize>, Outdated> {
        let old = self.by_uid.get(uid);
        if old.is_some_and(|old| old.attempt >= attempt) {
            return Err(Outdated);
        }
        let old = old.map(|old| old.peer);
        self.by_uid.insert(uid.to_owned(), Known { peer, attempt, key, given_up: false });
        Ok(old)
    }

    /// The link to that process, unless it was given up. The engine knows whether it was lost since.
    pub fn find(&self, uid: &str) -> Option<Known<K>> {
        self.by_uid.get(uid).copied().filter(|known| !known.given_up)
    }

    /// Notes that process `uid` has lost the link that its call `attempt` had made. Returns the peer that has to go.
    pub fn give_up(&mut self, uid: &str, attempt: u64) -> Option<usize> {
        let known = self.by_uid.get_mut(uid).filter(|k| k.attempt <= attempt && !k.given_up)?;
        known.given_up = true;
        Some(known.peer)
    }

    /// The links for which `is_lost` holds, or that were given up, the latest `MOST_BROKEN` of them.
    pub fn broken(&self, is_lost: impl Fn(usize) -> bool) -> Vec<(String, u64)> {
        let mut broken: Vec<_> = self.by_uid.iter().filter(|(_, k)| k.given_up || is_lost(k.peer)).collect();
        broken.sort_by_key(|(_, known)| std::cmp::Reverse(known.peer));
        broken.truncate(MOST_BROKEN);
        broken.into_iter().map(|(uid, known)| (uid.clone(), known.attempt)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_call_replaces_a_link_and_an_earlier_one_does_not() {
        let mut directory = Directory::<u8>::default();
        assert_eq!(directory.enter("a", 0, (5, None)), Ok(None));
        assert_eq!(directory.enter("a", 1, (5, None)), Err(Outdated));
        assert_eq!(directory.enter("a", 1, (4, None)), Err(Outdated));
        assert_eq!(directory.enter("a", 2, (6, None)), Ok(Some(0)));
        assert_eq!(directory.find("a").map(|k| (k.peer, k.attempt)), Some((2, 6)));
    }

    #[test]
    fn a_link_that_the_other_end_has_lost_is_given_up_once() {
        let mut directory = Directory::<u8>::default();
        directory.enter("a", 3, (7, None)).unwrap();
        assert_eq!(directory.give_up("a", 6), None, "it lost an earlier one");
        assert_eq!(directory.give_up("b", 7), None);
        assert_eq!(directory.give_up("a", 7), Some(3));
        assert_eq!((directory.give_up("a", 7), directory.find("a")), (None, None));
        assert_eq!(directory.enter("a", 4, (8, None)), Ok(Some(3)));
        assert!(directory.find("a").is_some());
    }

    #[test]
    fn a_descriptor_lists_the_latest_broken_links() {
        let mut directory = Directory::<u8>::default();
        for peer in 0..200 {
            directory.enter(&format!("{peer}"), peer, (1, None)).unwrap();
        }
        directory.give_up("7", 1);
        let broken = directory.broken(|peer| peer < 100 && peer != 7);
        assert_eq!(broken.len(), MOST_BROKEN);
        assert_eq!(broken[0], ("99".to_owned(), 1));
        assert_eq!(directory.broken(|_| false), [("7".to_owned(), 1)]);
    }
}
