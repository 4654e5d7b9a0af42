//! Virtual time, and the queue of what is to happen.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;

/// Nanoseconds since the start of the run.
pub(crate) type Time = u64;

/// A time later than everything.
pub(crate) const NEVER: Time = Time::MAX;

pub(crate) fn time(duration: Duration) -> Time {
    duration.as_nanos().try_into().unwrap_or(NEVER)
}

/// Events in order of time; those of one moment in the order in which they were announced.
#[derive(Debug)]
pub(crate) struct Queue<E> {
    heap: BinaryHeap<Reverse<Due<E>>>,
    announced: u64,
}

#[derive(Debug)]
struct Due<E> {
    key: (Time, u64),
    event: E,
}

impl<E> Queue<E> {
    pub(crate) fn new() -> Queue<E> {
        Queue { heap: BinaryHeap::new(), announced: 0 }
    }

    /// Announces an event; one that is to happen [`NEVER`] does not.
    pub(crate) fn push(&mut self, at: Time, event: E) {
        if at == NEVER {
            return;
        }
        self.heap.push(Reverse(Due { key: (at, self.announced), event }));
        self.announced += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<(Time, E)> {
        let Reverse(due) = self.heap.pop()?;
        Some((due.key.0, due.event))
    }
}

impl<E> PartialEq for Due<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<E> Eq for Due<E> {}

impl<E> PartialOrd for Due<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Due<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_one_moment_keep_their_order() {
        let mut queue = Queue::new();
        for (at, event) in [(5, 'c'), (1, 'a'), (5, 'd'), (NEVER, 'x'), (1, 'b')] {
            queue.push(at, event);
        }
        let order: Vec<(Time, char)> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [(1, 'a'), (1, 'b'), (5, 'c'), (5, 'd')]);
    }
}
