//! The extension module `tweed._core`: thin wrappers, no ideas.
mod errors;
mod schedule;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    schedule::register(module)?;
    Ok(())
}
