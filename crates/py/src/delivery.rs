//! What a group that may lose parts tells and is told: one field each.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tweed_net::{Delivery, Group, GroupConfig, Ltp};

use crate::metrics::Look;

/// `tweed.transport.Ltp`, or anything with its attributes.
#[derive(FromPyObject)]
pub(crate) struct PyLtp {
    fraction: f64,
    slack_s: f64,
    lossless: bool,
    divide_by: String,
    return_lost: bool,
    epoch_steps: u32,
    cipher: String,
}

/// The config of a group, from Python's words for them.
pub(crate) fn config(server: Option<u32>, ltp: Option<PyLtp>) -> GroupConfig {
    let ltp = ltp.map(|given| Ltp {
        fraction: given.fraction,
        slack: Duration::try_from_secs_f64(given.slack_s).unwrap_or(Duration::MAX),
        lossless: given.lossless,
        divide_by_delivered: given.divide_by == "delivered",
        return_lost: given.return_lost,
        epoch: given.epoch_steps,
        cipher: given.cipher,
    });
    GroupConfig { server, ltp }
}

/// A group that it does not keep open. When the group is gone, its methods raise `Aborted`.
#[pyclass(name = "Losses", module = "tweed._core", frozen)]
pub struct PyLosses {
    pub(crate) inner: Look,
}

#[pymethods]
impl PyLosses {
    /// Memory of this rank loses no parts in any contribution from now on; of 0 bytes: it may again.
    fn keep_whole(&self, py: Python<'_>, address: usize, bytes: usize) -> PyResult<()> {
        self.inner.with(py, |group| group.keep_whole(address, bytes))
    }

    /// Calls from or to memory of this rank are so urgent from now on; 0: as all others.
    fn set_urgency(&self, py: Python<'_>, address: usize, bytes: usize, urgency: i32) -> PyResult<()> {
        self.inner.with(py, |group| group.set_urgency(address, bytes, urgency))
    }

    /// All-to-alls from and to that memory carry contributions, which may lose parts; of 0 bytes: no more.
    fn may_lose(&self, py: Python<'_>, address: usize, bytes: usize) -> PyResult<()> {
        self.inner.with(py, |group| group.may_lose(address, bytes))
    }

    /// How operations were delivered that have ended since the last call, oldest first; some thousands are kept.
    fn take_deliveries(&self, py: Python<'_>) -> PyResult<Vec<PyDelivery>> {
        let taken = self.inner.with(py, Group::take_deliveries)?;
        Ok(taken.into_iter().map(|inner| PyDelivery { inner }).collect())
    }
}

/// How the contributions to one operation were delivered.
#[pyclass(name = "Delivery", module = "tweed._core", frozen)]
pub struct PyDelivery {
    inner: Delivery,
}

#[pymethods]
impl PyDelivery {
    /// The operation's number within the group.
    #[getter]
    fn operation(&self) -> u64 {
        self.inner.operation
    }

    /// Bytes that this rank contributed in packets.
    #[getter]
    fn sent_bytes(&self) -> u64 {
        self.inner.sent.bytes
    }

    /// How many of these bytes did not arrive.
    #[getter]
    fn lost_bytes(&self) -> u64 {
        self.inner.sent.lost
    }

    /// Bytes contributed between this rank and each other one, both ways together, and how many were lost.
    #[getter]
    fn by_rank(&self) -> std::collections::BTreeMap<u32, (u64, u64)> {
        self.inner.by_rank.iter().map(|(&rank, share)| (rank, (share.bytes, share.lost))).collect()
    }

    /// What of others' contributions did not arrive, in an all-to-all of them: address, and bytes, which are zero.
    #[getter]
    fn missing(&self) -> Vec<(usize, u64)> {
        self.inner.missing.clone()
    }

    /// What of this rank's contributions did not arrive: address, and values as they were sent.
    #[getter]
    fn lost<'py>(&self, py: Python<'py>) -> Vec<(usize, Bound<'py, PyBytes>)> {
        self.inner.lost.iter().map(|(address, values)| (*address, PyBytes::new(py, values))).collect()
    }
}
