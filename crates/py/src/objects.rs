//! `Objects` for Python, and the memory in which an object lies.

use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use tweed_kernels::{DType, ReduceOp};
use tweed_net::{
    dtype_of, list_of, shape_of, Costs, EngineError, Finished, Included, Layout, Memory, Mode, ObjectId,
    Objects, ObjectsOptions, Rule, Secret,
};

use crate::detached::Detached;
use crate::errors::{engine_error, usage};

/// No wait is longer without a look at signals.
const SLICE: Duration = Duration::from_millis(200);

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyObjects>()?;
    module.add_class::<PyObjectMemory>()
}

/// Memory of an object, for NumPy (`__array_interface__`); it stays until nobody holds it.
#[pyclass(name = "ObjectMemory", module = "tweed._core", frozen)]
pub struct PyObjectMemory {
    memory: Arc<Memory>,
    dtype: DType,
    shape: Vec<u64>,
    list: Option<u64>,
    writes: Option<(Py<PyObjects>, ObjectId)>,
}

impl Drop for PyObjectMemory {
    /// Nobody can write the rest of it any more.
    fn drop(&mut self) {
        let Some((objects, id)) = self.writes.take() else { return };
        Python::try_attach(|py| py.detach(|| objects.get().inner.abandon(id, &self.memory)));
    }
}

#[pymethods]
impl PyObjectMemory {
    /// The type of its elements.
    #[getter]
    fn dtype(&self) -> String {
        self.dtype.to_string()
    }

    /// What tells the layout of a list of arrays, which is flat, from others. `None` if it is of no list.
    #[getter]
    fn list(&self) -> Option<u64> {
        self.list
    }

    /// How NumPy sees it: bfloat16, which it does not know, as uint16.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let known = PyDict::new(py);
        known.set_item("version", 3)?;
        known.set_item("typestr", typestr(self.dtype))?;
        known.set_item("shape", pyo3::types::PyTuple::new(py, &self.shape)?)?;
        known.set_item("data", (self.memory.address() as usize, self.writes.is_none()))?;
        Ok(known)
    }
}

type Parts = Vec<(u64, u64, Vec<u128>)>;

/// A process that puts, gets and sums objects with others.
#[pyclass(name = "Objects", module = "tweed._core", frozen)]
pub struct PyObjects {
    inner: Detached<Objects>,
}

#[pymethods]
impl PyObjects {
    /// Listens at "host:port", and knows nobody yet.
    #[new]
    #[allow(clippy::too_many_arguments)]
    #[pyo3(signature = (*, address="127.0.0.1:0", secret=None, secret_file=None, testbed=None, most_bytes=1 << 30,
        wire_only=false, latency_s=1e-4, rate=1e9, message_s=2e-5, silence_s=10.0, patience_s=10.0))]
    fn new(
        py: Python<'_>,
        address: &str,
        secret: Option<&str>,
        secret_file: Option<PathBuf>,
        testbed: Option<String>,
        most_bytes: u64,
        wire_only: bool,
        latency_s: f64,
        rate: f64,
        message_s: f64,
        silence_s: f64,
        patience_s: f64,
    ) -> PyResult<PyObjects> {
        let secret = Secret::choose(secret, secret_file.as_deref()).map_err(|e| engine_error(py, &e))?;
        let found = address.to_socket_addrs().ok().and_then(|mut found| found.next());
        let address =
            found.ok_or_else(|| usage(py, format!("{address:?} is no address, as 10.0.0.1:0 is")))?;
        let rate = (rate as u64).max(1);
        let costs = Costs { latency: seconds(latency_s), rate, message: seconds(message_s) };
        let (silence, patience) = (seconds(silence_s), seconds(patience_s));
        let options =
            ObjectsOptions { address, secret, testbed, most_bytes, wire_only, costs, silence, patience };
        let opened = py.detach(|| Objects::open(options));
        Ok(PyObjects { inner: Detached::new(opened.map_err(|e| engine_error(py, &e))?) })
    }

    /// The descriptor by which others reach this process.
    #[getter]
    fn descriptor<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.inner.descriptor())
    }

    /// Meets the processes with these descriptors. Returns those that cannot be reached, by place, and why.
    fn meet(&self, py: Python<'_>, descriptors: Vec<Vec<u8>>) -> PyResult<Vec<(usize, String)>> {
        waiting(py, |interrupted| self.inner.meet(&descriptors, interrupted))
    }

    /// Makes room for an object, which is then written from its first byte on. It is deleted if its memory is let go of
    /// before it is whole.
    fn create(
        slf: &Bound<'_, PyObjects>,
        object: u128,
        dtype: &str,
        shape: Vec<u64>,
        timeout_s: f64,
    ) -> PyResult<PyObjectMemory> {
        let (py, inner, id) = (slf.py(), &slf.get().inner, ObjectId(object));
        let dtype = to_dtype(py, dtype)?;
        let kind = (dtype, &shape[..]);
        let made = waiting(py, |interrupted| inner.create(id, kind, seconds(timeout_s), interrupted));
        let writes = Some((slf.clone().unbind(), id));
        Ok(PyObjectMemory { memory: made?, dtype, shape, list: None, writes })
    }

    /// So many of its bytes are there, for good.
    fn advance(&self, py: Python<'_>, object: u128, valid_bytes: u64) -> PyResult<()> {
        py.detach(|| self.inner.advance(ObjectId(object), valid_bytes)).map_err(|e| engine_error(py, &e))
    }

    /// An object is there: a copy of these parts, each an address and its bytes. `list`: it is a list, of this layout.
    #[allow(clippy::too_many_arguments)]
    #[pyo3(signature = (object, dtype, shape, parts, timeout_s, list=None))]
    fn put(
        &self,
        py: Python<'_>,
        object: u128,
        dtype: &str,
        shape: Vec<u64>,
        parts: Vec<(usize, usize)>,
        timeout_s: f64,
        list: Option<u64>,
    ) -> PyResult<()> {
        let layout = Layout { dtype: to_dtype(py, dtype)?, shape: &shape, list };
        let part = |(address, bytes): (usize, usize)| match bytes {
            0 => &[][..],
            // SAFETY: the caller has an array there, and holds it until this returns.
            _ => unsafe { std::slice::from_raw_parts(address as *const u8, bytes) },
        };
        let parts: Vec<&[u8]> = parts.into_iter().map(part).collect();
        let id = ObjectId(object);
        waiting(py, |interrupted| self.inner.put(id, layout, &parts, seconds(timeout_s), interrupted))
    }

    /// Asks for a copy. Returns the number of the call.
    #[pyo3(signature = (object, timeout_s=None))]
    fn get(&self, py: Python<'_>, object: u128, timeout_s: Option<f64>) -> PyResult<u64> {
        py.detach(|| self.inner.get(ObjectId(object), timeout_s.map(seconds)))
            .map_err(|e| engine_error(py, &e))
    }

    /// Asks for the sum of the first `count` of `ids` that appear. Returns the number of the call.
    #[pyo3(signature = (target, ids, count, op="SUM", mode="whole", rule="measured", timeout_s=None))]
    #[allow(clippy::too_many_arguments)]
    fn reduce(
        &self,
        py: Python<'_>,
        target: u128,
        ids: Vec<u128>,
        count: u32,
        op: &str,
        mode: &str,
        rule: &str,
        timeout_s: Option<f64>,
    ) -> PyResult<u64> {
        let op = ReduceOp::ALL.iter().copied().find(|known| known.to_string() == op);
        let op = op.ok_or_else(|| usage(py, "op must be the name of a reduction, as SUM is".into()))?;
        let how = (op, self::mode(py, mode)?, self::rule(py, rule)?);
        let ids: Arc<[ObjectId]> = ids.into_iter().map(ObjectId).collect();
        let begin = || self.inner.reduce(ObjectId(target), ids, count, how, timeout_s.map(seconds));
        py.detach(begin).map_err(|e| engine_error(py, &e))
    }

    /// Nobody is to have the object any more.
    fn delete(&self, py: Python<'_>, object: u128) -> PyResult<()> {
        py.detach(|| self.inner.delete(ObjectId(object))).map_err(|e| engine_error(py, &e))
    }

    /// The calls that have ended since it was asked last: number, then memory or exception, and of a reduce the ids that are
    /// in, by range of bytes. Waits for one.
    #[allow(clippy::type_complexity)]
    fn ended<'py>(
        &self,
        py: Python<'py>,
        timeout_s: f64,
    ) -> PyResult<Vec<(u64, Bound<'py, PyAny>, Option<Parts>)>> {
        let ended = py.detach(|| self.inner.ended(seconds(timeout_s))).map_err(|e| engine_error(py, &e))?;
        let one = |(number, result): (u64, Result<Finished, EngineError>)| match result {
            Ok(mut finished) => {
                let included = finished.included.take().map(parts);
                Ok((number, Bound::new(py, readable(finished))?.into_any(), included))
            }
            Err(error) => {
                Ok((number, engine_error(py, &error).into_value(py).into_bound(py).into_any(), None))
            }
        };
        ended.into_iter().map(one).collect()
    }

    /// How far an object has come: its memory, and how many bytes may be read. Waits for other than `mark_bytes`.
    fn mark(
        &self,
        py: Python<'_>,
        object: u128,
        mark_bytes: u64,
        timeout_s: f64,
    ) -> PyResult<Option<(PyObjectMemory, u64)>> {
        let found = py.detach(|| self.inner.mark(ObjectId(object), mark_bytes, seconds(timeout_s)));
        let found = found.map_err(|e| engine_error(py, &e))?;
        Ok(found.map(|(found, mark)| (readable(found), mark)))
    }

    /// The sources that have places of a reduce, once there are `least`, or it has ended: then there are none.
    fn placed(&self, py: Python<'_>, target: u128, least: usize, timeout_s: f64) -> PyResult<Vec<u128>> {
        let found = py.detach(|| self.inner.placed(ObjectId(target), least, seconds(timeout_s)));
        Ok(found.map_err(|e| engine_error(py, &e))?.into_iter().map(|id| id.0).collect())
    }

    /// How many bytes objects take here, and how many they may.
    #[getter]
    fn room(&self, py: Python<'_>) -> (u64, u64) {
        py.detach(|| self.inner.room())
    }

    /// Bytes that came more than once, as a link broke or a process died.
    #[getter]
    fn taken_twice(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.inner.taken_twice())
    }

    /// Bytes of the largest block that came: of a copy no more come twice at a time.
    #[getter]
    fn largest_block(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.inner.largest_block())
    }

    /// Whether this process has left.
    #[getter]
    fn is_closed(&self, py: Python<'_>) -> bool {
        py.detach(|| self.inner.is_closed())
    }

    /// Leaves: calls under way end.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.inner.close());
    }
}

fn readable(Finished { format, memory, .. }: Finished) -> PyObjectMemory {
    let dtype = dtype_of(format.kind).unwrap_or(DType::Bytes);
    PyObjectMemory { memory, dtype, shape: shape_of(format), list: list_of(format.kind), writes: None }
}

fn parts(included: Included) -> Parts {
    let ids = |ids: Vec<ObjectId>| ids.into_iter().map(|id| id.0).collect();
    included.into_iter().map(|(range, of)| (range.start, range.end, ids(of))).collect()
}

/// Does something that may wait, and ends it when a signal has come.
fn waiting<T: Send>(
    py: Python<'_>,
    act: impl FnOnce(&dyn Fn() -> bool) -> Result<T, EngineError> + Send,
) -> PyResult<T> {
    let raised = Mutex::new(None);
    let (result, raised) = py.detach(|| {
        let last = std::cell::Cell::new(Instant::now());
        let interrupted = || {
            if last.get().elapsed() < SLICE {
                return false;
            }
            last.set(Instant::now());
            match Python::attach(|py| py.check_signals()) {
                Ok(()) => false,
                Err(error) => raised.lock().map(|mut place| *place = Some(error)).is_ok(),
            }
        };
        let result = act(&interrupted);
        (result, raised.into_inner().ok().flatten())
    });
    match raised {
        Some(error) => Err(error),
        None => result.map_err(|e| engine_error(py, &e)),
    }
}

pub(crate) fn mode(py: Python<'_>, name: &str) -> PyResult<Mode> {
    match name {
        "whole" => Ok(Mode::Whole),
        "ranges" => Ok(Mode::Ranges),
        _ => Err(usage(py, format!("there is no mode {name:?}; use 'whole' or 'ranges'"))),
    }
}

pub(crate) fn rule(py: Python<'_>, name: &str) -> PyResult<Rule> {
    match name {
        "measured" => Ok(Rule::Measured),
        "hybrid" => Ok(Rule::Hybrid),
        "degree" => Ok(Rule::Degree),
        _ => Err(usage(py, format!("there is no rule {name:?}; use 'measured', 'hybrid' or 'degree'"))),
    }
}

fn to_dtype(py: Python<'_>, name: &str) -> PyResult<DType> {
    let found = DType::ALL.iter().copied().find(|dtype| dtype.to_string() == name);
    found.ok_or_else(|| usage(py, format!("objects have no elements of dtype {name}")))
}

fn typestr(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 => "<f2",
        DType::BF16 | DType::U16 => "<u2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::I8 => "|i1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::U8 | DType::Bytes => "|u1",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        DType::Bool => "|b1",
    }
}

fn seconds(given: f64) -> Duration {
    Duration::try_from_secs_f64(given).unwrap_or(Duration::MAX)
}
