//! Where in a sum how many of its summands are missing.

use std::ops::Range;

/// A stretch of a buffer in which equally many summands are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Bytes of the buffer.
    pub range: Range<u32>,
    /// How many summands are missing there.
    pub absent: u32,
}

/// Cuts a buffer of `bytes` bytes where the number of missing summands changes.
///
/// `missing` has one entry per summand: its missing ranges, ascending, none beyond the buffer.
/// Returns adjoining spans that cover the buffer, in order; none for an empty one.
///
/// Cost: `n log n` for `n` ranges in all.
pub fn spans(bytes: u32, missing: &[&[Range<u32>]]) -> Vec<Span> {
    let ranges = missing.iter().flat_map(|ranges| ranges.iter());
    let mut edges: Vec<(u32, i32)> = ranges.flat_map(|r| [(r.start, 1), (r.end, -1)]).collect();
    edges.sort_unstable();
    edges.push((bytes, 0));
    let (mut found, mut from, mut absent) = (Vec::<Span>::new(), 0, 0i32);
    for (at, change) in edges {
        if at > from {
            match found.last_mut().filter(|span| span.absent == absent as u32) {
                Some(span) => span.range.end = at,
                None => found.push(Span { range: from..at, absent: absent as u32 }),
            }
            from = at;
        }
        absent += change;
    }
    found
}
