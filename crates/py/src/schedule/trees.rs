//! Trees from Python to a schedule.

use pyo3::prelude::*;
use tweed_schedule::{Edge, Schedule, Tree, Trees};

use super::topology::PyTopology;
use super::PySchedule;
use crate::errors::schedule_error;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(tree_schedule, module)?)
}

type EdgeFields = (u32, u32, u32, Vec<u32>);
type TreeFields = (u32, Vec<EdgeFields>);

/// The schedule of trees that each carry an equal share of the buffer; see `tweed_schedule::Trees`.
///
/// A tree is `(root, [(parent, child, step, route), ...])`; `pipeline` is pieces, stride, and whether links send in
/// the order of the steps (`Draft::pinned`). Raises ScheduleError.
#[pyfunction]
#[pyo3(signature = (name, collective, topology, down, up, pipeline))]
fn tree_schedule(
    py: Python<'_>,
    name: &str,
    collective: &str,
    topology: &Bound<'_, PyTopology>,
    down: Vec<TreeFields>,
    up: Vec<TreeFields>,
    pipeline: (u32, u32, bool),
) -> PyResult<PySchedule> {
    let (pieces, stride, ordered) = pipeline;
    let topology = &topology.get().inner;
    let (down, up) = (read(down), read(up));
    let trees = Trees { topology, down: &down, up: &up, pieces, stride };
    let proven = || {
        let draft = trees.draft(name, collective.parse()?);
        Schedule::new(if ordered { draft.pinned() } else { draft })
    };
    let inner = py.detach(proven).map_err(|error| schedule_error(py, &error))?;
    Ok(PySchedule { inner })
}

fn read(trees: Vec<TreeFields>) -> Vec<Tree> {
    let edge = |(parent, child, step, route): EdgeFields| Edge { parent, child, step, route: route.into() };
    let tree = |(root, edges): TreeFields| Tree { root, edges: edges.into_iter().map(edge).collect() };
    trees.into_iter().map(tree).collect()
}
