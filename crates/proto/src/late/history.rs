//! How long operations usually take.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// So many of the latest values count.
const WINDOW: usize = 64;
/// Fewer samples than this say nothing.
const LEAST: usize = 4;
/// The middle of a long row moves slowly: it is looked up anew once in so many values.
const RENEW_EVERY: usize = 8;

/// Operations that take about equally long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    name: &'static str,
    size_class: u32,
}

impl Kind {
    /// The kind of an operation called `name` on `bytes` bytes: sizes within a factor of two count as equal.
    pub fn new(name: &'static str, bytes: u64) -> Kind {
        Kind { name, size_class: u64::BITS - bytes.leading_zeros() }
    }
}

/// The middle of what was seen, and how far from it the others lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usual {
    /// Half of the values lie below.
    pub median: Duration,
    /// Half of the values lie closer to the median (the median absolute deviation).
    pub spread: Duration,
}

/// What one group has seen. A single outlier moves neither the median nor the spread.
#[derive(Clone, Debug, Default)]
pub struct History {
    kinds: BTreeMap<Kind, Samples>,
}

impl History {
    /// An operation has ended well after `took`.
    pub fn handle_end(&mut self, kind: Kind, took: Duration) {
        self.kinds.entry(kind).or_default().push(took);
    }

    /// How long operations of that kind take; `None` as long as too few have been seen.
    pub fn usual(&self, kind: Kind) -> Option<Usual> {
        self.kinds.get(&kind)?.usual
    }
}

#[derive(Clone, Debug, Default)]
struct Samples {
    latest: VecDeque<Duration>,
    pushed: usize,
    usual: Option<Usual>,
}

impl Samples {
    fn push(&mut self, value: Duration) {
        if self.latest.len() == WINDOW {
            self.latest.pop_front();
        }
        self.latest.push_back(value);
        self.pushed += 1;
        if self.latest.len() >= LEAST && (self.pushed < WINDOW || self.pushed.is_multiple_of(RENEW_EVERY)) {
            self.usual = Some(self.measure());
        }
    }

    fn measure(&self) -> Usual {
        let mut values: Vec<Duration> = self.latest.iter().copied().collect();
        let median = middle(&mut values);
        let mut distances: Vec<Duration> = values.iter().map(|v| v.abs_diff(median)).collect();
        Usual { median, spread: middle(&mut distances) }
    }
}

fn middle(values: &mut [Duration]) -> Duration {
    let half = values.len() / 2;
    *values.select_nth_unstable(half).1
}
