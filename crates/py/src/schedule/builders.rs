//! The heavy builders for Python.

use pyo3::prelude::*;
use tweed_schedule::{Collective, Draft, MultiTree, Schedule, TimeExpanded};

use super::topology::PyTopology;
use super::PySchedule;
use crate::errors::{schedule_error, usage};

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(multitree, module)?)?;
    module.add_function(wrap_pyfunction!(time_expanded, module)?)
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
    let collective = named(py, collective)?;
    let draft = py.detach(|| MultiTree { pieces, split }.draft(collective, topology));
    proven(py, draft.ok_or_else(|| cut_off(py))?)
}

/// Builds a schedule by `tweed_schedule::TimeExpanded`; `options` are pieces, bytes of a chunk, first seed, seeds.
///
/// Returns it with the seconds that it takes by the builder's own clock. Raises UsageError and ScheduleError.
#[pyfunction]
fn time_expanded(
    py: Python<'_>,
    collective: &str,
    topology: &Bound<'_, PyTopology>,
    options: (u32, u64, u64, u32),
) -> PyResult<(PySchedule, f64)> {
    let (pieces, bytes, seed, tries) = options;
    let topology = &topology.get().inner;
    let collective = named(py, collective)?;
    let drafted = py.detach(|| TimeExpanded { pieces, bytes, seed, tries }.draft(collective, topology));
    let (draft, nanos) = drafted.ok_or_else(|| cut_off(py))?;
    Ok((proven(py, draft)?, nanos as f64 * 1e-9))
}

fn named(py: Python<'_>, collective: &str) -> PyResult<Collective> {
    collective.parse().map_err(|error| schedule_error(py, &error))
}

fn proven(py: Python<'_>, draft: Draft) -> PyResult<PySchedule> {
    let inner = py.detach(|| Schedule::new(draft)).map_err(|error| schedule_error(py, &error))?;
    Ok(PySchedule { inner })
}

fn cut_off(py: Python<'_>) -> PyErr {
    let text = "some rank of the network cannot be reached from another: add the links that are missing";
    usage(py, text.to_owned())
}
