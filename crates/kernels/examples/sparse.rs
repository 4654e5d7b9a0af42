//! Measures choosing values and coding indices against a copy past the cache.
//!
//! `cargo run --release --example sparse -p tweed-kernels [million values, default 25]`
//!
//! GB/s counts bytes that must move: all that is read and written once, and of values at places the touched lines.

mod common;

use std::hint::black_box;

use common::{argument, row};
use tweed_kernels::sparse::{self, Selection};
use tweed_kernels::{copy, InstructionSet, Target};

/// One value is selected of so many.
const PER_CHOSEN: usize = 100;
const ENTRY_BYTES: usize = 8;
const LINE_NUMBERS: usize = 16;

fn main() {
    let millions: usize = argument(25);
    let numel = millions * 1_000_000;
    let mut error = vec![0.0_f32; numel];
    limits(numel, &mut error);
    for set in InstructionSet::available() {
        println!("\n{set}");
        for (kind, x) in inputs(numel) {
            top_k(&mut Selection::by(set), kind, &x);
            if kind == "Gaussian" {
                passes(&mut Selection::by(set), &x, &mut error);
            }
        }
    }
    println!("\nindices");
    places(&gaussian(numel), &mut error);
}

fn limits(numel: usize, to: &mut [f32]) {
    let from = vec![1.0_f32; numel];
    let into = [Target { ptr: to.as_mut_ptr().cast(), streaming: true }];
    println!("limits, {numel} values");
    // SAFETY: both buffers hold that many bytes and are apart.
    row("copy, streaming", 8 * numel, || unsafe { copy(black_box(&from).as_ptr().cast(), &into, 4 * numel) });
    row("read (finite)", 4 * numel, || assert!(sparse::all_finite(black_box(&from))));
}

fn top_k(selection: &mut Selection, kind: &str, x: &[f32]) {
    let count = x.len() / PER_CHOSEN;
    row(&format!("top-k, {kind}"), 4 * x.len() + ENTRY_BYTES * count, || {
        sparse::top_k(black_box(x), None, count, selection);
    });
}

fn passes(selection: &mut Selection, x: &[f32], error: &mut [f32]) {
    let (numel, count) = (x.len(), x.len() / PER_CHOSEN);
    let tau = sparse::kth_magnitude(x, count, selection);
    let (once, fed) = (4 * numel + ENTRY_BYTES * count, 12 * numel + ENTRY_BYTES * count);
    let all = usize::MAX;
    row("threshold", once, || _ = sparse::threshold(black_box(x), None, tau, all, selection));
    // What is left grows until about one in a hundred sums reaches the threshold.
    row("threshold, fed", fed, || {
        sparse::threshold(black_box(x), Some(error), 4.0 * tau, all, selection);
    });
    row("top-k, fed", fed, || sparse::top_k(black_box(x), Some(error), count, selection));
    error.fill(0.0);
    sparse::threshold(x, None, tau, all, selection);
    sparse::scatter_add(error, selection.indices(), selection.values()).expect("they lie within");
    row("non-zero", once, || sparse::nonzero(black_box(error), selection));
}

fn places(x: &[f32], out: &mut [f32]) {
    let (numel, count) = (x.len(), x.len() / PER_CHOSEN);
    let mut selection = Selection::default();
    sparse::top_k(x, None, count, &mut selection);
    let (indices, values) = (selection.indices(), selection.values());
    let lines = indices.chunk_by(|a, b| *a as usize / LINE_NUMBERS == *b as usize / LINE_NUMBERS).count();
    row("add", 128 * lines + ENTRY_BYTES * count, || {
        sparse::scatter_add(out, black_box(indices), values).expect("they lie within");
    });
    let mut fetched = vec![0.0; count];
    row("fetch", 64 * lines + ENTRY_BYTES * count, || {
        sparse::gather(x, black_box(indices), &mut fetched).expect("they lie within");
    });
    codings(numel, indices);
    sparse::threshold(x, None, 1.0, usize::MAX, &mut selection);
    println!("\nindices, {:.0} %", 100.0 * selection.indices().len() as f64 / numel as f64);
    codings(numel, selection.indices());
}

fn codings(numel: usize, indices: &[i32]) {
    let mut decoded = vec![0; indices.len()];
    let mut data = vec![0; sparse::gaps_room(indices.len())];
    let bytes = sparse::encode_gaps(indices, numel, &mut data).expect("they ascend");
    let moved = 4 * indices.len() + bytes;
    row("gaps, encode", moved, || {
        sparse::encode_gaps(black_box(indices), numel, &mut data);
    });
    row("gaps, decode", moved, || assert!(sparse::decode_gaps(&data[..bytes], numel, &mut decoded)));
    let mut data = vec![0; numel.div_ceil(8)];
    let moved = 4 * indices.len() + data.len();
    row("bits, encode", moved, || assert!(sparse::encode_bitmap(black_box(indices), numel, &mut data)));
    row("bits, decode", moved, || assert!(sparse::decode_bitmap(&data, numel, &mut decoded)));
}

/// The five inputs that exact top-k is measured on.
fn inputs(numel: usize) -> impl Iterator<Item = (&'static str, Vec<f32>)> {
    let kinds = ["Gaussian", "heavy-tailed", "99.5 % zero", "constant", "sorted"];
    kinds.into_iter().map(move |kind| {
        let mut x = gaussian(numel);
        match kind {
            "heavy-tailed" => x.iter_mut().for_each(|x| *x *= (2.0 * *x).exp()),
            "99.5 % zero" => x
                .iter_mut()
                .enumerate()
                .for_each(|(i, x)| *x *= f32::from(hash(!i as u64).is_multiple_of(200))),
            "constant" => x.fill(1.5),
            "sorted" => x.sort_unstable_by(f32::total_cmp),
            _ => {}
        }
        (kind, x)
    })
}

/// Sums of four uniform values each, scaled to variance 1; near enough.
fn gaussian(numel: usize) -> Vec<f32> {
    let uniform = |bits: u64, part: u32| (bits >> (16 * part) & 0xffff) as f32 / 65536.0 - 0.5;
    let sum = |bits: u64| (0..4).map(|part| uniform(bits, part)).sum::<f32>() * 1.732;
    (0..numel as u64).map(|i| sum(hash(i)) + 1e-7 * (i % 100) as f32).collect()
}

/// The finaliser of SplitMix64.
fn hash(i: u64) -> u64 {
    let x = i.wrapping_mul(tweed_rng::GOLDEN);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
