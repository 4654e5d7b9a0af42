//! Selecting values of a buffer, and coding where they belong.
//!
//! What a call takes stays in memory of its thread until [`selection`] fetches it.

use std::cell::RefCell;

use pyo3::prelude::*;
use tweed_kernels::sparse::{self, Selection};

use super::{slice, slice_mut};
use crate::errors::usage;

thread_local! {
    static SELECTION: RefCell<Selection> = RefCell::default();
}

pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(top_k, module)?)?;
    module.add_function(wrap_pyfunction!(threshold, module)?)?;
    module.add_function(wrap_pyfunction!(nonzero, module)?)?;
    module.add_function(wrap_pyfunction!(kth_magnitude, module)?)?;
    module.add_function(wrap_pyfunction!(selection, module)?)?;
    module.add_function(wrap_pyfunction!(all_finite, module)?)?;
    module.add_function(wrap_pyfunction!(scatter_add, module)?)?;
    module.add_function(wrap_pyfunction!(gather, module)?)?;
    module.add_function(wrap_pyfunction!(gaps_room, module)?)?;
    module.add_function(wrap_pyfunction!(encode_gaps, module)?)?;
    module.add_function(wrap_pyfunction!(decode_gaps, module)?)?;
    module.add_function(wrap_pyfunction!(encode_bitmap, module)?)?;
    module.add_function(wrap_pyfunction!(decode_bitmap, module)?)
}

/// Calls `take` without the interpreter's lock; gives how many values it took.
fn take(py: Python<'_>, take: impl FnOnce(&mut Selection) + Send) -> usize {
    py.detach(|| {
        SELECTION.with_borrow_mut(|selection| {
            take(selection);
            selection.indices().len()
        })
    })
}

/// Takes the `count` largest of `numel` float32 at `address`, or of their sums with those at `error`.
#[pyfunction]
fn top_k(py: Python<'_>, address: usize, numel: usize, error: Option<usize>, count: usize) -> usize {
    take(py, |selection| {
        // SAFETY: by the contract of `kernels`; the two are different memory.
        let (x, error) = unsafe { (slice(address, numel), error.map(|error| slice_mut(error, numel))) };
        sparse::top_k(x, error, count, selection);
    })
}

/// Takes those of `numel` float32 at `address`, or of their sums with those at `error`, that reach `tau`: the `most`
/// largest of them. Gives how many reach it.
#[pyfunction]
fn threshold(
    py: Python<'_>,
    address: usize,
    numel: usize,
    error: Option<usize>,
    tau: f32,
    most: usize,
) -> usize {
    py.detach(|| {
        // SAFETY: by the contract of `kernels`; the two are different memory.
        let (x, error) = unsafe { (slice(address, numel), error.map(|error| slice_mut(error, numel))) };
        SELECTION.with_borrow_mut(|selection| sparse::threshold(x, error, tau, most, selection))
    })
}

/// Takes those of `numel` float32 at `address` that are not zero.
#[pyfunction]
fn nonzero(py: Python<'_>, address: usize, numel: usize) -> usize {
    // SAFETY: by the contract of `kernels`.
    take(py, |selection| sparse::nonzero(unsafe { slice(address, numel) }, selection))
}

/// The least magnitude among the `count` largest of `numel` float32 at `address`.
#[pyfunction]
fn kth_magnitude(py: Python<'_>, address: usize, numel: usize, count: usize) -> f32 {
    // SAFETY: by the contract of `kernels`.
    let x = unsafe { slice(address, numel) };
    py.detach(|| SELECTION.with_borrow_mut(|selection| sparse::kth_magnitude(x, count, selection)))
}

/// Copies what the last call of this thread took: int32 to `indices`, float32 to `values`, `count` of each at most.
#[pyfunction]
fn selection(py: Python<'_>, indices: usize, values: usize, count: usize) {
    take(py, |selection| {
        let count = count.min(selection.indices().len());
        // SAFETY: by the contract of `kernels`.
        unsafe {
            slice_mut(indices, count).copy_from_slice(&selection.indices()[..count]);
            slice_mut(values, count).copy_from_slice(&selection.values()[..count]);
        }
    });
}

/// Whether none of `numel` float32 at `address` is infinite or NaN.
#[pyfunction]
fn all_finite(py: Python<'_>, address: usize, numel: usize) -> bool {
    // SAFETY: by the contract of `kernels`.
    py.detach(|| sparse::all_finite(unsafe { slice(address, numel) }))
}

/// Adds `count` float32 at `values` to those of `numel` at `out` that `count` int32 at `indices` lead to.
#[pyfunction]
fn scatter_add(
    py: Python<'_>,
    out: usize,
    numel: usize,
    indices: usize,
    values: usize,
    count: usize,
) -> PyResult<()> {
    // SAFETY: by the contract of `kernels`; `out` is memory of its own.
    let (out, indices, values) =
        unsafe { (slice_mut(out, numel), slice(indices, count), slice(values, count)) };
    py.detach(|| sparse::scatter_add(out, indices, values)).map_err(|error| usage(py, error.to_string()))
}

/// Copies those of `numel` float32 at `address` that `count` int32 at `indices` lead to, to `out`.
#[pyfunction]
fn gather(
    py: Python<'_>,
    address: usize,
    numel: usize,
    indices: usize,
    count: usize,
    out: usize,
) -> PyResult<()> {
    // SAFETY: by the contract of `kernels`; `out` is memory of its own.
    let (x, indices, out) = unsafe { (slice(address, numel), slice(indices, count), slice_mut(out, count)) };
    py.detach(|| sparse::gather(x, indices, out)).map_err(|error| usage(py, error.to_string()))
}

/// The most bytes that `encode_gaps` writes for `count` indices.
#[pyfunction]
fn gaps_room(count: usize) -> usize {
    sparse::gaps_room(count)
}

/// Codes `count` int32 at `indices`, and gives the bytes; None unless they ascend from 0 to `numel - 1`.
#[pyfunction]
fn encode_gaps(py: Python<'_>, indices: usize, count: usize, numel: usize, out: usize) -> Option<usize> {
    // SAFETY: by the contract of `kernels`; there is `gaps_room(count)` at `out`.
    let (indices, out) = unsafe { (slice(indices, count), slice_mut(out, sparse::gaps_room(count))) };
    py.detach(|| sparse::encode_gaps(indices, numel, out))
}

/// Decodes `count` int32 to `out`; false if the `bytes` at `data` do not code so many, all below `numel`.
#[pyfunction]
fn decode_gaps(py: Python<'_>, data: usize, bytes: usize, count: usize, numel: usize, out: usize) -> bool {
    // SAFETY: by the contract of `kernels`; `out` is memory of its own.
    let (data, out) = unsafe { (slice(data, bytes), slice_mut(out, count)) };
    py.detach(|| sparse::decode_gaps(data, numel, out))
}

/// Sets the bits of `count` int32 at `indices` in `numel` bits at `out`; false unless they ascend below `numel`.
#[pyfunction]
fn encode_bitmap(py: Python<'_>, indices: usize, count: usize, numel: usize, out: usize) -> bool {
    // SAFETY: by the contract of `kernels`; `out` is memory of its own.
    let (indices, out) = unsafe { (slice(indices, count), slice_mut(out, numel.div_ceil(8))) };
    py.detach(|| sparse::encode_bitmap(indices, numel, out))
}

/// Decodes `count` int32 to `out`; false if the `bytes` at `data` do not code just so many, all below `numel`.
#[pyfunction]
fn decode_bitmap(py: Python<'_>, data: usize, bytes: usize, count: usize, numel: usize, out: usize) -> bool {
    // SAFETY: by the contract of `kernels`; `out` is memory of its own.
    let (data, out) = unsafe { (slice(data, bytes), slice_mut(out, count)) };
    py.detach(|| sparse::decode_bitmap(data, numel, out))
}
