//! Measures the folds against what one core of this machine can move at all.
//!
//! `cargo run --release --example bandwidth -p tweed-kernels [total MB, default 100]`
//!
//! GB/s counts every byte read from a source and every byte written to a target, once each.

mod common;

use std::hint::black_box;

use common::{argument, row};
use tweed_kernels::{copy, fold, DType, ReduceOp, Target};

/// Bytes of a piece that fits the second-level cache together with a few others.
const CACHED_BYTES: usize = 256 << 10;

fn main() {
    let megabytes: usize = argument(100);
    let total = megabytes << 20;
    let source = vec![1_u64; total / 8];
    let mut target = vec![1_u64; total / 8];
    let from = source.as_ptr().cast::<u8>();
    let to = target.as_mut_ptr().cast::<u8>();

    println!("limits, {megabytes} MB");
    row("read (sum of u64)", total, || {
        black_box(black_box(&source).iter().fold(0_u64, |sum, x| sum.wrapping_add(*x)));
    });
    // SAFETY: both buffers hold `total` bytes and are apart; the same in all calls below.
    row("memcpy", 2 * total, || unsafe { to.copy_from_nonoverlapping(black_box(from), total) });
    for streaming in [false, true] {
        let into = [Target { ptr: to, streaming }];
        // SAFETY: as above.
        row(&format!("copy, streaming {streaming}"), 2 * total, || unsafe {
            copy(black_box(from), &into, total)
        });
    }

    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16, DType::I32, DType::U8] {
        println!("\n{dtype} SUM");
        for sources in [2, 4, 8] {
            measure(dtype, sources, from, to, total);
        }
    }
}

/// Sums parts of one buffer of `total` bytes: from main memory, and again and again from the cache.
fn measure(dtype: DType, sources: usize, from: *const u8, to: *mut u8, total: usize) {
    let part = total / sources / 64 * 64;
    let cached = CACHED_BYTES / sources;
    for (name, stride, bytes, streaming) in [
        ("memory", part, part, false),
        ("memory, streaming", part, part, true),
        ("cached", cached, cached, false),
    ] {
        let repeat = if bytes == cached { total / CACHED_BYTES } else { 1 };
        // SAFETY: `sources * stride <= total`.
        let pointers: Vec<_> = (0..sources).map(|i| unsafe { from.add(i * stride) }).collect();
        let into = [Target { ptr: to, streaming }];
        row(&format!("{sources} sources, {name}"), repeat * (sources + 1) * bytes, || {
            for _ in 0..repeat {
                // SAFETY: as above; `to` is another buffer.
                unsafe {
                    fold(dtype, ReduceOp::Sum, black_box(&pointers), &into, bytes / dtype.size(), None)
                };
            }
        });
    }
}
