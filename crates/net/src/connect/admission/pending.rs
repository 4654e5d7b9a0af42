//! Where callers wait, unread, until a group names them: the cards may come later than the calls.

use std::collections::VecDeque;

use crate::secure::Key;

/// So many callers may wait; who has waited longest goes when there are more.
const MOST_CALLERS: usize = 1024;

/// Who called: the name that it gave, and the key that it proved to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) uid: String,
    pub(crate) key: Option<Key>,
}

/// The callers, with the links of type `L` that each has opened.
pub(crate) struct Pending<L> {
    waiting: VecDeque<(Caller, Vec<Option<L>>)>,
}

impl<L> Default for Pending<L> {
    fn default() -> Pending<L> {
        Pending { waiting: VecDeque::new() }
    }
}

impl<L> Pending<L> {
    /// Lets a link wait: number `stream` of `streams`. `false` if the caller contradicts itself.
    pub(crate) fn enter(&mut self, caller: Caller, (stream, streams): (u32, u32), link: L) -> bool {
        if !self.waiting.iter().any(|(c, _)| *c == caller) {
            if self.waiting.len() == MOST_CALLERS {
                self.waiting.pop_front();
            }
            self.waiting.push_back((caller.clone(), (0..streams).map(|_| None).collect()));
        }
        let links = self.waiting.iter_mut().find(|(c, _)| *c == caller).map(|(_, links)| links);
        let place = links.filter(|l| l.len() == streams as usize).and_then(|l| l.get_mut(stream as usize));
        place.map(|place| *place = Some(link)).is_some()
    }

    /// All links of that caller, once they are there.
    pub(crate) fn take(&mut self, caller: &Caller) -> Option<Vec<L>> {
        let place =
            self.waiting.iter().position(|(c, links)| c == caller && links.iter().all(Option::is_some))?;
        self.waiting.remove(place).map(|(_, links)| links.into_iter().flatten().collect())
    }

    /// Somebody calls himself so, and has another key.
    pub(crate) fn has_impostor(&self, caller: &Caller) -> bool {
        self.waiting.iter().any(|(c, _)| c.uid == caller.uid && c.key != caller.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(uid: &str, key: u8) -> Caller {
        Caller { uid: uid.into(), key: Some([key; 32]) }
    }

    #[test]
    fn a_caller_is_complete_when_all_links_are_there() {
        let (mut pending, a) = (Pending::default(), caller("a", 1));
        assert!(pending.enter(a.clone(), (1, 2), "second"));
        assert_eq!(pending.take(&a), None);
        assert!(pending.enter(a.clone(), (0, 2), "first"));
        assert_eq!(pending.take(&a), Some(vec!["first", "second"]));
        assert_eq!(pending.take(&a), None);
    }

    #[test]
    fn another_key_is_another_caller() {
        let mut pending = Pending::default();
        assert!(pending.enter(caller("a", 2), (0, 1), "impostor"));
        assert_eq!(pending.take(&caller("a", 1)), None);
        assert!(pending.has_impostor(&caller("a", 1)));
        assert!(pending.enter(caller("a", 1), (0, 1), "member"));
        assert_eq!(pending.take(&caller("a", 1)), Some(vec!["member"]));
    }

    #[test]
    fn who_contradicts_itself_is_refused() {
        let mut pending = Pending::default();
        assert!(pending.enter(caller("a", 1), (0, 2), ()));
        assert!(!pending.enter(caller("a", 1), (2, 3), ()));
        assert!(!pending.enter(caller("a", 1), (2, 2), ()));
    }

    #[test]
    fn the_lobby_has_an_end() {
        let mut pending = Pending::default();
        for i in 0..=MOST_CALLERS {
            assert!(pending.enter(caller(&i.to_string(), 1), (0, 1), i));
        }
        assert_eq!(pending.take(&caller("0", 1)), None);
        assert_eq!(pending.take(&caller("1", 1)), Some(vec![1]));
    }
}
