//! Who waits at a relay for the other one of its pair.

use std::collections::VecDeque;

/// So many wait at most; who has waited longest goes when there are more, and calls again.
const MOST_WAITING: usize = 256;

struct Half<S> {
    from: String,
    to: String,
    socket: S,
}

/// The ends that wait: of each pair one at most, as the other one takes it along.
pub(super) struct Waiting<S> {
    halves: VecDeque<Half<S>>,
}

impl<S> Default for Waiting<S> {
    fn default() -> Waiting<S> {
        Waiting { halves: VecDeque::new() }
    }
}

impl<S> Waiting<S> {
    /// `from` has called for `to`. Returns the socket of that one if it waits, else lets this one wait. A later call takes the
    /// place of an earlier one.
    pub(super) fn meet(&mut self, from: &str, to: &str, socket: S) -> Option<(S, S)> {
        self.halves.retain(|half| (half.from.as_str(), half.to.as_str()) != (from, to));
        let other = self.halves.iter().position(|half| (half.from.as_str(), half.to.as_str()) == (to, from));
        if let Some(half) = other.and_then(|at| self.halves.remove(at)) {
            return Some((half.socket, socket));
        }
        if self.halves.len() == MOST_WAITING {
            self.halves.pop_front();
        }
        self.halves.push_back(Half { from: from.into(), to: to.into(), socket });
        None
    }

    /// Lets all of them go.
    pub(super) fn clear(&mut self) {
        self.halves.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_meet_that_have_called_for_each_other() {
        let mut waiting = Waiting::default();
        assert_eq!(waiting.meet("a", "b", 1), None);
        assert_eq!(waiting.meet("a", "c", 2), None);
        assert_eq!(waiting.meet("b", "c", 3), None);
        assert_eq!(waiting.meet("b", "a", 4), Some((1, 4)));
        assert_eq!(waiting.meet("c", "b", 5), Some((3, 5)));
        assert_eq!(waiting.meet("b", "a", 6), None, "who has met waits no more");
    }

    #[test]
    fn a_later_call_takes_the_place_of_an_earlier_one() {
        let mut waiting = Waiting::default();
        assert_eq!(waiting.meet("a", "b", 1), None);
        assert_eq!(waiting.meet("a", "b", 2), None);
        assert_eq!(waiting.meet("b", "a", 3), Some((2, 3)));
        assert_eq!(waiting.halves.len(), 0);
    }

    #[test]
    fn only_so_many_wait() {
        let mut waiting = Waiting::default();
        for number in 0..=MOST_WAITING {
            assert_eq!(waiting.meet(&number.to_string(), "b", number), None);
        }
        assert_eq!(waiting.halves.len(), MOST_WAITING);
        assert_eq!(waiting.meet("b", "0", 999), None);
        assert_eq!(waiting.meet("b", "9", 1000), Some((9, 1000)));
    }
}
