//! `Schedule` and `Send` for Python: one field each.

mod builders;
pub(crate) mod topology;
mod trees;

use std::hash::{Hash, Hasher};
use std::time::Duration;

use pyo3::prelude::*;
use tweed_schedule::{Draft, Schedule, ScheduleError, Send};

use crate::errors::schedule_error;
use topology::{PyCost, PyTopology};

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PySend>()?;
    module.add_class::<PySchedule>()?;
    builders::register(module)?;
    trees::register(module)?;
    topology::register(module)
}

/// One transfer of one chunk.
///
/// `step` is logical time, `src` and `dst` are ranks, `chunk` counts the parts of the buffer. `reduce` adds
/// to the value at `dst` instead of replacing it. `route` lists the nodes between `src` and `dst`. `after`
/// lists the indices of sends to wait for beyond what the steps imply.
#[pyclass(name = "Send", module = "tweed._core", frozen, eq, hash)]
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PySend {
    pub(crate) inner: Send,
}

type SendFields = (u32, u32, u32, u32, bool, Vec<u32>, Vec<u32>);

#[pymethods]
impl PySend {
    #[classattr]
    #[pyo3(name = "__match_args__")]
    fn match_args() -> (&'static str, &'static str, &'static str, &'static str, &'static str) {
        ("step", "src", "dst", "chunk", "reduce")
    }

    #[new]
    #[pyo3(signature = (step, src, dst, chunk, reduce, route=Vec::new(), after=Vec::new()))]
    fn new(
        step: u32,
        src: u32,
        dst: u32,
        chunk: u32,
        reduce: bool,
        route: Vec<u32>,
        after: Vec<u32>,
    ) -> PySend {
        let (route, after) = (route.into(), after.into());
        PySend { inner: Send { step, src, dst, chunk, reduce, route, after } }
    }

    #[getter]
    fn step(&self) -> u32 {
        self.inner.step
    }
    #[getter]
    fn src(&self) -> u32 {
        self.inner.src
    }
    #[getter]
    fn dst(&self) -> u32 {
        self.inner.dst
    }
    #[getter]
    fn chunk(&self) -> u32 {
        self.inner.chunk
    }
    #[getter]
    fn reduce(&self) -> bool {
        self.inner.reduce
    }
    #[getter]
    fn route(&self) -> Vec<u32> {
        self.inner.route.to_vec()
    }
    #[getter]
    fn after(&self) -> Vec<u32> {
        self.inner.after.to_vec()
    }

    fn __repr__(&self) -> String {
        let Send { step, src, dst, chunk, reduce, route, after } = &self.inner;
        let verb = if *reduce { "True" } else { "False" };
        let tail = if route.is_empty() && after.is_empty() {
            String::new()
        } else {
            format!(", route={route:?}, after={after:?}")
        };
        format!("Send(step={step}, src={src}, dst={dst}, chunk={chunk}, reduce={verb}{tail})")
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> (Py<PyAny>, SendFields) {
        let Send { step, src, dst, chunk, reduce, route, after } = slf.get().inner.clone();
        (slf.get_type().unbind().into_any(), (step, src, dst, chunk, reduce, route.to_vec(), after.to_vec()))
    }
}

/// A frozen, proven collective: the only way to make one runs the checker.
///
/// `collective` is a name such as "all_reduce". `chunks` is a multiple of what it needs: any number for
/// all_reduce, broadcast and reduce; of `ranks` for reduce_scatter, all_gather, gather and scatter (parts are
/// contiguous); of `ranks * ranks` for all_to_all (pairs are contiguous, source first). `topology` None
/// means a direct link between every two ranks. Raises ScheduleError naming step, link, rank and chunk.
#[pyclass(name = "Schedule", module = "tweed._core", frozen, eq, hash)]
#[derive(Clone, PartialEq, Eq)]
pub struct PySchedule {
    pub(crate) inner: Schedule,
}

impl Hash for PySchedule {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.digest().hash(state);
    }
}

type ScheduleFields = (String, &'static str, u32, u32, Vec<PySend>, u32, Option<PyTopology>);

#[pymethods]
impl PySchedule {
    #[new]
    #[pyo3(signature = (name, collective, ranks, chunks, sends, root=0, topology=None))]
    fn new(
        name: String,
        collective: &str,
        ranks: u32,
        chunks: u32,
        sends: &Bound<'_, PyAny>,
        root: u32,
        topology: Option<&Bound<'_, PyTopology>>,
    ) -> PyResult<PySchedule> {
        let py = sends.py();
        let raise = |error: ScheduleError| schedule_error(py, &error);
        let draft = Draft {
            name,
            collective: collective.parse().map_err(raise)?,
            root,
            ranks,
            chunks,
            sends: collect(sends)?,
            topology: topology.map(|topology| topology.get().inner.clone()),
        };
        let inner = py.detach(|| Schedule::new(draft)).map_err(raise)?;
        Ok(PySchedule { inner })
    }

    /// The builder's name, for people.
    #[getter]
    fn name(&self) -> &str {
        self.inner.name()
    }
    /// What it promises, such as "all_reduce".
    #[getter]
    fn collective(&self) -> &'static str {
        self.inner.collective().name()
    }
    /// The root of rooted collectives; 0 elsewhere.
    #[getter]
    fn root(&self) -> u32 {
        self.inner.root()
    }
    /// How many ranks take part.
    #[getter]
    fn ranks(&self) -> u32 {
        self.inner.ranks()
    }
    /// Into how many chunks the buffer is cut.
    #[getter]
    fn chunks(&self) -> u32 {
        self.inner.chunks()
    }
    /// The links it was checked against; None: a direct link between every two ranks.
    #[getter]
    fn topology(&self) -> Option<PyTopology> {
        let inner = self.inner.topology()?.clone();
        Some(PyTopology { inner })
    }
    /// 64 bits, equal on every machine for schedules that do the same; covers all but name and topology.
    #[getter]
    fn digest(&self) -> u64 {
        self.inner.digest()
    }

    /// Bytes of memory that the sends take; the topology is shared and not counted.
    #[getter]
    fn nbytes(&self) -> usize {
        self.inner.nbytes()
    }

    /// Every send leaves a rank that held the chunk from the start: nothing is handed on.
    #[getter]
    fn direct(&self) -> bool {
        self.inner.is_direct()
    }

    /// The transfers, ordered by step.
    #[getter]
    fn sends(&self) -> Vec<PySend> {
        self.inner.sends().iter().map(|send| PySend { inner: send.clone() }).collect()
    }

    fn __len__(&self) -> usize {
        self.inner.sends().len()
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let sends = slf.get().sends().into_pyobject(slf.py())?;
        Ok(sends.try_iter()?.into_any())
    }

    /// Steps and bytes for a buffer of `numbytes` (all chunks together).
    fn cost(&self, numbytes: u64) -> PyCost {
        PyCost { inner: self.inner.cost(numbytes) }
    }

    /// Estimated seconds for a buffer of `numbytes` over `topology`, steps one after the other.
    ///
    /// Raises ScheduleError if a link that it uses is not there. A link of bandwidth 0 takes for ever (inf).
    fn seconds(&self, py: Python<'_>, numbytes: u64, topology: &Bound<'_, PyTopology>) -> PyResult<f64> {
        let time = self.inner.time(numbytes, &topology.get().inner);
        let time = time.map_err(|error| schedule_error(py, &error))?;
        Ok(if time == Duration::MAX { f64::INFINITY } else { time.as_secs_f64() })
    }

    /// A schedule of the same collective for another root; one without a root comes back as it is.
    fn rotated(&self, py: Python<'_>, root: u32) -> PyResult<PySchedule> {
        let inner = self.inner.rotated(root).map_err(|error| schedule_error(py, &error))?;
        Ok(PySchedule { inner })
    }

    fn __repr__(&self) -> String {
        let schedule = &self.inner;
        format!(
            "Schedule({:?}, {:?}, ranks={}, chunks={}, {} sends, digest={:016x})",
            schedule.name(),
            schedule.collective().name(),
            schedule.ranks(),
            schedule.chunks(),
            schedule.sends().len(),
            schedule.digest(),
        )
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> (Py<PyAny>, ScheduleFields) {
        let this = slf.get();
        let fields = (
            this.name().to_owned(),
            this.collective(),
            this.ranks(),
            this.chunks(),
            this.sends(),
            this.root(),
            this.topology(),
        );
        (slf.get_type().unbind().into_any(), fields)
    }
}

fn collect(sends: &Bound<'_, PyAny>) -> PyResult<Vec<Send>> {
    let send = |item: PyResult<Bound<'_, PyAny>>| Ok(item?.cast::<PySend>()?.get().inner.clone());
    sends.try_iter()?.map(send).collect()
}
