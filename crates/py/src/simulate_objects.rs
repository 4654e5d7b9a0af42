//! The simulator of objects for Python.

use std::collections::BTreeMap;
use std::time::Duration;

use pyo3::prelude::*;
use tweed_proto::objects::ObjectId;
use tweed_schedule::Rank;
use tweed_sim::objects::{run, Cut, Outcome, Setup, What};

use crate::errors::{sim_error, usage};
use crate::objects::{mode, rule};
use crate::schedule::topology::PyTopology;
use crate::schedule::PySchedule;
use crate::simulate::seconds;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(simulate_objects, module)?)
}

/// A call of `tweed.simulate.objects`: what, when, where, and about which object.
#[derive(FromPyObject)]
struct CallGiven {
    what: String,
    at_s: f64,
    process: Rank,
    object: u128,
    size: u64,
    ids: Vec<u128>,
    count: u32,
    mode: String,
    rule: String,
}

impl CallGiven {
    fn what(self, py: Python<'_>) -> PyResult<What> {
        let object = ObjectId(self.object);
        Ok(match self.what.as_str() {
            "put" => What::Put { object, size: self.size },
            "get" => What::Get { object },
            "delete" => What::Delete { object },
            "reduce" => What::Reduce {
                target: object,
                ids: self.ids.into_iter().map(ObjectId).collect(),
                count: self.count,
                mode: mode(py, &self.mode)?,
                rule: rule(py, &self.rule)?,
            },
            other => {
                return Err(usage(py, format!("there is no call {other:?}; use put, get, reduce or delete")))
            }
        })
    }
}

/// Keyword arguments of `tweed.simulate.objects.run`; times in seconds.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Conditions {
    seed: u64,
    deaths: BTreeMap<Rank, f64>,
    cuts: Vec<((Rank, Rank), f64, f64)>,
    detection_s: f64,
    message_s: f64,
    jitter_s: f64,
    header: u64,
}

/// `(from byte, to byte, ids)`.
type Part = (u64, u64, Vec<u128>);
/// `(target, schedule, edges of its chunks in bytes)`.
type Proof = (u128, PySchedule, Vec<u64>);
/// `(got, included, failed, waiting, bytes by pair, bytes taken, (most fed, pulls, messages, events), proofs)`.
type Fields = (
    Vec<(Rank, u128, f64)>,
    BTreeMap<u128, Vec<Part>>,
    Vec<(Rank, u128, String)>,
    Vec<(Rank, u128)>,
    BTreeMap<(Rank, Rank), u64>,
    BTreeMap<(Rank, u128), u64>,
    (u32, u64, u64, u64),
    Vec<Proof>,
);

/// Runs calls about objects on a virtual network: see `tweed.simulate.objects.run`.
#[pyfunction]
fn simulate_objects(
    py: Python<'_>,
    topology: &Bound<'_, PyTopology>,
    calls: Vec<CallGiven>,
    conditions: Conditions,
) -> PyResult<Fields> {
    let mut setup = Setup::new(topology.get().inner.clone());
    for call in calls {
        let (at, process) = (seconds(py, call.at_s)?, call.process);
        setup.call(at, process, call.what(py)?);
    }
    for (process, at_s) in conditions.deaths {
        setup.deaths.insert(process, seconds(py, at_s)?);
    }
    for (pair, at_s, lasts_s) in conditions.cuts {
        check_pair(py, &setup, pair)?;
        setup.cuts.push(Cut { pair, at: seconds(py, at_s)?, lasts: seconds(py, lasts_s)? });
    }
    (setup.seed, setup.header) = (conditions.seed, conditions.header);
    setup.detection = seconds(py, conditions.detection_s)?;
    setup.message = seconds(py, conditions.message_s)?;
    setup.jitter = seconds(py, conditions.jitter_s)?;
    let outcome = py.detach(|| run(&setup)).map_err(|error| sim_error(py, &error))?;
    Ok(fields(outcome))
}

/// A cut is between two processes that there are.
fn check_pair(py: Python<'_>, setup: &Setup, pair: (Rank, Rank)) -> PyResult<()> {
    let ranks = setup.topology.ranks();
    let is_known = pair.0 != pair.1 && pair.0.max(pair.1) < ranks;
    let text = || format!("no cut parts {} and {}: name two of the {ranks} processes", pair.0, pair.1);
    is_known.then_some(()).ok_or_else(|| usage(py, text()))
}

fn fields(outcome: Outcome) -> Fields {
    let numbers = |ids: &[ObjectId]| ids.iter().map(|id| id.0).collect::<Vec<u128>>();
    let proofs = outcome.logs.iter().filter_map(|log| {
        let (schedule, edges) = log.schedule(outcome.included.get(&log.target)?).ok()?;
        Some((log.target.0, PySchedule { inner: schedule }, edges))
    });
    let proofs = proofs.collect();
    let parts = outcome.included.iter().map(|(target, included)| {
        let parts = included.iter().map(|(range, ids)| (range.start, range.end, numbers(ids)));
        (target.0, parts.collect())
    });
    (
        outcome
            .got
            .iter()
            .map(|(&(process, object), at): (_, &Duration)| (process, object.0, at.as_secs_f64()))
            .collect(),
        parts.collect(),
        outcome.failed.iter().map(|(process, object, why)| (*process, object.0, why.to_string())).collect(),
        outcome.waiting.iter().map(|(process, object)| (*process, object.0)).collect(),
        outcome.pair_bytes.clone(),
        outcome.taken.iter().map(|(&(process, object), &bytes)| ((process, object.0), bytes)).collect(),
        (outcome.most_fed, outcome.pulls, outcome.messages, outcome.events),
        proofs,
    )
}
