//! The largest of few values, exactly.

use super::filter::Selection;
use super::lanes::{Lanes, Work, MAGNITUDE};

const BUCKETS_LOG: u32 = 11;

/// The least of the `count` largest magnitudes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Least {
    /// The magnitude's bits as an integer.
    pub(super) magnitude: u32,
    /// How many values of just this magnitude are among the `count`.
    pub(super) ties: usize,
}

/// Finds the least of the `count` largest magnitudes of what was selected; `count` is 1 to its number.
///
/// Cost: two passes for the range, and up to three for buckets of ever finer magnitudes.
pub(super) fn least(selection: &Selection, count: usize) -> Least {
    // SAFETY: the instruction set is one of this CPU's.
    unsafe { selection.isa.run(FindLeast { values: selection.values(), count }) }
}

struct FindLeast<'a> {
    values: &'a [f32],
    count: usize,
}

impl Work for FindLeast<'_> {
    type Output = Least;

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) -> Least {
        let (mut low, mut high) = (MAGNITUDE, 0);
        for x in self.values {
            low = low.min(x.to_bits() & MAGNITUDE);
            high = high.max(x.to_bits() & MAGNITUDE);
        }
        let above_low = self.values.iter().filter(|x| x.to_bits() & MAGNITUDE > low).count();
        if above_low < self.count {
            return Least { magnitude: low, ties: self.count - above_low };
        }
        let mut ties = self.count;
        while low < high {
            let shift = (u32::BITS - (high - low).leading_zeros()).saturating_sub(BUCKETS_LOG);
            let mut buckets = [0_u32; 1 << BUCKETS_LOG];
            for x in self.values {
                let above = (x.to_bits() & MAGNITUDE).wrapping_sub(low);
                if above <= high - low {
                    buckets[(above >> shift) as usize] += 1;
                }
            }
            low += descend(&buckets, &mut ties) << shift;
            high = high.min(low + ((1 << shift) - 1));
        }
        Least { magnitude: low, ties }
    }
}

/// The bucket that the number `left`, counted from above, lies in; then `left` counts within it.
fn descend(buckets: &[u32], left: &mut usize) -> u32 {
    let mut bucket = buckets.len() - 1;
    while (buckets[bucket] as usize) < *left {
        *left -= buckets[bucket] as usize;
        bucket -= 1;
    }
    bucket as u32
}

/// Keeps the `count` largest of what was selected, those of lowest index among equal ones. Gives their least magnitude.
///
/// The others go back into `error`.
pub(super) fn keep(selection: &mut Selection, count: usize, error: Option<&mut [f32]>) -> i32 {
    let least = least(selection, count);
    let magnitude = least.magnitude as i32;
    let ties_end = end_of_ties(selection.values(), least);
    if let Some(error) = error {
        put_back(selection, error, 0..ties_end, magnitude - 1);
        put_back(selection, error, ties_end..selection.len, magnitude);
    }
    let isa = selection.isa;
    // SAFETY: `isa` is one of this CPU's; the second range lies behind what the first leaves.
    unsafe {
        let (until, len) = (ties_end, selection.len);
        let to = isa.run(Compact { selection, from: 0, until, to: 0, above: magnitude - 1 });
        selection.len = isa.run(Compact { selection, from: until, until: len, to, above: magnitude });
    }
    magnitude
}

/// After the last number of the least magnitude that is kept.
fn end_of_ties(values: &[f32], least: Least) -> usize {
    let mut ties = values.iter().enumerate().filter(|(_, x)| x.to_bits() & MAGNITUDE == least.magnitude);
    ties.nth(least.ties - 1).map_or(values.len(), |(at, _)| at + 1)
}

/// Puts what is not above a magnitude back to where it was taken from.
pub(super) fn put_back(selection: &Selection, error: &mut [f32], range: std::ops::Range<usize>, above: i32) {
    for (&index, &value) in selection.indices()[range.clone()].iter().zip(&selection.values()[range]) {
        if (value.to_bits() & MAGNITUDE) as i32 <= above {
            error[index as usize] = value;
        }
    }
}

/// Moves what is above a magnitude to the front.
struct Compact<'a> {
    selection: &'a mut Selection,
    from: usize,
    until: usize,
    to: usize,
    above: i32,
}

impl Work for Compact<'_> {
    type Output = usize;

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) -> usize {
        let (indices, values) = self.selection.all();
        let (mut at, mut to) = (self.from, self.to);
        while at + L::WIDTH <= self.until {
            // SAFETY: a row is read before it or what lies before it is written.
            unsafe {
                let (index, value) = (L::load(indices.add(at).cast()), L::load(values.add(at)));
                let mask = L::above(value, self.above);
                L::pack(indices.add(to).cast(), index, mask);
                L::pack(values.add(to), value, mask);
                to += mask.count_ones() as usize;
            }
            at += L::WIDTH;
        }
        for at in at..self.until {
            // SAFETY: `to <= at`, and both lie within the selection.
            unsafe {
                let (index, value) = (*indices.add(at), *values.add(at));
                (*indices.add(to), *values.add(to)) = (index, value);
                to += usize::from((value.to_bits() & MAGNITUDE) as i32 > self.above);
            }
        }
        to
    }
}
