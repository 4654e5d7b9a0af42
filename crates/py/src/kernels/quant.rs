//! Numbers as codes of a few bits.

use pyo3::prelude::*;
use tweed_kernels::quant::{decode_add, encode, Form, NoSuchForm, Scheme};

use super::{slice, slice_mut};
use crate::errors::usage;

pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(quant_encode, module)?)?;
    module.add_function(wrap_pyfunction!(quant_decode_add, module)?)
}

/// Scheme, bits, block and levels.
type Fields<'a> = (&'a str, u32, usize, u32);

fn form(py: Python<'_>, (scheme, bits, block, levels): Fields<'_>) -> PyResult<Form> {
    let scheme = match scheme {
        "sign" => Scheme::Sign,
        "uniform" => Scheme::Uniform,
        "levels" => Scheme::Levels,
        _ => return Err(usage(py, format!("there is no scheme {scheme:?}"))),
    };
    Form::new(scheme, bits, block, levels).map_err(|error: NoSuchForm| usage(py, error.to_string()))
}

/// Writes `numel` float32 at `address`, or their sums with those at `error`, to `scales` and `codes`.
#[pyfunction]
#[pyo3(signature = (address, numel, error, fields, key, written))]
fn quant_encode(
    py: Python<'_>,
    address: usize,
    numel: usize,
    error: Option<usize>,
    fields: Fields<'_>,
    key: Option<u64>,
    written: (usize, usize),
) -> PyResult<()> {
    let form = form(py, fields)?;
    py.detach(|| {
        // SAFETY: by the contract of `kernels`; all four are different memory.
        let (x, error, scales, codes) = unsafe {
            (
                slice(address, numel),
                error.map(|error| slice_mut(error, numel)),
                slice_mut(written.0, form.scale_count(numel, 0)),
                slice_mut(written.1, form.code_bytes(numel)),
            )
        };
        encode(x, error, &form, key, scales, codes);
    });
    Ok(())
}

/// Adds what `scales` and `codes` say to `numel` float32 at `address`.
#[pyfunction]
#[pyo3(signature = (address, numel, written, fields, first))]
fn quant_decode_add(
    py: Python<'_>,
    address: usize,
    numel: usize,
    written: (usize, usize),
    fields: Fields<'_>,
    first: usize,
) -> PyResult<()> {
    let form = form(py, fields)?;
    py.detach(|| {
        // SAFETY: by the contract of `kernels`; all three are different memory.
        let (out, scales, codes) = unsafe {
            (
                slice_mut(address, numel),
                slice(written.0, form.scale_count(numel, first)),
                slice(written.1, form.code_bytes(numel)),
            )
        };
        decode_add(out, scales, codes, &form, first);
    });
    Ok(())
}
