//! What one process sends another, whole and in order, over links that break between processes that live.
//!
//! **Theory of operation.** Each end has a [`Channel`]. Items are numbered from 1 on, and kept until the other end has said
//! that it has taken them: every message has a [`Mark`], which says so as well. Over a new link, but for the first, nothing is
//! sent before the other end has said over it how many it has taken ([`Channel::resume`]); then all that is kept leaves over this
//! link. So what a link that broke has swallowed leaves once more, and nothing else does.
//!
//! A pair may have two links at a time, or one end takes a link for one that stands, and the other does not: an item that comes
//! twice is known by its number.
//!
//! What cannot happen: an item is taken twice, or before one that was sent earlier; an item is kept that the other end is known
//! to have taken.

use std::collections::VecDeque;

/// So many items may be taken before the other end is told of it without having been sent anything: it keeps as many.
const MOST_UNTOLD: u64 = 32;

/// The first bytes of each message between two processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The number of the item that the message brings; 0: it brings none.
    pub number: u64,
    /// How many items of the other end its sender has taken.
    pub taken: u64,
}

/// A mark that nobody can have sent: it speaks of items that were not sent, or passes over some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it has sent item {number} and taken {taken}, after {before} items that came and {sent} that were sent"
)]
pub struct OutOfOrder {
    /// The number of the mark: see [`Mark`].
    pub number: u64,
    /// What the mark says is taken: see [`Mark`].
    pub taken: u64,
    /// How many of its items had come.
    pub before: u64,
    /// How many items had been sent to it.
    pub sent: u64,
}

/// One end's state; see above.
#[derive(Debug)]
pub struct Channel<T> {
    /// What the other end may not have taken, the oldest first.
    kept: VecDeque<T>,
    /// How many items it has taken.
    acknowledged: u64,
    /// How many items have left over the link that was resumed last; none while there is no such link.
    left: Option<u64>,
    /// How many of the other end's items were taken here; and below, of how many of these it knows.
    taken: u64,
    told: u64,
}

impl<T> Default for Channel<T> {
    fn default() -> Channel<T> {
        Channel { kept: VecDeque::new(), acknowledged: 0, left: None, taken: 0, told: 0 }
    }
}

impl<T> Channel<T> {
    /// An item is to be sent.
    pub fn push(&mut self, item: T) {
        self.kept.push_back(item);
    }

    /// How many items are kept.
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    /// The next item that may leave over the link that was resumed last.
    #[must_use]
    pub fn poll(&mut self) -> Option<(Mark, &T)> {
        let left = self.left?;
        let item = self.kept.get((left - self.acknowledged) as usize)?;
        self.left = Some(left + 1);
        self.told = self.taken;
        Some((Mark { number: left + 1, taken: self.taken }, item))
    }

    /// What is to be said over a link that stands: how many items were taken here.
    #[must_use]
    pub fn greet(&mut self) -> Mark {
        self.told = self.taken;
        Mark { number: 0, taken: self.taken }
    }

    /// What is to be sent if nothing else is: once the other end has not been told of so many items, or of `MOST_UNTOLD`.
    #[must_use]
    pub fn poll_taken(&mut self, untold: u64) -> Option<Mark> {
        let is_due = self.taken - self.told >= untold.clamp(1, MOST_UNTOLD) && self.left.is_some();
        is_due.then(|| self.greet())
    }

    /// A message has come: is its item the next one? Then it counts as taken. Returns besides which items the other end has
    /// taken, as it says.
    ///
    /// # Errors
    /// Its mark makes no sense.
    pub fn handle(&mut self, mark: Mark) -> Result<(bool, Vec<T>), OutOfOrder> {
        let sent = self.acknowledged + self.kept.len() as u64;
        if mark.taken > sent || mark.number > self.taken + 1 {
            let (Mark { number, taken }, before) = (mark, self.taken);
            return Err(OutOfOrder { number, taken, before, sent });
        }
        let is_next = mark.number == self.taken + 1;
        self.taken += u64::from(is_next);
        if mark.number > 0 && !is_next {
            self.told = self.told.min(mark.number - 1); // the other end has not heard that this was taken
        }
        let more = mark.taken.saturating_sub(self.acknowledged);
        let known = self.kept.drain(..more as usize).collect();
        self.acknowledged += more;
        self.left = self.left.map(|left| left.max(self.acknowledged));
        Ok((is_next, known))
    }

    /// The other end has taken something, and has said so.
    pub fn is_heard(&self) -> bool {
        self.acknowledged > 0
    }

    /// No link has stood before: the other end has taken nothing.
    pub fn is_new(&self) -> bool {
        self.acknowledged == 0 && self.taken == 0 && self.left.is_none()
    }

    /// What is kept leaves over another link from now on: the first one, one over which the other end has said how many items it
    /// has taken, or one that stood before. What was told over another one may have been lost with it.
    pub fn resume(&mut self) {
        (self.left, self.told) = (Some(self.acknowledged), 0);
    }

    /// The link that was resumed last has ended.
    pub fn interrupt(&mut self) {
        self.left = None;
    }
}

#[cfg(test)]
mod tests {
    use tweed_rng::Rng;

    use super::*;

    /// A message on its way: with its mark, whether it greets, and its item.
    type Sent = (Mark, bool, Option<u32>);

    /// Two ends, and up to two links of which each brings what enters it in order, until it breaks.
    #[derive(Default)]
    struct Pair {
        ends: [Channel<u32>; 2],
        pushed: [u32; 2],
        came: [Vec<u32>; 2],
        again: usize,
        links: Vec<[VecDeque<Sent>; 2]>,
        /// Over which link each end sends.
        over: [Option<usize>; 2],
        lost: usize,
    }

    impl Pair {
        fn stand(&mut self) {
            self.links.push(Default::default());
            self.greet(self.links.len() - 1);
        }

        fn greet(&mut self, link: usize) {
            for end in 0..2 {
                let mark = self.ends[end].greet();
                self.links[link][end].push_back((mark, true, None));
            }
        }

        /// A link breaks, with all that is on it.
        fn cut(&mut self, link: usize) {
            self.lost += self.links.remove(link).iter().map(VecDeque::len).sum::<usize>();
            for end in 0..2 {
                match self.over[end] {
                    Some(over) if over == link => {
                        self.ends[end].interrupt();
                        self.over[end] = (!self.links.is_empty()).then_some(0);
                        self.over[end].into_iter().for_each(|_| self.ends[end].resume());
                    }
                    over => self.over[end] = over.map(|over| over - usize::from(over > link)),
                }
            }
        }

        fn flush(&mut self, end: usize, at_once: bool) {
            let Some(over) = self.over[end] else { return };
            while let Some((mark, &item)) = self.ends[end].poll() {
                self.links[over][end].push_back((mark, false, Some(item)));
            }
            let taken = self.ends[end].poll_taken(if at_once { 1 } else { MOST_UNTOLD });
            self.links[over][end].extend(taken.map(|mark| (mark, false, None)));
        }

        /// The oldest message of a direction comes out at its other end.
        fn bring(&mut self, link: usize, from: usize) {
            let Some((mark, greets, item)) = self.links[link][from].pop_front() else { return };
            let to = 1 - from;
            let (is_next, known) = self.ends[to].handle(mark).unwrap();
            assert!(known.windows(2).all(|pair| pair[0] + 1 == pair[1]));
            match item {
                Some(item) if is_next => self.came[to].push(item),
                Some(_) => self.again += 1,
                None => assert!(!is_next),
            }
            if greets {
                self.ends[to].resume();
                self.over[to] = Some(link);
            }
        }
    }

    fn run(seed: u64) -> Pair {
        let (mut rng, mut pair) = (Rng::new(seed), Pair::default());
        for _ in 0..400 {
            let end = rng.index(2);
            match rng.below(20) {
                0 if pair.links.len() < 2 => pair.stand(),
                1 if !pair.links.is_empty() => pair.cut(rng.index(pair.links.len())),
                2..=6 => {
                    pair.ends[end].push(pair.pushed[end]);
                    pair.pushed[end] += 1;
                }
                7..=12 => pair.flush(end, rng.bernoulli(0.5)),
                _ if !pair.links.is_empty() => pair.bring(rng.index(pair.links.len()), end),
                _ => {}
            }
        }
        if pair.links.is_empty() {
            pair.stand();
        }
        for _ in 0..2000 {
            (0..2).for_each(|end| pair.flush(end, true));
            (0..pair.links.len()).for_each(|link| (0..2).for_each(|end| pair.bring(link, end)));
        }
        pair
    }

    #[test]
    fn all_comes_once_and_in_order_whatever_breaks() {
        let (mut lost, mut again) = (0, 0);
        for seed in 0..2000 {
            let pair = run(seed);
            for end in 0..2 {
                let all: Vec<u32> = (0..pair.pushed[1 - end]).collect();
                assert_eq!(pair.came[end], all, "seed {seed}");
                assert_eq!(pair.ends[end].kept(), 0, "seed {seed}");
            }
            (lost, again) = (lost + pair.lost, again + pair.again);
        }
        assert!(lost > 10_000 && again > 100, "links that broke had little on them: {lost}, {again}");
    }

    #[test]
    fn what_was_not_sent_cannot_be_taken_and_nothing_is_passed_over() {
        let mut channel = Channel::<u32>::default();
        channel.push(1);
        assert!(channel.handle(Mark { number: 0, taken: 2 }).is_err());
        let why = channel.handle(Mark { number: 2, taken: 0 }).unwrap_err();
        assert_eq!(why, OutOfOrder { number: 2, taken: 0, before: 0, sent: 1 });
        assert_eq!(channel.handle(Mark { number: 1, taken: 1 }), Ok((true, vec![1])));
        assert_eq!(channel.handle(Mark { number: 1, taken: 0 }), Ok((false, vec![])));
    }

    /// One end has sent all items, and the other has taken them and told so, which is lost.
    fn untold() -> [Channel<u32>; 2] {
        let mut ends = [Channel::default(), Channel::default()];
        ends.iter_mut().for_each(Channel::resume);
        let [one, other] = &mut ends;
        (0..6).for_each(|item| one.push(item));
        while let Some((mark, _)) = one.poll() {
            assert!(other.handle(mark).unwrap().0);
        }
        assert!(other.poll_taken(1).is_some() && other.poll_taken(1).is_none());
        ends
    }

    #[test]
    fn what_was_told_over_a_link_that_broke_is_told_over_the_next() {
        let [mut one, mut other] = untold();
        other.interrupt();
        other.resume(); // over a link that stands: the other end has no reason to say anything
        one.handle(other.poll_taken(1).unwrap()).unwrap();
        assert_eq!(one.kept(), 0);
    }

    #[test]
    fn what_comes_again_is_told_again() {
        let [mut one, mut other] = untold();
        one.interrupt();
        one.resume(); // by a greeting from before the other end had taken anything
        while let Some((mark, _)) = one.poll() {
            assert!(!other.handle(mark).unwrap().0);
        }
        one.handle(other.poll_taken(1).unwrap()).unwrap();
        assert_eq!(one.kept(), 0);
    }

    #[test]
    fn the_other_end_is_told_after_some_items_or_at_once() {
        let mut channel = Channel::<u32>::default();
        channel.resume();
        for number in 1..MOST_UNTOLD {
            channel.handle(Mark { number, taken: 0 }).unwrap();
            assert_eq!(channel.poll_taken(u64::MAX), None);
        }
        channel.handle(Mark { number: MOST_UNTOLD, taken: 0 }).unwrap();
        assert_eq!(channel.poll_taken(u64::MAX), Some(Mark { number: 0, taken: MOST_UNTOLD }));
        assert_eq!(channel.poll_taken(1), None);
        channel.handle(Mark { number: MOST_UNTOLD + 1, taken: 0 }).unwrap();
        assert!(channel.poll_taken(1).is_some());
    }
}
