//! Sets of bytes of a message, kept as ranges.

use std::ops::Range;

/// A set of whole numbers below 2^32, as ascending ranges that neither touch nor overlap.
///
/// Packets mostly come in order, and so do the ranges that are added or taken: an operation looks first where the
/// last one worked, and then costs the same however many ranges there are. Elsewhere it costs a binary search, and
/// a move of the ranges behind it when one appears or vanishes.
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    ranges: Vec<Range<u32>>,
    len: u32,
    /// Where the last operation worked: a guess.
    last: usize,
}

impl PartialEq for Ranges {
    fn eq(&self, other: &Ranges) -> bool {
        self.ranges == other.ranges
    }
}

impl Eq for Ranges {}

impl From<Range<u32>> for Ranges {
    fn from(range: Range<u32>) -> Ranges {
        let mut set = Ranges::default();
        set.insert(range);
        set
    }
}

impl Ranges {
    /// How many numbers are in it.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether `number` is in it.
    pub fn contains(&self, number: u32) -> bool {
        let at = self.ranges.partition_point(|range| range.end <= number);
        self.ranges.get(at).is_some_and(|range| range.contains(&number))
    }

    /// The ranges, in ascending order.
    pub fn as_slice(&self) -> &[Range<u32>] {
        &self.ranges
    }

    /// What of `range` is in the set, ascending.
    pub fn within(&self, range: &Range<u32>) -> Vec<Range<u32>> {
        let from = self.ranges.partition_point(|found| found.end <= range.start);
        let inside = self.ranges[from..].iter().take_while(|found| found.start < range.end);
        inside.map(|found| found.start.max(range.start)..found.end.min(range.end)).collect()
    }

    /// Takes all ranges out.
    pub fn clear(&mut self) {
        *self = Ranges::default();
    }

    /// Adds `range`; returns how many numbers of it are new.
    pub fn insert(&mut self, range: Range<u32>) -> u32 {
        if range.is_empty() {
            return 0;
        }
        let before = self.len;
        // All ranges from `from` to `to` touch the new one, and become one with it.
        let from = self.touching(range.start);
        let mut to = from;
        let mut union = range;
        while let Some(next) = self.ranges.get(to).filter(|next| next.start <= union.end) {
            union = union.start.min(next.start)..union.end.max(next.end);
            self.len -= next.end - next.start;
            to += 1;
        }
        self.len += union.end - union.start;
        match to - from {
            0 => self.ranges.insert(from, union),
            1 => self.ranges[from] = union,
            _ => drop(self.ranges.splice(from..to, [union])),
        }
        self.last = from;
        self.len - before
    }

    /// Takes `range` out; returns how many numbers of it were in.
    pub fn remove(&mut self, range: Range<u32>) -> u32 {
        let before = self.len;
        let mut at = self.touching(range.start);
        while let Some(found) = self.ranges.get(at).cloned().filter(|found| found.start < range.end) {
            let (left, right) =
                (found.start..found.end.min(range.start), found.start.max(range.end)..found.end);
            let cut = found.end.min(range.end).saturating_sub(found.start.max(range.start));
            if range.is_empty() || cut == 0 {
                at += 1;
                continue;
            }
            self.len -= cut;
            match (left.is_empty(), right.is_empty()) {
                (true, true) => drop(self.ranges.remove(at)),
                (false, true) => (self.ranges[at], at) = (left, at + 1),
                (true, false) => self.ranges[at] = right,
                (false, false) => {
                    self.ranges[at] = left;
                    self.ranges.insert(at + 1, right);
                    at += 2;
                }
            }
        }
        before - self.len
    }

    /// Takes out at most `most` numbers that follow each other: the first at or after `from`, or else the first of all.
    #[inline(always)] // why: `link/transmit.rs`
    pub fn take(&mut self, from: u32, most: u32) -> Option<Range<u32>> {
        let mut at = self.touching(from);
        if self.ranges.get(at).is_some_and(|found| found.end <= from) {
            at += 1;
        }
        if at >= self.ranges.len() {
            at = 0;
        }
        let found = self.ranges.get(at)?.clone();
        let start = if found.contains(&from) { from } else { found.start };
        let taken = start..start.saturating_add(most).min(found.end);
        if taken.start == found.start && taken.end < found.end {
            // The common case, without a search.
            self.ranges[at].start = taken.end;
            self.len -= taken.end - taken.start;
            self.last = at;
        } else {
            self.remove(taken.clone());
        }
        Some(taken)
    }

    /// What of `0..total` is not in the set, ascending.
    pub fn missing(&self, total: u32) -> Vec<Range<u32>> {
        let starts = std::iter::once(0).chain(self.ranges.iter().map(|range| range.end));
        let ends = self.ranges.iter().map(|range| range.start).chain([total]);
        starts.zip(ends).map(|(start, end)| start..end.min(total)).filter(|gap| !gap.is_empty()).collect()
    }

    /// Index of the first range that ends at `start` or later.
    fn touching(&self, start: u32) -> usize {
        let ends_before = |at: usize| self.ranges[at].end < start;
        let last = self.last.min(self.ranges.len());
        let fits =
            |at: usize| (at == 0 || ends_before(at - 1)) && (at == self.ranges.len() || !ends_before(at));
        match [last, last + 1].into_iter().find(|&at| at <= self.ranges.len() && fits(at)) {
            Some(at) => at,
            None => self.ranges.partition_point(|range| range.end < start),
        }
    }
}
