//! Where callers wait, unread, until a group names them: the descriptors may come later than the calls.

use std::collections::VecDeque;

use crate::framing::Refusal;
use crate::secure::Key;

/// So many callers may wait; who has waited longest goes when there are more.
const MOST_CALLERS: usize = 1024;

/// Who called: the name that it gave, and the key that it proved to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) uid: String,
    pub(crate) key: Option<Key>,
}

/// One call: its links of type `L`, as far as they are there.
struct Call<L> {
    caller: Caller,
    attempt: u64,
    links: Vec<Option<L>>,
}

/// The callers, with the links of type `L` that each has opened in its latest call.
pub(crate) struct Pending<L> {
    waiting: VecDeque<Call<L>>,
    /// Keys of which somebody with another secret has said that they are his.
    suspects: VecDeque<Key>,
}

impl<L> Default for Pending<L> {
    fn default() -> Pending<L> {
        Pending { waiting: VecDeque::new(), suspects: VecDeque::new() }
    }
}

impl<L> Pending<L> {
    /// Lets a link wait: number `stream` of `streams` of that call of the caller's. Refused if the caller contradicts
    /// itself, or has called again since.
    pub(crate) fn enter(
        &mut self,
        caller: Caller,
        attempt: u64,
        (stream, streams): (u32, u32),
        link: L,
    ) -> Result<(), Refusal> {
        match self.waiting.iter().position(|c| c.caller == caller) {
            Some(at) if self.waiting[at].attempt > attempt => return Err(Refusal::Outdated),
            // What its earlier call has left is of no use to anybody.
            Some(at) if self.waiting[at].attempt < attempt => drop(self.waiting.remove(at)),
            _ => {}
        }
        let at = self.waiting.iter().position(|c| c.caller == caller).unwrap_or_else(|| {
            if self.waiting.len() == MOST_CALLERS {
                self.waiting.pop_front();
            }
            let links = (0..streams).map(|_| None).collect();
            self.waiting.push_back(Call { caller, attempt, links });
            self.waiting.len() - 1
        });
        let links = Some(&mut self.waiting[at].links).filter(|l| l.len() == streams as usize);
        let place = links.and_then(|l| l.get_mut(stream as usize)).ok_or(Refusal::Garbled("a greeting"))?;
        *place = Some(link);
        Ok(())
    }

    /// All links of that caller, once they are there, and the number of its call.
    pub(crate) fn take(&mut self, caller: &Caller) -> Option<(u64, Vec<L>)> {
        let whole = |c: &Call<L>| c.caller == *caller && c.links.iter().all(Option::is_some);
        let call = self.waiting.iter().position(whole).and_then(|at| self.waiting.remove(at))?;
        Some((call.attempt, call.links.into_iter().flatten().collect()))
    }

    /// Somebody with another secret says that this key is his. Nothing proves it.
    pub(crate) fn suspect(&mut self, key: Key) {
        if !self.suspects.contains(&key) {
            self.suspects.truncate(MOST_CALLERS - 1);
            self.suspects.push_front(key);
        }
    }

    /// Whether somebody with another secret has said that this key is his.
    pub(crate) fn is_suspect(&self, key: &Key) -> bool {
        self.suspects.contains(key)
    }

    /// Somebody calls himself so, and has another key.
    pub(crate) fn has_impostor(&self, caller: &Caller) -> bool {
        self.waiting.iter().any(|c| c.caller.uid == caller.uid && c.caller.key != caller.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(uid: &str, key: u8) -> Caller {
        Caller { uid: uid.into(), key: Some([key; 32]) }
    }

    fn enter<L>(pending: &mut Pending<L>, caller: Caller, place: (u32, u32), link: L) -> Result<(), Refusal> {
        pending.enter(caller, 1, place, link)
    }

    #[test]
    fn a_caller_is_complete_when_all_links_are_there() {
        let (mut pending, a) = (Pending::default(), caller("a", 1));
        assert_eq!(enter(&mut pending, a.clone(), (1, 2), "second"), Ok(()));
        assert_eq!(pending.take(&a), None);
        assert_eq!(enter(&mut pending, a.clone(), (0, 2), "first"), Ok(()));
        assert_eq!(pending.take(&a), Some((1, vec!["first", "second"])));
        assert_eq!(pending.take(&a), None);
    }

    #[test]
    fn links_of_two_calls_are_never_mixed() {
        let (mut pending, a) = (Pending::default(), caller("a", 1));
        assert_eq!(pending.enter(a.clone(), 4, (0, 2), "old"), Ok(()));
        assert_eq!(pending.enter(a.clone(), 5, (1, 2), "new"), Ok(()));
        assert_eq!(pending.take(&a), None);
        assert_eq!(pending.enter(a.clone(), 4, (1, 2), "old"), Err(Refusal::Outdated));
        assert_eq!(pending.enter(a.clone(), 5, (0, 2), "new"), Ok(()));
        assert_eq!(pending.take(&a), Some((5, vec!["new", "new"])));
    }

    #[test]
    fn another_key_is_another_caller() {
        let mut pending = Pending::default();
        assert_eq!(enter(&mut pending, caller("a", 2), (0, 1), "impostor"), Ok(()));
        assert_eq!(pending.take(&caller("a", 1)), None);
        assert!(pending.has_impostor(&caller("a", 1)));
        assert_eq!(enter(&mut pending, caller("a", 1), (0, 1), "member"), Ok(()));
        assert_eq!(pending.take(&caller("a", 1)), Some((1, vec!["member"])));
    }

    #[test]
    fn who_contradicts_itself_is_refused() {
        let (mut pending, garbled) = (Pending::default(), Err(Refusal::Garbled("a greeting")));
        assert_eq!(enter(&mut pending, caller("a", 1), (0, 2), ()), Ok(()));
        assert_eq!(enter(&mut pending, caller("a", 1), (2, 3), ()), garbled);
        assert_eq!(enter(&mut pending, caller("a", 1), (2, 2), ()), garbled);
    }

    #[test]
    fn only_so_many_callers_wait() {
        let mut pending = Pending::default();
        for i in 0..=MOST_CALLERS {
            assert_eq!(enter(&mut pending, caller(&i.to_string(), 1), (0, 1), i), Ok(()));
            pending.suspect((i as u128).to_le_bytes().repeat(2).try_into().unwrap());
        }
        assert_eq!(pending.take(&caller("0", 1)), None);
        assert_eq!(pending.take(&caller("1", 1)), Some((1, vec![1])));
        assert_eq!(pending.suspects.len(), MOST_CALLERS);
        assert!(!pending.is_suspect(&[0; 32]));
    }
}
