//! Things that wait for their time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;

/// Gives things back when they are due; those due at the same time in the order in which they came.
///
/// Cost: a comparison per doubling of its length, for each thing in and out.
#[derive(Debug)]
pub struct Queue<T> {
    heap: BinaryHeap<Reverse<Entry<T>>>,
    came: u64,
}

#[derive(Debug)]
struct Entry<T> {
    at: Duration,
    came: u64,
    thing: T,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue { heap: BinaryHeap::new(), came: 0 }
    }
}

impl<T> Queue<T> {
    /// Keeps `thing` until `at`.
    pub fn push(&mut self, at: Duration, thing: T) {
        self.heap.push(Reverse(Entry { at, came: self.came, thing }));
        self.came += 1;
    }

    /// The next thing that is due at `now`; None if none is.
    #[must_use]
    pub fn pop(&mut self, now: Duration) -> Option<T> {
        self.next_timeout().filter(|at| *at <= now)?;
        self.heap.pop().map(|Reverse(entry)| entry.thing)
    }

    /// When the next thing is due.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Duration> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Entry<T>) -> Ordering {
        (self.at, self.came).cmp(&(other.at, other.came))
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Entry<T>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Entry<T>) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Entry<T> {}
