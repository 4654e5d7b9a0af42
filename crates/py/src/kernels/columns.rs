//! Of each number of a buffer, what the values of many senders come to.

use pyo3::prelude::*;
use tweed_kernels::columns::{combine, Number, Rule};

use super::{slice, slice_mut};
use crate::errors::usage;

pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(combine_columns, module)?)
}

/// Leaves at `out` what a rule makes of `numel` float32, or float64, at each of `rows`; at `missing` is a bool per number,
/// true where the row has none. `hostile` rows may be anything. Whether all values are finite: else the result means nothing.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "one call, and plain numbers")]
fn combine_columns(
    py: Python<'_>,
    rule: &str,
    hostile: usize,
    rows: Vec<usize>,
    missing: Vec<Option<usize>>,
    numel: usize,
    double: bool,
    out: usize,
) -> PyResult<bool> {
    let rule = Rule::named(rule).ok_or_else(|| usage(py, format!("there is no rule {rule:?}")))?;
    // SAFETY: by the contract of `kernels`; `out` is memory of its own.
    Ok(py.detach(|| unsafe {
        match double {
            true => combine_at::<f64>(rule, hostile, &rows, &missing, numel, out),
            false => combine_at::<f32>(rule, hostile, &rows, &missing, numel, out),
        }
    }))
}

/// Safety: as [`slice`] of all rows, and [`slice_mut`] of `out`.
unsafe fn combine_at<T: Number>(
    rule: Rule,
    hostile: usize,
    rows: &[usize],
    missing: &[Option<usize>],
    numel: usize,
    out: usize,
) -> bool {
    // SAFETY: by contract.
    unsafe {
        let rows: Vec<&[T]> = rows.iter().map(|&row| slice(row, numel)).collect();
        let missing: Vec<Option<&[u8]>> = missing.iter().map(|m| m.map(|m| slice(m, numel))).collect();
        combine(rule, hostile, &rows, &missing, slice_mut(out, numel))
    }
}
