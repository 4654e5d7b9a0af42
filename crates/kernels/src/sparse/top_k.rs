//! Which values are selected: those above a magnitude, or the largest.

use super::filter::Selection;
use super::filter::{filter, Input, BLOCK};
use super::kth_largest::{keep, least, put_back};
use super::lanes::MAGNITUDE;

/// Rows of memory that a sample is drawn from, at most, and the values of each.
const SAMPLE_ROWS: usize = 4096;
const SAMPLE_ROW: usize = 16;
/// Rows that memory is asked for ahead of them.
const SAMPLE_AHEAD: usize = 16;
/// Fewer values than this per sampled one are not worth a sample.
const SAMPLE_EVERY: usize = 8;

/// Takes the values of magnitude `tau` and more, of more than `most` the largest as [`top_k`] does; with an `error`, from
/// `x + error`, which then keeps the others. Returns how many reach `tau`.
///
/// Cost: one pass, and a selection among those if they are more than `most`.
///
/// # Panics
/// If `error` has another length.
pub fn threshold(
    x: &[f32],
    error: Option<&mut [f32]>,
    tau: f32,
    most: usize,
    selection: &mut Selection,
) -> usize {
    let above = (tau.to_bits() & MAGNITUDE) as i32 - 1;
    let mut input = input(x, error);
    let (mut at, numel) = (0, x.len());
    selection.len = 0;
    while at < numel {
        if selection.room() < selection.len + BLOCK {
            selection.reserve((2 * selection.len + BLOCK).min(numel + BLOCK));
        }
        at = filter(&mut input, at, above, selection);
    }
    let found = selection.len;
    if found > most {
        keep_if_any(selection, most, &mut input);
    }
    found
}

/// Takes the values that are not zero. Cost: one pass.
pub fn nonzero(x: &[f32], selection: &mut Selection) {
    threshold(x, None, f32::from_bits(1), usize::MAX, selection);
}

/// Takes the `count` values of largest magnitude, of equal ones those of lowest index; with an `error`, from
/// `x + error`, which then keeps the others.
///
/// A sample tells which magnitude somewhat more than `count` values reach; one pass takes those, and whenever they
/// exceed their room, only the largest stay. If the sample was wrong, another pass follows.
///
/// Cost: one pass, and work on some more than `count` values.
///
/// # Panics
/// If `error` has another length, or there are fewer values than `count`.
pub fn top_k(x: &[f32], error: Option<&mut [f32]>, count: usize, selection: &mut Selection) {
    assert!(count <= x.len(), "{count} of {} values", x.len());
    let mut input = input(x, error);
    selection.reserve((2 * count + 2 * SAMPLE_ROWS).min(x.len()) + BLOCK);
    for attempt in 0.. {
        let above = guess(&input, count, attempt, selection);
        candidates(&mut input, count, above, selection);
        if selection.len >= count {
            break;
        }
        input = restored(input, selection);
    }
    keep_if_any(selection, count, &mut input);
}

/// The least magnitude among the `count` values of largest magnitude. Cost: as [`top_k`].
///
/// # Panics
/// If `count` is 0, or there are fewer values.
pub fn kth_magnitude(x: &[f32], count: usize, selection: &mut Selection) -> f32 {
    top_k(x, None, count, selection);
    f32::from_bits(least(selection, count).magnitude)
}

fn input<'a>(x: &'a [f32], error: Option<&'a mut [f32]>) -> Input<'a> {
    match error {
        None => Input::Plain(x),
        Some(error) => Input::WithError(x, error),
    }
}

/// Takes all that may be among the `count` largest, if `above` was not too high.
fn candidates(input: &mut Input<'_>, count: usize, mut above: i32, selection: &mut Selection) {
    selection.len = 0;
    let (mut at, numel) = (0, input.numel());
    while at < numel {
        at = filter(input, at, above, selection);
        if at < numel {
            above = keep_if_any(selection, count, input);
        }
    }
}

fn keep_if_any(selection: &mut Selection, count: usize, input: &mut Input<'_>) -> i32 {
    let error = match input {
        Input::Plain(_) => None,
        Input::WithError(_, error) | Input::Sum(error) => Some(&mut **error),
    };
    if count > 0 {
        return keep(selection, count, error);
    }
    if let Some(error) = error {
        put_back(selection, error, 0..selection.len, MAGNITUDE as i32);
    }
    selection.len = 0;
    MAGNITUDE as i32
}

/// The input as it was before values were selected, but for the sum that `error` holds now.
fn restored<'a>(input: Input<'a>, selection: &Selection) -> Input<'a> {
    match input {
        Input::Plain(x) => Input::Plain(x),
        Input::WithError(_, error) | Input::Sum(error) => {
            put_back(selection, error, 0..selection.len, MAGNITUDE as i32);
            Input::Sum(error)
        }
    }
}

/// A magnitude that more than `count` values exceed, very likely; at the third attempt, certainly.
///
/// Uses the room of `selection`.
fn guess(input: &Input<'_>, count: usize, attempt: u32, selection: &mut Selection) -> i32 {
    let numel = input.numel();
    let rows = (numel / SAMPLE_EVERY / SAMPLE_ROW).min(SAMPLE_ROWS);
    let drawn = rows * SAMPLE_ROW;
    let expected = drawn as f64 * count as f64 / numel.max(1) as f64;
    let rank = match attempt {
        0 => expected + 8.0 * expected.sqrt() + 8.0,
        1 => 4.0 * expected + 256.0,
        _ => f64::INFINITY,
    };
    if count == 0 {
        return MAGNITUDE as i32;
    }
    if rank >= drawn as f64 {
        return -1;
    }
    selection.reserve(drawn);
    selection.len = drawn;
    sample(input, rows, selection);
    least(selection, rank as usize).magnitude as i32 - 1
}

/// Draws `rows` rows of neighbours, each from its own part of the values.
fn sample(input: &Input<'_>, rows: usize, selection: &mut Selection) {
    let part = input.numel() / rows;
    let first = |row: usize| {
        // Fibonacci hashing: no stride of the data meets that of the sample.
        let within = (row as u64 + 1).wrapping_mul(tweed_rng::GOLDEN) >> 32;
        row * part + ((within as usize * (part - SAMPLE_ROW)) >> 32)
    };
    for (row, drawn) in selection.values_mut().chunks_exact_mut(SAMPLE_ROW).enumerate() {
        input.expect(first((row + SAMPLE_AHEAD).min(rows - 1)));
        input.copy(first(row), drawn);
    }
}
