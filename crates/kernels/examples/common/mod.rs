//! What the measurements share.
#![allow(clippy::disallowed_methods, reason = "a measurement needs the clock")]

use std::time::{Duration, Instant};

/// The first argument as a number.
pub(crate) fn argument(default: usize) -> usize {
    std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Prints the best of several runs.
pub(crate) fn row(name: &str, bytes: usize, mut work: impl FnMut()) {
    let mut best = Duration::MAX;
    for _ in 0..11 {
        let start = Instant::now();
        work();
        best = best.min(start.elapsed());
    }
    let (rate, ms) = (bytes as f64 / 1e9 / best.as_secs_f64(), best.as_secs_f64() * 1e3);
    println!("  {name:<36} {rate:>7.1} GB/s {ms:>9.2} ms");
}
