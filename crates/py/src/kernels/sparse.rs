//! Choosing numbers of a buffer.
//!
//! What a call takes stays in memory of its thread until [`taken`] fetches it.

use std::cell::RefCell;

use pyo3::prelude::*;
use tweed_kernels::sparse::{self, Taken};

use super::{slice, slice_mut};

thread_local! {
    static TAKEN: RefCell<Taken> = RefCell::default();
}

pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(top_k, module)?)?;
    module.add_function(wrap_pyfunction!(threshold, module)?)?;
    module.add_function(wrap_pyfunction!(nonzero, module)?)?;
    module.add_function(wrap_pyfunction!(kth_magnitude, module)?)?;
    module.add_function(wrap_pyfunction!(taken, module)?)?;
    module.add_function(wrap_pyfunction!(all_finite, module)?)
}

/// Calls `take` without the interpreter's lock; gives how many numbers it took.
fn take(py: Python<'_>, take: impl FnOnce(&mut Taken) + Send) -> usize {
    py.detach(|| {
        TAKEN.with_borrow_mut(|taken| {
            take(taken);
            taken.indices().len()
        })
    })
}

/// Takes the `count` largest of `numel` float32 at `address`, or of their sums with those at `error`.
#[pyfunction]
fn top_k(py: Python<'_>, address: usize, numel: usize, error: Option<usize>, count: usize) -> usize {
    take(py, |taken| {
        // SAFETY: by the contract of `kernels`; the two are different memory.
        let (x, error) = unsafe { (slice(address, numel), error.map(|error| slice_mut(error, numel))) };
        sparse::top_k(x, error, count, taken);
    })
}

/// Takes those of `numel` float32 at `address`, or of their sums with those at `error`, that reach `tau`.
#[pyfunction]
fn threshold(py: Python<'_>, address: usize, numel: usize, error: Option<usize>, tau: f32) -> usize {
    take(py, |taken| {
        // SAFETY: by the contract of `kernels`; the two are different memory.
        let (x, error) = unsafe { (slice(address, numel), error.map(|error| slice_mut(error, numel))) };
        sparse::threshold(x, error, tau, taken);
    })
}

/// Takes those of `numel` float32 at `address` that are not zero.
#[pyfunction]
fn nonzero(py: Python<'_>, address: usize, numel: usize) -> usize {
    // SAFETY: by the contract of `kernels`.
    take(py, |taken| sparse::nonzero(unsafe { slice(address, numel) }, taken))
}

/// The least magnitude among the `count` largest of `numel` float32 at `address`.
#[pyfunction]
fn kth_magnitude(py: Python<'_>, address: usize, numel: usize, count: usize) -> f32 {
    // SAFETY: by the contract of `kernels`.
    let x = unsafe { slice(address, numel) };
    py.detach(|| TAKEN.with_borrow_mut(|taken| sparse::kth_magnitude(x, count, taken)))
}

/// Copies what the last call of this thread took: int32 to `indices`, float32 to `values`, `count` of each at most.
#[pyfunction]
fn taken(py: Python<'_>, indices: usize, values: usize, count: usize) {
    take(py, |taken| {
        let count = count.min(taken.indices().len());
        // SAFETY: by the contract of `kernels`.
        unsafe {
            slice_mut(indices, count).copy_from_slice(&taken.indices()[..count]);
            slice_mut(values, count).copy_from_slice(&taken.values()[..count]);
        }
    });
}

/// Whether none of `numel` float32 at `address` is infinite or NaN.
#[pyfunction]
fn all_finite(py: Python<'_>, address: usize, numel: usize) -> bool {
    // SAFETY: by the contract of `kernels`.
    py.detach(|| sparse::all_finite(unsafe { slice(address, numel) }))
}
