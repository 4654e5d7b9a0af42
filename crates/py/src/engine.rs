//! `Node` and `Group` for Python, and the address of the C table: one field each.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pyo3::prelude::*;
use tweed_net::{Admission, Group, GroupSpec, Node, NodeOptions, PlanRow, Ports, Secret, Turn, TABLE};
use tweed_schedule::Collective;

use crate::delivery::{config, PyDelivery, PyLosses, PyLtp};
use crate::detached::Detached;
use crate::errors::{engine_error, usage};
use crate::metrics::{Look, PyGroupMetrics};
use crate::schedule::PySchedule;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyNode>()?;
    module.add_class::<PyGroup>()?;
    module.add_class::<PyGroupMetrics>()?;
    module.add_class::<PyLosses>()?;
    module.add_class::<PyDelivery>()?;
    module.add_function(wrap_pyfunction!(engine_table, module)?)
}

/// The address of the engine's table of C functions (`engine.h`).
#[pyfunction]
fn engine_table() -> usize {
    (&raw const TABLE) as usize
}

type Row<'py> = (String, Option<u64>, PyRef<'py, PySchedule>, Option<u64>, Option<u64>);

/// A process's place in the network: shared memory, listeners, threads.
#[pyclass(name = "Node", module = "tweed._core", frozen)]
pub struct PyNode {
    inner: Detached<Node>,
}

#[pymethods]
impl PyNode {
    /// Most bytes of a group's values that a rank sends to a peer which has not come to their operations yet.
    #[classattr]
    const MOST_AHEAD_BYTES: u64 = tweed_net::MOST_AHEAD_BYTES;

    /// Opens the listeners on `host`. `transport` is "auto", "shm" or "tcp".
    #[new]
    #[allow(clippy::too_many_arguments)]
    #[pyo3(signature = (*, host="127.0.0.1", transport="auto", streams=4, congestion=None, traces=None, deadline_s=None,
        secret=None, secret_file=None, key_file=None, dial_only=false, testbed=None, ports=None))]
    fn new(
        py: Python<'_>,
        host: &str,
        transport: &str,
        streams: u32,
        congestion: Option<String>,
        traces: Option<PathBuf>,
        deadline_s: Option<f64>,
        secret: Option<&str>,
        secret_file: Option<PathBuf>,
        key_file: Option<PathBuf>,
        dial_only: bool,
        testbed: Option<String>,
        ports: Option<(u16, u16)>,
    ) -> PyResult<PyNode> {
        let address: IpAddr =
            host.parse().map_err(|_| usage(py, format!("host {host:?} is not an IP address")))?;
        let deadline = deadline_s.map(|s| Duration::try_from_secs_f64(s).unwrap_or(Duration::MAX));
        let wire_only = transport == "tcp";
        let secret = Secret::choose(secret, secret_file.as_deref()).map_err(|e| engine_error(py, &e))?;
        let admission = Admission { secret, key_file, dial_only, testbed };
        let ports = ports.map(|(first, last)| {
            Ports::new(first, last).ok_or_else(|| usage(py, "that is no range of ports".into()))
        });
        let ports = ports.transpose()?.unwrap_or_default();
        let options =
            NodeOptions { host: address, ports, streams, congestion, wire_only, traces, deadline, admission };
        let inner = py.detach(|| Node::start(options)).map_err(|e| engine_error(py, &e))?;
        Ok(PyNode { inner: Detached::new(inner) })
    }

    /// The address card to give to the other ranks.
    fn card(&self, py: Python<'_>) -> Vec<u8> {
        py.detach(|| self.inner.descriptor())
    }

    /// How many callers were turned away, by reason.
    fn refused(&self) -> std::collections::BTreeMap<&'static str, u64> {
        self.inner.refused().into_iter().collect()
    }

    /// Meets the other ranks; all of them must call it. `plan` has rows (collective, up to bytes, schedule);
    /// `server` and `ltp` (the attributes of `tweed.transport.Ltp`) must be the same at all. `watch` is called some
    /// times a second meanwhile; what it raises, or a signal's handler, ends the wait and is raised. `turn` is called with
    /// the ranks that cannot be called from here, and returns those that ask to be called. `missing` are pairs of ranks
    /// that cannot call each other whatever their cards say, the same at all. `hash` is of no other group; where members come
    /// and go, `epoch` says whose it is: nothing of another epoch is taken for it, whatever the hashes.
    #[allow(clippy::too_many_arguments)]
    #[pyo3(signature = (name, hash, rank, cards, plan, timeout_s, server=None, ltp=None, watch=None, turn=None,
        missing=Vec::new(), epoch=None))]
    fn join(
        &self,
        py: Python<'_>,
        name: String,
        hash: u64,
        rank: u32,
        cards: Vec<Vec<u8>>,
        plan: Vec<Row<'_>>,
        timeout_s: f64,
        server: Option<u32>,
        ltp: Option<PyLtp>,
        watch: Option<Py<PyAny>>,
        turn: Option<Py<PyAny>>,
        missing: Vec<(u32, u32)>,
        epoch: Option<u64>,
    ) -> PyResult<PyGroup> {
        let rows = plan.iter().map(|row| plan_row(py, row)).collect::<PyResult<Vec<_>>>()?;
        let timeout = Duration::try_from_secs_f64(timeout_s).unwrap_or(Duration::MAX);
        let spec = GroupSpec {
            name,
            hash,
            epoch,
            rank,
            descriptors: cards,
            missing,
            rows,
            timeout,
            config: config(server, ltp),
        };
        let raised = Mutex::new(None::<PyErr>);
        let keep = |error: PyErr| raised.lock().map(|mut place| *place = Some(error)).is_ok();
        let interrupted = || {
            let failed = raised.lock().is_ok_and(|place| place.is_some());
            failed || Python::attach(|py| ask(py, watch.as_ref())).is_err_and(keep)
        };
        let turned = |unreached: &[u32]| {
            let Some(turn) = &turn else { return Vec::new() };
            let called = Python::attach(|py| turn.call1(py, (unreached.to_vec(),))?.extract(py));
            called.unwrap_or_else(|error| {
                keep(error);
                Vec::new()
            })
        };
        let joined = py.detach(|| {
            let turned: Option<&Turn<'_>> = if turn.is_some() { Some(&turned) } else { None };
            self.inner.join_turning(spec, &interrupted, turned)
        });
        if let Some(error) = raised.into_inner().ok().flatten() {
            return Err(error);
        }
        let inner = joined.map_err(|e| engine_error(py, &e))?;
        Ok(PyGroup { inner: Detached::new(Arc::new(inner)) })
    }

    /// Leaves all groups and the network in good order, within a second. For the end of the process.
    fn leave(&self, py: Python<'_>) {
        py.detach(|| self.inner.leave());
    }

    /// The address of shared memory that peers on this host read and write in place.
    fn alloc(&self, py: Python<'_>, bytes: u64) -> PyResult<usize> {
        let address = py.detach(|| self.inner.alloc(bytes).map(|p| p as usize));
        address.map_err(|e| engine_error(py, &e))
    }

    /// Gives back what `alloc` returned.
    fn free(&self, py: Python<'_>, address: usize) {
        py.detach(|| self.inner.free(address as *mut u8));
    }
}

/// Raises what a signal's handler raises, or `watch`.
fn ask(py: Python<'_>, watch: Option<&Py<PyAny>>) -> PyResult<()> {
    py.check_signals()?;
    watch.map(|watch| watch.call0(py)).transpose().map(drop)
}

fn plan_row(py: Python<'_>, (name, up_to_bytes, schedule, in_flight, piece): &Row<'_>) -> PyResult<PlanRow> {
    let found = Collective::ALL.iter().find(|c| c.name() == name);
    let collective = *found.ok_or_else(|| usage(py, format!("there is no collective {name:?}")))?;
    let schedule = Arc::new(schedule.inner.clone());
    let (in_flight_bytes, piece_bytes) = (*in_flight, *piece);
    Ok(PlanRow { collective, up_to_bytes: *up_to_bytes, schedule, in_flight_bytes, piece_bytes })
}

/// A rank's handle on a group. Operations go through the C table.
#[pyclass(name = "Group", module = "tweed._core", frozen)]
pub struct PyGroup {
    inner: Detached<Arc<Group>>,
}

#[pymethods]
impl PyGroup {
    /// This process's rank in the group.
    #[getter]
    fn rank(&self) -> u32 {
        self.inner.rank()
    }

    /// How many ranks take part.
    #[getter]
    fn size(&self) -> u32 {
        self.inner.ranks()
    }

    /// How each rank is reached: "self", "shm", "tcp" or "ltp".
    #[getter]
    fn links(&self) -> Vec<&'static str> {
        self.inner.links()
    }

    /// Runs later calls by this plan. All ranks must do so between the same two calls.
    fn adopt(&self, py: Python<'_>, plan: Vec<Row<'_>>) -> PyResult<()> {
        let rows = plan.iter().map(|row| plan_row(py, row)).collect::<PyResult<Vec<_>>>()?;
        self.inner.adopt(rows).map_err(|e| engine_error(py, &e))
    }

    /// The `tweed_group*` of the C table; valid as long as this object lives.
    fn address(&self) -> usize {
        Arc::as_ptr(&self.inner) as usize
    }

    /// What went over its links. Does not keep the group open.
    fn metrics(&self) -> PyGroupMetrics {
        PyGroupMetrics { inner: Look::at(&self.inner) }
    }

    /// What gets lost on its links, and what must not. Does not keep the group open.
    fn losses(&self) -> PyLosses {
        PyLosses { inner: Look::at(&self.inner) }
    }

    /// The settings of its wires, and how long what may take, in words.
    fn describe(&self) -> String {
        format!("{}; {}", self.inner.wire_settings(), self.inner.limits())
    }
}
