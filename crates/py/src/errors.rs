//! The one map from Rust errors to the Python classes of `tweed.errors`.

use pyo3::prelude::*;
use pyo3::types::PyType;
use tweed_net::EngineError;
use tweed_proto::TraceError;
use tweed_schedule::ScheduleError;
use tweed_sim::SimError;

/// The class for an error of the schedule crate, with the error's own text.
pub(crate) fn schedule_error(py: Python<'_>, error: &ScheduleError) -> PyErr {
    use ScheduleError as E;
    let class = match error {
        E::UnknownCollective { .. }
        | E::Chunks { .. }
        | E::TooManyRanks { .. }
        | E::Root { .. }
        | E::Contributors { .. }
        | E::RankOutOfRange { .. }
        | E::ChunkOutOfRange { .. }
        | E::SendToSelf { .. }
        | E::NoSuchLink { .. }
        | E::NotHeld { .. }
        | E::NothingToAddTo { .. }
        | E::Collision { .. }
        | E::Twice { .. }
        | E::Missing { .. }
        | E::AfterOutOfRange { .. }
        | E::AfterUnseen { .. }
        | E::CyclicWait { .. } => "ScheduleError",
    };
    raise(py, class, error.to_string())
}

/// An error of a class of `tweed.errors`; if the class cannot be had, the error that says why.
fn raise(py: Python<'_>, class: &str, text: String) -> PyErr {
    let found = py
        .import("tweed.errors")
        .and_then(|module| module.getattr(class))
        .and_then(|class| Ok(class.cast_into::<PyType>()?));
    match found {
        Ok(class) => PyErr::from_type(class, text),
        Err(error) => error,
    }
}

/// The class for an error of the engine, with the error's own text.
pub(crate) fn engine_error(py: Python<'_>, error: &EngineError) -> PyErr {
    use EngineError as E;
    let class = match error {
        E::Usage(_) => "UsageError",
        E::ShapeMismatch(_) => "ShapeMismatch",
        E::PeerLost(_) => "PeerLost",
        E::Deadline(_) => "DeadlineExceeded",
        E::Aborted(_) => "Aborted",
        E::Forked(_) => "ForkedProcess",
    };
    raise(py, class, error.to_string())
}

/// A call that cannot be carried out as it stands.
pub(crate) fn usage(py: Python<'_>, text: String) -> PyErr {
    raise(py, "UsageError", text)
}

/// The class for an error of the simulator, with the error's own text.
pub(crate) fn sim_error(py: Python<'_>, error: &SimError) -> PyErr {
    use SimError as E;
    let class = match error {
        E::Setup(_) | E::Stalled { .. } | E::NoPath { .. } => "UsageError",
        E::NoSuchLink { .. } => "ScheduleError",
        E::Refused { .. } | E::Wrong { .. } | E::WrongObject { .. } => "TweedError",
    };
    raise(py, class, error.to_string())
}

/// The class for an error of a replay, with the error's own text.
pub(crate) fn trace_error(py: Python<'_>, error: &TraceError) -> PyErr {
    use TraceError as E;
    let class = match error {
        E::Version { .. } | E::Line { .. } | E::Schedule(_) | E::Digest { .. } => "DataError",
        E::Refused { .. } | E::NotUnderWay { .. } | E::Differs { .. } => "TweedError",
    };
    raise(py, class, error.to_string())
}
