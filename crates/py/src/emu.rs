//! The link emulator for Python: a process of `tweed.testbed` runs it.

use std::fs::File;
use std::os::fd::FromRawFd;

use pyo3::prelude::*;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(emulate, module)?)
}

/// Emulates links until the descriptor `requests` ends: see `tweed_emu::serve`. Closes both descriptors.
#[pyfunction]
fn emulate(py: Python<'_>, settings: &str, requests: i32, answers: i32) -> PyResult<()> {
    // SAFETY: the caller gives both descriptors away.
    let (requests, answers) = unsafe { (File::from_raw_fd(requests), File::from_raw_fd(answers)) };
    Ok(py.detach(|| tweed_emu::serve(settings, requests, answers))?)
}
