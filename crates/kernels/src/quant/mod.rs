//! Numbers as codes of a few bits, and a scale per block.
//!
//! | scheme | scale of a block | code of a number |
//! |---|---|---|
//! | sign | mean of `abs(v)` | 1 where the sign of `v` is set, else 0 |
//! | uniform | largest `abs(v)` | `q + levels`, where `v` is near `q * scale / levels` |
//! | levels | l2 norm | the same |
//!
//! A scale below [`SMALLEST`] counts as 0, and the block says zeros; one above [`LARGEST`] counts as that. `q` is
//! rounded to nearest, ties to even; or, with a key, by draw: a number of [0, 1) is added (see [`draw`]), and the
//! sum is rounded down. Then the mean is the number itself. In both cases `q` is limited to `levels`.
//!
//! Codes are one stream of bits over all numbers, lowest bit of a byte first, without a gap between blocks.
//!
//! **Results repeat.** They do not depend on the instruction set: rounding is that of float32, and sums are taken in
//! float64 in a fixed order (see [`scale`]). The Python path over torch's operators gives the same bits.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod decode;
mod draw;
mod encode;
mod form;
mod lanes;
mod plain;
mod scale;
mod stream;
#[cfg(test)]
mod tests;

pub use form::{Form, NoSuchForm, Scheme};

use crate::isa::Isa;

/// Writes `x`, or `x + error`, as `scales` and `codes`; `error` becomes what they do not say.
///
/// With a `key` numbers are rounded by its draw, else to nearest; signs draw none. NaN gives any code.
///
/// Cost: one pass over memory if a block stays in the cache, else two.
///
/// # Panics
/// If a slice has not the length that `form` asks for.
pub fn encode(
    x: &[f32],
    error: Option<&mut [f32]>,
    form: &Form,
    key: Option<u64>,
    scales: &mut [f32],
    codes: &mut [u8],
) {
    encode_with(Isa::best(), x, error, form, key, (scales, codes));
}

fn encode_with(
    isa: Isa,
    x: &[f32],
    error: Option<&mut [f32]>,
    form: &Form,
    key: Option<u64>,
    (scales, codes): (&mut [f32], &mut [u8]),
) {
    assert!(error.as_ref().is_none_or(|error| error.len() == x.len()), "an error of another length");
    check(form, x.len(), 0, scales.len(), codes.len());
    // SAFETY: `isa` is one of this CPU's.
    unsafe { lanes::run(isa, encode::Encode { x, error, form, key, scales, codes }) }
}

/// Adds the numbers that codes stand for to `out`.
///
/// The first number is at place `first` of the block that the first of `scales` belongs to.
///
/// Cost: one pass.
///
/// # Panics
/// If a slice has not the length that `form` asks for, or `first` is in no block.
pub fn decode_add(out: &mut [f32], scales: &[f32], codes: &[u8], form: &Form, first: usize) {
    decode_add_with(Isa::best(), out, (scales, codes), form, first);
}

fn decode_add_with(isa: Isa, out: &mut [f32], (scales, codes): (&[f32], &[u8]), form: &Form, first: usize) {
    assert!(first < form.block, "place {first} of a block of {}", form.block);
    check(form, out.len(), first, scales.len(), codes.len());
    // SAFETY: `isa` is one of this CPU's.
    unsafe { lanes::run(isa, decode::DecodeAdd { out, scales, codes, form, first }) }
}

fn check(form: &Form, numel: usize, first: usize, scales: usize, codes: usize) {
    assert_eq!(scales, form.scale_count(numel, first), "scales");
    assert_eq!(codes, form.code_bytes(numel), "bytes of codes");
}
