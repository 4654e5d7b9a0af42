//! The inner products of many vectors with each other, in float64.

use crate::isa::Isa;

/// Values of each vector that are converted and multiplied at once: twenty vectors of them fit in a cache.
const BLOCK: usize = 512;
/// Sums that are formed side by side, and added up at the end.
const LANES: usize = 4;
/// Vectors on each side whose products are formed together: so often a value that was read is used.
const TILE: usize = 4;

/// Leaves in `out`, `[n, n]` row after row, the inner products of `rows`: each value is converted exactly, and each product
/// and sum rounded to float64. The result is symmetric, and does not depend on the instruction set.
///
/// Cost: each row is read once; `n^2 / 2` multiplications per number.
///
/// # Panics
/// If rows have different lengths, or `out` has not `n^2` places.
pub fn inner_products<T: Copy + Into<f64>>(rows: &[&[T]], out: &mut [f64]) {
    inner_products_with(Isa::best(), rows, out);
}

/// [`inner_products`] with the code of an instruction set that this CPU has.
fn inner_products_with<T: Copy + Into<f64>>(isa: Isa, rows: &[&[T]], out: &mut [f64]) {
    assert_eq!(out.len(), rows.len() * rows.len(), "a place for each pair");
    let numel = rows.first().map_or(0, |row| row.len());
    assert!(rows.iter().all(|row| row.len() == numel), "all rows are of one length");
    match isa {
        Isa::Baseline => run(rows, numel, out),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this CPU has it.
        Isa::Avx2 => unsafe { avx2(rows, numel, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: likewise.
        Isa::Avx512 => unsafe { avx512(rows, numel, out) },
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2<T: Copy + Into<f64>>(rows: &[&[T]], numel: usize, out: &mut [f64]) {
    run(rows, numel, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,avx512f,avx512vl")]
fn avx512<T: Copy + Into<f64>>(rows: &[&[T]], numel: usize, out: &mut [f64]) {
    run(rows, numel, out);
}

#[inline(always)]
fn run<T: Copy + Into<f64>>(rows: &[&[T]], numel: usize, out: &mut [f64]) {
    let count = rows.len();
    let padded = count.next_multiple_of(TILE);
    out.fill(0.0);
    // Rows of zeros fill up the last tile, zeros the last block.
    let mut block = vec![[0.0_f64; BLOCK]; padded];
    for from in (0..numel).step_by(BLOCK) {
        let width = (numel - from).min(BLOCK);
        for (converted, row) in block.iter_mut().zip(rows) {
            for (place, &value) in converted.iter_mut().zip(&row[from..from + width]) {
                *place = value.into();
            }
            converted[width..].fill(0.0);
        }
        for first in (0..padded).step_by(TILE) {
            for second in (first..padded).step_by(TILE) {
                let sums = tile(&block[first..first + TILE], &block[second..second + TILE]);
                for (i, row) in sums.iter().enumerate().filter(|(i, _)| first + i < count) {
                    for (j, sum) in row.iter().enumerate().filter(|(j, _)| second + j < count) {
                        out[(first + i) * count + second + j] += sum;
                    }
                }
            }
        }
    }
    for i in 0..count {
        for j in 0..i {
            out[i * count + j] = out[j * count + i];
        }
    }
}

#[inline(always)]
fn tile(left: &[[f64; BLOCK]], right: &[[f64; BLOCK]]) -> [[f64; TILE]; TILE] {
    let mut sums = [[[0.0; LANES]; TILE]; TILE];
    for at in (0..BLOCK).step_by(LANES) {
        for (sums, a) in sums.iter_mut().zip(left) {
            for (sums, b) in sums.iter_mut().zip(right) {
                for (lane, sum) in sums.iter_mut().enumerate() {
                    *sum += a[at + lane] * b[at + lane];
                }
            }
        }
    }
    sums.map(|row| row.map(|lanes| lanes.iter().sum()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rows(numel: usize) -> impl Strategy<Value = Vec<Vec<f32>>> {
        (1..10_usize).prop_flat_map(move |count| {
            proptest::collection::vec(proptest::collection::vec(-1e3..1e3_f32, numel), count)
        })
    }

    proptest! {
        #[test]
        fn each_is_what_its_definition_says(found in (0..1200_usize).prop_flat_map(rows)) {
            let slices: Vec<&[f32]> = found.iter().map(Vec::as_slice).collect();
            let mut first = None;
            for isa in Isa::available() {
                let mut out = vec![f64::NAN; found.len() * found.len()];
                inner_products_with(isa, &slices, &mut out);
                for (at, &product) in out.iter().enumerate() {
                    let (a, b) = (&found[at / found.len()], &found[at % found.len()]);
                    let expected: f64 = a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
                    let scale: f64 = a.iter().zip(b).map(|(&a, &b)| (f64::from(a) * f64::from(b)).abs()).sum();
                    prop_assert!((product - expected).abs() <= 1e-12 * scale.max(1.0), "{isa:?}");
                }
                prop_assert_eq!(first.get_or_insert_with(|| out.clone()), &out, "{:?}", isa);
            }
        }
    }

    #[test]
    fn what_is_not_finite_stays_with_its_row() {
        let (a, b, c) = ([1.0_f32, f32::NAN], [2.0, 3.0], [f32::MAX, f32::MAX]);
        let mut out = [0.0; 9];
        inner_products(&[&a[..], &b[..], &c[..]], &mut out);
        assert!(out[0].is_nan() && out[1].is_nan() && out[2].is_nan());
        assert_eq!(out[4], 13.0);
        assert!(out[5].is_finite() && out[8].is_finite());
    }
}
