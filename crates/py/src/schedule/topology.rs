//! `Topology` and `Cost` for Python: one field each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tweed_schedule::{Cost, Link, Topology};

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyTopology>()?;
    module.add_class::<PyCost>()
}

/// Directed links between nodes. Nodes below `ranks` are ranks, those above are switches.
///
/// `links` yields `(from, to, bytes per second, latency in seconds)`; each link carries its own traffic.
#[pyclass(name = "Topology", module = "tweed._core", frozen, eq)]
#[derive(Clone, PartialEq, Eq)]
pub struct PyTopology {
    pub(crate) inner: Arc<Topology>,
}

type LinkFields = (u32, u32, u64, f64);

#[pymethods]
impl PyTopology {
    #[new]
    fn new(ranks: u32, links: Vec<LinkFields>) -> PyResult<PyTopology> {
        let links: Vec<_> = links
            .into_iter()
            .map(|(from, to, bandwidth, latency_s)| Ok(((from, to), link(bandwidth, latency_s)?)))
            .collect::<PyResult<_>>()?;
        Ok(PyTopology { inner: Arc::new(Topology::from_links(ranks, links)) })
    }

    /// A flat network: every rank reaches each other, and all that one rank sends (or receives) at a time
    /// shares one port of `bandwidth` bytes per second.
    #[staticmethod]
    fn complete(ranks: u32, bandwidth: u64, latency_s: f64) -> PyResult<PyTopology> {
        let link = link(bandwidth, latency_s)?;
        Ok(PyTopology { inner: Arc::new(Topology::complete(ranks, link)) })
    }

    /// How many nodes are ranks.
    #[getter]
    fn ranks(&self) -> u32 {
        self.inner.ranks()
    }

    /// Every directed link as `(from, to, bytes per second, latency in seconds)`.
    #[getter]
    fn links(&self) -> Vec<LinkFields> {
        let fields =
            |((from, to), link): ((u32, u32), Link)| (from, to, link.bandwidth, link.latency.as_secs_f64());
        self.inner.links().into_iter().map(fields).collect()
    }

    /// Is there a directed link between two nodes?
    fn has_link(&self, src: u32, dst: u32) -> bool {
        self.inner.has_link(src, dst)
    }

    fn __repr__(&self) -> String {
        let kind = if self.inner.port().is_some() { "complete" } else { "listed" };
        format!("Topology({} ranks, {kind}, {} links)", self.ranks(), self.inner.links().len())
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<(Py<PyAny>, Py<PyAny>)> {
        let (py, this) = (slf.py(), slf.get());
        let class = slf.get_type().into_any();
        Ok(match this.inner.port() {
            Some(port) => {
                let fields = (this.ranks(), port.bandwidth, port.latency.as_secs_f64());
                (class.getattr("complete")?.unbind(), fields.into_pyobject(py)?.into_any().unbind())
            }
            None => {
                let fields = (this.ranks(), this.links());
                (class.unbind(), fields.into_pyobject(py)?.into_any().unbind())
            }
        })
    }
}

fn link(bandwidth: u64, latency_s: f64) -> PyResult<Link> {
    match Duration::try_from_secs_f64(latency_s) {
        Ok(latency) => Ok(Link { bandwidth, latency }),
        Err(_) => Err(PyValueError::new_err(format!("a latency of {latency_s} s is not possible"))),
    }
}

/// What a schedule costs for a buffer of a given size.
#[pyclass(name = "Cost", module = "tweed._core", frozen, eq)]
#[derive(Clone, PartialEq, Eq)]
pub struct PyCost {
    pub(crate) inner: Cost,
}

#[pymethods]
impl PyCost {
    /// The number of different steps.
    #[getter]
    fn steps(&self) -> u32 {
        self.inner.steps
    }
    /// Bytes that each rank sends.
    #[getter]
    fn sent(&self) -> Vec<u64> {
        self.inner.sent.clone()
    }
    /// Bytes that each rank receives.
    #[getter]
    fn received(&self) -> Vec<u64> {
        self.inner.received.clone()
    }
    /// Bytes over each directed link that is used, by `(from, to)`.
    #[getter]
    fn links(&self) -> BTreeMap<(u32, u32), u64> {
        self.inner.links.clone()
    }

    fn __repr__(&self) -> String {
        let most = |bytes: &[u64]| bytes.iter().copied().max().unwrap_or(0);
        let Cost { steps, sent, received, links } = &self.inner;
        format!(
            "Cost(steps={steps}, busiest rank sends {} and receives {} bytes, {} links)",
            most(sent),
            most(received),
            links.len()
        )
    }
}
