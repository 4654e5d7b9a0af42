//! Loops over the numbers of tensors. Memory comes as addresses; `tweed.compress.native` and `tweed.aggregate` have checked them.

mod columns;
mod products;
mod quant;
mod sparse;

use pyo3::prelude::*;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    columns::register(module)?;
    products::register(module)?;
    quant::register(module)?;
    sparse::register(module)
}

/// Memory of a tensor; that of an empty one has no address.
///
/// Safety: `numel` elements lie at `address`, aligned, and nobody writes to them while the result lives.
unsafe fn slice<'a, T>(address: usize, numel: usize) -> &'a [T] {
    if numel == 0 {
        return &[];
    }
    // SAFETY: by contract.
    unsafe { std::slice::from_raw_parts(address as *const T, numel) }
}

/// As [`slice`], to be written to.
///
/// Safety: as there, and nobody else touches them.
unsafe fn slice_mut<'a, T>(address: usize, numel: usize) -> &'a mut [T] {
    if numel == 0 {
        return &mut [];
    }
    // SAFETY: by contract.
    unsafe { std::slice::from_raw_parts_mut(address as *mut T, numel) }
}
