//! The inner products of many vectors.

use pyo3::prelude::*;
use tweed_kernels::products;

use super::{slice, slice_mut};

pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(inner_products, module)?)
}

/// Leaves at `out`, `[n, n]` float64, the inner products of the vectors of `numel` float32, or float64, at each of `rows`.
#[pyfunction]
fn inner_products(py: Python<'_>, rows: Vec<usize>, numel: usize, double: bool, out: usize) {
    // SAFETY: by the contract of `kernels`; `out` is memory of its own.
    py.detach(|| unsafe {
        match double {
            true => products_at::<f64>(&rows, numel, out),
            false => products_at::<f32>(&rows, numel, out),
        }
    });
}

/// Safety: as [`slice`] of all rows, and [`slice_mut`] of `out`.
unsafe fn products_at<T: Copy + Into<f64>>(rows: &[usize], numel: usize, out: usize) {
    // SAFETY: by contract.
    unsafe {
        let rows: Vec<&[T]> = rows.iter().map(|&row| slice(row, numel)).collect();
        products::inner_products(&rows, slice_mut(out, rows.len() * rows.len()));
    }
}
