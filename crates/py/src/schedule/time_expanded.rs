//! The time-expanded builder for Python.

use pyo3::prelude::*;
use tweed_schedule::{Schedule, TimeExpanded};

use super::topology::PyTopology;
use super::PySchedule;
use crate::errors::{schedule_error, usage};

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(time_expanded, module)?)
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
    let (topology, builder) = (&topology.get().inner, TimeExpanded { pieces, bytes, seed, tries });
    let collective = collective.parse().map_err(|error| schedule_error(py, &error))?;
    let drafted = py.detach(|| builder.draft(collective, topology));
    let Some((draft, nanos)) = drafted else {
        let text = format!(
            "in {topology:?} some rank cannot be reached from another: add the links that are missing"
        );
        return Err(usage(py, text));
    };
    let inner = py.detach(|| Schedule::new(draft)).map_err(|error| schedule_error(py, &error))?;
    Ok((PySchedule { inner }, nanos as f64 * 1e-9))
}
