//! A group's metrics for Python: one field.

use std::sync::{Arc, Weak};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use tweed_net::{EngineError, Group, LinkStats};

use crate::errors::engine_error;

/// A group that is not kept open by this. When it is gone, calls raise `Aborted`.
pub(crate) struct Look(Weak<Group>);

impl Look {
    pub(crate) fn at(group: &Arc<Group>) -> Look {
        Look(Arc::downgrade(group))
    }

    /// Without the interpreter's lock, as the last reference to the group may go in here.
    pub(crate) fn with<T: Send>(&self, py: Python<'_>, run: impl FnOnce(&Group) -> T + Send) -> PyResult<T> {
        let gone = || EngineError::Aborted("the group is gone".into());
        let outcome = py.detach(|| {
            let group = self.0.upgrade().ok_or_else(gone)?;
            group.check_process()?;
            Ok(run(&group))
        });
        outcome.map_err(|e| engine_error(py, &e))
    }
}

/// A look at a group that does not keep it open. When the group is gone, its methods raise `Aborted`.
#[pyclass(name = "GroupMetrics", module = "tweed._core", frozen)]
pub struct PyGroupMetrics {
    pub(crate) inner: Look,
}

#[pymethods]
impl PyGroupMetrics {
    /// This process's rank in the group.
    #[getter]
    fn rank(&self, py: Python<'_>) -> PyResult<u32> {
        self.inner.with(py, Group::rank)
    }

    /// How many ranks take part.
    #[getter]
    fn size(&self, py: Python<'_>) -> PyResult<u32> {
        self.inner.with(py, Group::ranks)
    }

    /// The epoch of members that come and go, if the group is of such; else `None`.
    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.inner.with(py, Group::epoch)
    }

    /// What went over the links to each rank, and how late each came: counters that only grow.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let stats = self.inner.with(py, Group::stats)?;
        stats.iter().map(|link| stats_row(py, link)).collect()
    }

    /// Seconds in which at least one operation has been under way here: a counter that only grows.
    fn under_way_s(&self, py: Python<'_>) -> PyResult<f64> {
        Ok(self.inner.with(py, Group::under_way)?.as_secs_f64())
    }

    /// Leaves a short text at rank 0, over the one left before.
    fn post(&self, py: Python<'_>, text: &[u8]) -> PyResult<()> {
        self.inner.with(py, |group| group.set_note(text))?.map_err(|e| engine_error(py, &e))
    }

    /// At rank 0: the latest text of each rank that has left one.
    fn posted<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let notes = PyDict::new(py);
        for (rank, text) in self.inner.with(py, Group::notes)? {
            notes.set_item(rank, PyBytes::new(py, &text))?;
        }
        Ok(notes)
    }
}

fn stats_row<'py>(py: Python<'py>, stats: &LinkStats) -> PyResult<Bound<'py, PyDict>> {
    let row = PyDict::new(py);
    row.set_item("rank", stats.rank)?;
    row.set_item("host", &stats.host)?;
    row.set_item("link", stats.link)?;
    row.set_item("bytes_out", stats.traffic.bytes_out)?;
    row.set_item("bytes_in", stats.traffic.bytes_in)?;
    row.set_item("messages_out", stats.traffic.messages_out)?;
    row.set_item("messages_in", stats.traffic.messages_in)?;
    row.set_item("retransmissions", stats.wires.retransmissions)?;
    let rtt = stats.packets.rtt.or(stats.wires.rtt);
    row.set_item("rtt_s", rtt.map(|rtt| rtt.as_secs_f64()))?;
    row.set_item("packets", stats.packets.sent)?;
    row.set_item("packets_lost", stats.packets.lost)?;
    row.set_item("bandwidth", stats.packets.bandwidth)?;
    row.set_item("times_last", stats.times_last)?;
    row.set_item("lateness_s", stats.lateness.as_secs_f64())?;
    Ok(row)
}
