//! When links are broken, and what that does to what goes over them.
//!
//! Live, a [`Channel`](tweed_proto::objects::Channel) keeps what one process sends another until it is known to be taken, and
//! when a link stands again the rest leaves once more, in order. So a break is nothing but a delay, and here it is one: it
//! is known beforehand when each link is broken.

use std::collections::BTreeMap;

use tweed_schedule::Rank;

use super::Setup;
use crate::clock::{time, Time};

/// When each pair does not reach each other: from when, until when, in order.
pub(crate) struct Cuts(BTreeMap<(Rank, Rank), Vec<(Time, Time)>>);

fn pair(one: Rank, other: Rank) -> (Rank, Rank) {
    (one.min(other), one.max(other))
}

impl Cuts {
    pub(crate) fn of(setup: &Setup) -> Cuts {
        let mut cuts = BTreeMap::<_, Vec<_>>::new();
        for cut in &setup.cuts {
            let begins = time(cut.at);
            let of_pair = cuts.entry(pair(cut.pair.0, cut.pair.1)).or_default();
            of_pair.push((begins, begins.saturating_add(time(cut.lasts))));
        }
        cuts.values_mut().for_each(|of_pair| of_pair.sort_unstable());
        Cuts(cuts)
    }

    /// The first break that catches what is on its way meanwhile: when it begins, and when it ends.
    pub(crate) fn catches(&self, one: Rank, other: Rank, way: (Time, Time)) -> Option<(Time, Time)> {
        let of_pair = self.0.get(&pair(one, other))?;
        of_pair.iter().copied().find(|&(begins, ends)| begins <= way.1 && ends > way.0)
    }

    /// When something small leaves and arrives that would have done so then: after each break that catches it the two ends
    /// first say what they have, which takes the latency.
    pub(crate) fn delay(&self, one: Rank, other: Rank, way: (Time, Time), latency: Time) -> (Time, Time) {
        let (mut leaves, mut arrives) = way;
        while let Some((_, ends)) = self.catches(one, other, (leaves, arrives)) {
            leaves = ends.saturating_add(latency);
            arrives = leaves.saturating_add(latency);
        }
        (leaves, arrives)
    }
}

/// What one process sends another comes in order: what has overtaken something that leaves once more waits for it.
pub(crate) struct InOrder<T> {
    sent: u64,
    next: u64,
    early: BTreeMap<u64, T>,
}

impl<T> Default for InOrder<T> {
    fn default() -> InOrder<T> {
        InOrder { sent: 0, next: 0, early: BTreeMap::new() }
    }
}

impl<T> InOrder<T> {
    /// The number of the next message that is sent.
    pub(crate) fn number(&mut self) -> u64 {
        self.sent += 1;
        self.sent - 1
    }

    /// One has come: it, if it may be taken now.
    pub(crate) fn arrive(&mut self, number: u64, item: T) -> Option<T> {
        if number == self.next {
            self.next += 1;
            return Some(item);
        }
        self.early.insert(number, item);
        None
    }

    /// One that has come early, and may be taken now.
    pub(crate) fn follow(&mut self) -> Option<T> {
        let item = self.early.remove(&self.next)?;
        self.next += 1;
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tweed_schedule::{Link, Topology};

    use super::*;
    use crate::objects::Cut;

    #[test]
    fn what_a_break_catches_leaves_when_the_two_have_met_again() {
        let topology = Topology::complete(2, Link::new(1, Duration::ZERO));
        let mut setup = Setup::new(Arc::new(topology));
        for (at, lasts) in [(200, 10), (100, 50)] {
            let (at, lasts) = (Duration::from_nanos(at), Duration::from_nanos(lasts));
            setup.cuts.push(Cut { pair: (1, 0), at, lasts });
        }
        let cuts = Cuts::of(&setup);
        assert_eq!(cuts.delay(0, 1, (80, 99), 7), (80, 99));
        assert_eq!(cuts.delay(0, 1, (80, 100), 7), (157, 164));
        assert_eq!(cuts.delay(1, 0, (149, 151), 30), (240, 270), "and is caught again");
        assert_eq!(cuts.delay(0, 1, (150, 160), 7), (150, 160));
        assert_eq!(cuts.delay(0, 2, (80, 100), 7), (80, 100));
    }
    #[test]
    fn what_came_early_waits() {
        let mut order = InOrder::default();
        let numbers: Vec<u64> = (0..4).map(|_| order.number()).collect();
        assert_eq!((order.arrive(numbers[2], 'c'), order.follow()), (None, None));
        assert_eq!((order.arrive(numbers[0], 'a'), order.follow()), (Some('a'), None));
        assert_eq!((order.arrive(numbers[1], 'b'), order.follow()), (Some('b'), Some('c')));
        assert_eq!((order.arrive(numbers[3], 'd'), order.follow()), (Some('d'), None));
    }
}
