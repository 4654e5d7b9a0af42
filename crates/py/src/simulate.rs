//! The simulator and the replay of traces for Python.

use std::collections::BTreeMap;
use std::time::Duration;

use pyo3::prelude::*;
use tweed_proto::Trace;
use tweed_sim::{Crossing, End, Outcome, Setup};

use crate::errors::{sim_error, trace_error, usage};
use crate::schedule::topology::PyTopology;
use crate::schedule::PySchedule;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(simulate, module)?)?;
    module.add_function(wrap_pyfunction!(replay, module)?)
}

/// The fields of `tweed.simulate.Conditions`; times in seconds.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Conditions {
    seed: u64,
    piece: Option<u64>,
    window: u32,
    compute: Option<u64>,
    message_s: f64,
    header: u64,
    packet: Option<u64>,
    hosts: Vec<u32>,
    local_latency_s: f64,
    jitter_s: f64,
    late_s: f64,
    delays: BTreeMap<u32, f64>,
    slow: BTreeMap<u32, f64>,
    deaths: BTreeMap<u32, f64>,
    detection_s: f64,
    log: bool,
    record: Option<u32>,
}

impl Conditions {
    fn setup(self, py: Python<'_>, numbytes: u64, topology: &PyTopology) -> PyResult<Setup> {
        let all = |times: BTreeMap<u32, f64>| {
            let each = times.into_iter().map(|(rank, s)| Ok((rank, seconds(py, s)?)));
            each.collect::<PyResult<BTreeMap<u32, Duration>>>()
        };
        Ok(Setup {
            bytes: numbytes,
            topology: topology.inner.clone(),
            piece: self.piece,
            window: self.window,
            compute: self.compute,
            message: seconds(py, self.message_s)?,
            header: self.header,
            packet: self.packet,
            hosts: self.hosts,
            local_latency: seconds(py, self.local_latency_s)?,
            seed: self.seed,
            jitter: seconds(py, self.jitter_s)?,
            late: seconds(py, self.late_s)?,
            delays: all(self.delays)?,
            slow: self.slow,
            deaths: all(self.deaths)?,
            detection: seconds(py, self.detection_s)?,
            log: self.log,
            record: self.record,
        })
    }
}

pub(crate) fn seconds(py: Python<'_>, seconds: f64) -> PyResult<Duration> {
    let duration = Duration::try_from_secs_f64(seconds);
    duration.map_err(|_| usage(py, format!("a time of {seconds} s is not possible")))
}

/// `(what, seconds, peer)`, where what is "finished", "lost" or "died".
type EndFields = (&'static str, f64, Option<u32>);
/// `(send, slice, src, dst, bytes, left, arrived)`.
type CrossingFields = (u32, u32, u32, u32, u64, f64, f64);
/// `(ends, bytes by link, log, trace, events)`.
type OutcomeFields = (Vec<EndFields>, BTreeMap<(u32, u32), u64>, Vec<CrossingFields>, Option<String>, u64);

/// Runs a schedule on a virtual network: see `tweed.simulate.run`.
#[pyfunction]
fn simulate(
    py: Python<'_>,
    schedule: &Bound<'_, PySchedule>,
    numbytes: u64,
    topology: &Bound<'_, PyTopology>,
    conditions: Conditions,
) -> PyResult<OutcomeFields> {
    let setup = conditions.setup(py, numbytes, topology.get())?;
    let schedule = &schedule.get().inner;
    let outcome = py.detach(|| tweed_sim::run(schedule, &setup));
    let Outcome { ends, link_bytes, log, trace, events } = outcome.map_err(|error| sim_error(py, &error))?;
    let ends = ends.into_iter().map(end_fields).collect();
    let log = log.into_iter().map(crossing_fields).collect();
    Ok((ends, link_bytes, log, trace.map(|t| t.to_string()), events))
}

fn end_fields(end: End) -> EndFields {
    match end {
        End::Finished(at) => ("finished", at.as_secs_f64(), None),
        End::PeerLost { peer, at } => ("lost", at.as_secs_f64(), Some(peer)),
        End::Died(at) => ("died", at.as_secs_f64(), None),
    }
}

fn crossing_fields(crossing: Crossing) -> CrossingFields {
    let Crossing { send, slice, src, dst, bytes, left, arrived } = crossing;
    (send, slice, src, dst, bytes, left.as_secs_f64(), arrived.as_secs_f64())
}

/// Replays the text of a trace: see `tweed.simulate.replay`. Returns `(schedule, rank, entries)`.
#[pyfunction]
fn replay(py: Python<'_>, text: &str) -> PyResult<(PySchedule, u32, usize)> {
    let replayed = py.detach(|| {
        let trace: Trace = text.parse()?;
        trace.replay()?;
        Ok(trace)
    });
    let trace = replayed.map_err(|error| trace_error(py, &error))?;
    Ok((PySchedule { inner: trace.schedule }, trace.rank, trace.entries.len()))
}
