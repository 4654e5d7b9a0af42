//! `Topology` and `Cost` for Python: one field each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tweed_schedule::{Cost, Grid, Link, Topology, Traits};

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyTopology>()?;
    module.add_class::<PyCost>()
}

/// Directed links between nodes. Nodes below `ranks` are ranks, those above are switches.
///
/// `links` yields `(from, to, bytes per second, latency in seconds)`, with a fifth number if so many equal links
/// lie side by side; each carries its own traffic. What is known beyond the links may be left out: `name` is for
/// people; `capacities` are bytes per second that switches take through in all; `sides` and `wraps` say that the
/// ranks form a grid (the last dimension counts fastest; `wraps`: its two ends are neighbours); `places` has one
/// tuple per rank, from the widest to the narrowest place: site, rack, host.
#[pyclass(name = "Topology", module = "tweed._core", frozen, eq, hash)]
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PyTopology {
    pub(crate) inner: Arc<Topology>,
}

type LinkFields = (u32, u32, u64, f64, u32);
type TopologyFields = (u32, Vec<LinkFields>, String, BTreeMap<u32, u64>, Vec<u32>, Vec<bool>, Vec<Vec<u32>>);

/// A link as Python gives it: how many lie side by side may be left out.
#[derive(FromPyObject)]
enum LinkGiven {
    Several(LinkFields),
    One((u32, u32, u64, f64)),
}

impl LinkGiven {
    fn read(self) -> PyResult<((u32, u32), Link)> {
        let (from, to, bandwidth, latency_s, count) = match self {
            LinkGiven::Several(fields) => fields,
            LinkGiven::One((from, to, bandwidth, latency_s)) => (from, to, bandwidth, latency_s, 1),
        };
        Ok(((from, to), Link { count, ..link(bandwidth, latency_s)? }))
    }
}

#[pymethods]
impl PyTopology {
    #[new]
    #[pyo3(signature = (ranks, links, name=String::new(), capacities=BTreeMap::new(), sides=Vec::new(), wraps=Vec::new(), places=Vec::new()))]
    fn new(
        ranks: u32,
        links: Vec<LinkGiven>,
        name: String,
        capacities: BTreeMap<u32, u64>,
        sides: Vec<u32>,
        wraps: Vec<bool>,
        places: Vec<Vec<u32>>,
    ) -> PyResult<PyTopology> {
        let links: Vec<_> = links.into_iter().map(LinkGiven::read).collect::<PyResult<_>>()?;
        let grid = (!sides.is_empty()).then_some(Grid { sides, wraps });
        let topology = Topology::from_links(ranks, links).with(Traits { name, capacities, grid, places });
        Ok(PyTopology { inner: Arc::new(topology) })
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

    /// Ranks and switches together.
    #[getter]
    fn nodes(&self) -> u32 {
        self.inner.nodes()
    }

    /// Every directed link as `(from, to, bytes per second, latency in seconds, how many side by side)`.
    #[getter]
    fn links(&self) -> Vec<LinkFields> {
        let fields = |((from, to), link): ((u32, u32), Link)| {
            (from, to, link.bandwidth, link.latency.as_secs_f64(), link.count)
        };
        self.inner.links().into_iter().map(fields).collect()
    }

    /// The topology's name, for people.
    #[getter]
    fn name(&self) -> &str {
        &self.inner.traits().name
    }
    /// Bytes per second that switches take through in all, by node.
    #[getter]
    fn capacities(&self) -> BTreeMap<u32, u64> {
        self.inner.traits().capacities.clone()
    }
    /// The sides of the grid that the ranks form; empty: none.
    #[getter]
    fn sides(&self) -> Vec<u32> {
        self.inner.traits().grid.as_ref().map_or(Vec::new(), |grid| grid.sides.clone())
    }
    /// For each dimension of the grid, whether its two ends are neighbours.
    #[getter]
    fn wraps(&self) -> Vec<bool> {
        self.inner.traits().grid.as_ref().map_or(Vec::new(), |grid| grid.wraps.clone())
    }
    /// Where each rank is: site, rack, host. Empty: not known.
    #[getter]
    fn places(&self) -> Vec<Vec<u32>> {
        self.inner.traits().places.clone()
    }

    /// It is flat: a port per rank, and no links of its own (see `complete`).
    #[getter]
    fn is_complete(&self) -> bool {
        self.inner.port().is_some()
    }

    /// Is there a directed link between two nodes?
    fn has_link(&self, src: u32, dst: u32) -> bool {
        self.inner.has_link(src, dst)
    }

    /// Every link turned round.
    fn reversed(&self) -> PyTopology {
        PyTopology { inner: Arc::new(self.inner.reversed()) }
    }

    /// What is left when ranks and directed links are gone. The other ranks keep their order and close up.
    fn without(&self, ranks: BTreeSet<u32>, links: BTreeSet<(u32, u32)>) -> PyTopology {
        PyTopology { inner: Arc::new(self.inner.without(&ranks, &links)) }
    }

    fn __repr__(&self) -> String {
        let kind = if self.is_complete() { "complete" } else { "listed" };
        let name = if self.name().is_empty() { String::new() } else { format!("{:?}, ", self.name()) };
        format!("Topology({name}{} ranks, {kind}, {} links)", self.ranks(), self.inner.links().len())
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<(Py<PyAny>, Py<PyAny>)> {
        let (py, this) = (slf.py(), slf.get());
        let class = slf.get_type().into_any();
        Ok(match this.inner.port() {
            Some(port) => {
                let fields = (this.ranks(), port.bandwidth, port.latency.as_secs_f64());
                (class.getattr("complete")?.unbind(), fields.into_pyobject(py)?.into_any().unbind())
            }
            None => (class.unbind(), this.fields().into_pyobject(py)?.into_any().unbind()),
        })
    }
}

impl PyTopology {
    fn fields(&self) -> TopologyFields {
        let (name, capacities) = (self.name().to_owned(), self.capacities());
        (self.ranks(), self.links(), name, capacities, self.sides(), self.wraps(), self.places())
    }
}

fn link(bandwidth: u64, latency_s: f64) -> PyResult<Link> {
    match Duration::try_from_secs_f64(latency_s) {
        Ok(latency) => Ok(Link::new(bandwidth, latency)),
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
