//! Which numbers are said: those above a magnitude, or the largest.

use super::lanes::MAGNITUDE;
use super::select::{keep, least, put_back};
use super::sieve::{sieve, Input, BLOCK};
use super::taken::Taken;

/// Rows of memory that a sample is drawn from, at most, and the numbers of each.
const SAMPLE_ROWS: usize = 4096;
const SAMPLE_ROW: usize = 16;
/// Rows that memory is asked for ahead of them.
const SAMPLE_AHEAD: usize = 16;
/// Fewer numbers than this per sampled one are not worth a sample.
const SAMPLE_EVERY: usize = 8;

/// Takes the numbers of magnitude `tau` and more; with an `error`, from `x + error`, which then keeps the others.
///
/// Cost: one pass.
///
/// # Panics
///
/// If `error` has another length.
pub fn threshold(x: &[f32], error: Option<&mut [f32]>, tau: f32, taken: &mut Taken) {
    let above = (tau.to_bits() & MAGNITUDE) as i32 - 1;
    let mut input = input(x, error);
    let (mut at, numel) = (0, x.len());
    taken.len = 0;
    while at < numel {
        if taken.room() < taken.len + BLOCK {
            taken.reserve((2 * taken.len + BLOCK).min(numel + BLOCK));
        }
        at = sieve(&mut input, at, above, taken);
    }
}

/// Takes the numbers that are not zero. Cost: one pass.
pub fn nonzero(x: &[f32], taken: &mut Taken) {
    threshold(x, None, f32::from_bits(1), taken);
}

/// Takes the `count` numbers of largest magnitude, of equal ones those of lowest index; with an `error`, from
/// `x + error`, which then keeps the others.
///
/// A sample tells which magnitude somewhat more than `count` numbers reach; one pass takes those, and whenever they
/// exceed their room, only the largest stay. If the sample was wrong, another pass follows.
///
/// Cost: one pass, and work on some more than `count` numbers.
///
/// # Panics
///
/// If `error` has another length, or there are fewer numbers than `count`.
pub fn top_k(x: &[f32], error: Option<&mut [f32]>, count: usize, taken: &mut Taken) {
    assert!(count <= x.len(), "{count} of {} numbers", x.len());
    let mut input = input(x, error);
    taken.reserve((2 * count + 2 * SAMPLE_ROWS).min(x.len()) + BLOCK);
    for attempt in 0.. {
        let above = guess(&input, count, attempt, taken);
        candidates(&mut input, count, above, taken);
        if taken.len >= count {
            break;
        }
        input = restored(input, taken);
    }
    keep_if_any(taken, count, &mut input);
}

/// The least magnitude among the `count` numbers of largest magnitude. Cost: as [`top_k`].
///
/// # Panics
///
/// If `count` is 0, or there are fewer numbers.
pub fn kth_magnitude(x: &[f32], count: usize, taken: &mut Taken) -> f32 {
    top_k(x, None, count, taken);
    f32::from_bits(least(taken, count).magnitude)
}

fn input<'a>(x: &'a [f32], error: Option<&'a mut [f32]>) -> Input<'a> {
    match error {
        None => Input::Plain(x),
        Some(error) => Input::Fed(x, error),
    }
}

/// Takes all that may be among the `count` largest, if `above` was not too high.
fn candidates(input: &mut Input<'_>, count: usize, mut above: i32, taken: &mut Taken) {
    taken.len = 0;
    let (mut at, numel) = (0, input.numel());
    while at < numel {
        at = sieve(input, at, above, taken);
        if at < numel {
            above = keep_if_any(taken, count, input);
        }
    }
}

fn keep_if_any(taken: &mut Taken, count: usize, input: &mut Input<'_>) -> i32 {
    if count == 0 {
        taken.len = 0;
        return MAGNITUDE as i32;
    }
    let error = match input {
        Input::Plain(_) => None,
        Input::Fed(_, error) | Input::Again(error) => Some(&mut **error),
    };
    keep(taken, count, error)
}

/// As it was before numbers were taken, but for the sum that `error` holds now.
fn restored<'a>(input: Input<'a>, taken: &Taken) -> Input<'a> {
    match input {
        Input::Plain(x) => Input::Plain(x),
        Input::Fed(_, error) | Input::Again(error) => {
            put_back(taken, error, 0..taken.len, MAGNITUDE as i32);
            Input::Again(error)
        }
    }
}

/// A magnitude that more than `count` numbers exceed, very likely; at the third attempt, certainly.
///
/// Uses the room of `taken`.
fn guess(input: &Input<'_>, count: usize, attempt: u32, taken: &mut Taken) -> i32 {
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
    taken.reserve(drawn);
    taken.len = drawn;
    sample(input, rows, taken);
    least(taken, rank as usize).magnitude as i32 - 1
}

/// Draws `rows` rows of neighbours, each from its own part of the numbers.
fn sample(input: &Input<'_>, rows: usize, taken: &mut Taken) {
    let part = input.numel() / rows;
    let first = |row: usize| {
        // Fibonacci hashing: no stride of the data meets that of the sample.
        let within = (row as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        row * part + ((within as usize * (part - SAMPLE_ROW)) >> 32)
    };
    for (row, drawn) in taken.values_mut().chunks_exact_mut(SAMPLE_ROW).enumerate() {
        input.expect(first((row + SAMPLE_AHEAD).min(rows - 1)));
        input.copy(first(row), drawn);
    }
}
