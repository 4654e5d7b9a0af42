//! Measures codes of a few bits against what one core of this machine can move at all.
//!
//! `cargo run --release --example quant -p tweed-kernels [total MB, default 100]`
//!
//! GB/s counts the bytes that must move: numbers in, scales and codes out; with error feedback also the error, in and
//! out; for decoding scales and codes in, and what they are added to in and out.

mod common;

use std::hint::black_box;

use common::{argument, row};
use tweed_kernels::quant::{decode_add, encode, Form, Scheme};
use tweed_kernels::{copy, Target};

const BLOCK: usize = 1024;
const KEY: Option<u64> = Some(7);

fn main() {
    let megabytes: usize = argument(100);
    let x = numbers(megabytes * 1_000_000 / 4);
    let mut error = vec![0.0_f32; x.len()];
    for (scheme, bits) in [
        (Scheme::Sign, 1),
        (Scheme::Uniform, 8),
        (Scheme::Uniform, 4),
        (Scheme::Uniform, 2),
        (Scheme::Levels, 2),
        (Scheme::Levels, 4),
    ] {
        let levels = if bits == 1 { 1 } else { (1 << (bits - 1)) - 1 };
        let form = Form::new(scheme, bits, BLOCK, levels).expect("there is such a form");
        println!("{}, {bits} bits", format!("{scheme:?}").to_lowercase());
        measure(&x, &mut error, &form, scheme);
        println!();
    }
}

fn measure(x: &[f32], error: &mut [f32], form: &Form, scheme: Scheme) {
    let mut scales = vec![0.0; form.scale_count(x.len(), 0)];
    let mut codes = vec![0; form.code_bytes(x.len())];
    let (whole, written) = (4 * x.len(), 4 * scales.len() + codes.len());
    let to = [Target { ptr: error.as_mut_ptr().cast(), streaming: true }];
    // SAFETY: both buffers hold `whole` bytes and are apart.
    row("copy, streaming", 2 * whole, || unsafe { copy(black_box(x).as_ptr().cast(), &to, whole) });
    error.fill(0.0);
    let keys = match scheme {
        Scheme::Sign => [None].as_slice(),
        Scheme::Uniform => &[None, KEY],
        Scheme::Levels => &[KEY],
    };
    for &key in keys {
        let how = if key.is_some() { ", by chance" } else { "" };
        row(&format!("encode{how}"), whole + written, || {
            encode(black_box(x), None, form, key, &mut scales, &mut codes);
        });
        row(&format!("encode, error fed back{how}"), 3 * whole + written, || {
            encode(black_box(x), Some(error), form, key, &mut scales, &mut codes);
        });
    }
    row("decode, added", 2 * whole + written, || decode_add(error, black_box(&scales), &codes, form, 0));
}

/// As gradients are: a sum of uniform numbers is nearly Gaussian.
fn numbers(numel: usize) -> Vec<f32> {
    let mut state = 1_u64;
    let mut uniform = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 40) as f32 / 16_777_216.0 - 0.5
    };
    (0..numel).map(|_| (0..4).map(|_| uniform()).sum()).collect()
}
