//! MultiTree for Python.

use pyo3::prelude::*;
use tweed_schedule::{MultiTree, Schedule};

use super::topology::PyTopology;
use super::PySchedule;
use crate::errors::{schedule_error, usage};

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(multitree, module)?)
}

/// Builds a schedule by `tweed_schedule::MultiTree`. Raises UsageError and ScheduleError.
#[pyfunction]
fn multitree(
    py: Python<'_>,
    collective: &str,
    topology: &Bound<'_, PyTopology>,
    pieces: u32,
    split: bool,
) -> PyResult<PySchedule> {
    let topology = &topology.get().inner;
    let collective = collective.parse().map_err(|error| schedule_error(py, &error))?;
    let Some(draft) = py.detach(|| MultiTree { pieces, split }.draft(collective, topology)) else {
        let text = "some rank of the network cannot be reached from another: add the links that are missing";
        return Err(usage(py, text.to_owned()));
    };
    let inner = py.detach(|| Schedule::new(draft)).map_err(|error| schedule_error(py, &error))?;
    Ok(PySchedule { inner })
}
