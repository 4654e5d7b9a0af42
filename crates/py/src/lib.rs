//! The extension module `tweed._core`: thin wrappers, no ideas.
mod delivery;
mod detached;
mod emu;
mod engine;
mod errors;
mod hub;
mod kernels;
mod members;
mod metrics;
mod objects;
mod schedule;
mod simulate;
mod simulate_objects;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    emu::register(module)?;
    engine::register(module)?;
    hub::register(module)?;
    kernels::register(module)?;
    members::register(module)?;
    objects::register(module)?;
    schedule::register(module)?;
    simulate::register(module)?;
    simulate_objects::register(module)?;
    Ok(())
}
