//! The extension module `tweed._core`: thin wrappers, no ideas.
use pyo3::prelude::*;

#[pymodule(gil_used = false)]
fn _core(_m: &Bound<'_, PyModule>) -> PyResult<()> {
    Ok(())
}
