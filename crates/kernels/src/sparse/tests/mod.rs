//! Every instruction set against a model that is too simple to be wrong.

mod coding;
mod top_k;

use super::lanes::MAGNITUDE;
use crate::tests::Values;

const KINDS: [&str; 9] =
    ["any", "ordinary", "few", "constant", "zeros", "ascending", "descending", "late", "blocks"];

/// Finite values of one kind.
fn values(kind: &str, numel: usize, seed: u64) -> Vec<f32> {
    let mut values = Values::new(seed);
    let mut x: Vec<f32> = (0..numel).map(|at| number(kind, at * 2 < numel, values.next(), seed)).collect();
    match kind {
        "ascending" => x.sort_by(|a, b| a.abs().total_cmp(&b.abs())),
        "descending" => x.sort_by(|a, b| b.abs().total_cmp(&a.abs())),
        "blocks" => x.chunks_mut(16).for_each(|block| {
            let first = block[0];
            block.fill(first);
        }),
        _ => {}
    }
    x
}

fn number(kind: &str, early: bool, bits: u64, seed: u64) -> f32 {
    let unit = (bits >> 40) as f32 / (1 << 24) as f32 - 0.5;
    match kind {
        "any" if !f32::from_bits(bits as u32).is_finite() => 1e38,
        "any" => f32::from_bits(bits as u32),
        "few" => (unit * 8.0).round(),
        "constant" => seed as f32,
        "zeros" if !bits.is_multiple_of(200) => unit * 0.0,
        "late" if early => f32::from_bits(1),
        _ => unit / (bits as u32 as f32),
    }
}

fn magnitude(x: f32) -> u32 {
    x.to_bits() & MAGNITUDE
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}
