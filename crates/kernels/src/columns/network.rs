//! Sorting without branches: Batcher's merge exchange (Knuth, The Art of Computer Programming 3, 5.2.2, algorithm M).

use super::rules::Number;

/// Which rows are compared, in order: the lower of two values goes to the first row. For any number of rows.
pub(super) fn comparators(rows: usize) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let top = rows.next_power_of_two() / 2;
    let mut step = top;
    while step > 0 {
        let (mut apart, mut bit, mut first) = (step, top, 0);
        loop {
            found.extend(
                (0..rows - apart.min(rows)).filter(|at| at & step == first).map(|at| (at, at + apart)),
            );
            if bit == step {
                break;
            }
            (apart, bit, first) = (bit - step, bit / 2, step);
        }
        step /= 2;
    }
    found
}

/// Sorts each lane: row 0 gets the lowest values.
#[inline(always)]
pub(super) fn sort<T: Number, const WIDTH: usize>(rows: &mut [[T; WIDTH]], network: &[(usize, usize)]) {
    for &(low, high) in network {
        let (before, from) = rows.split_at_mut(high);
        for (a, b) in before[low].iter_mut().zip(&mut from[0]) {
            (*a, *b) = if *b < *a { (*b, *a) } else { (*a, *b) };
        }
    }
}
