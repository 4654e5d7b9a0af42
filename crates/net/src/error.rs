//! What can go wrong, one variant per class of `python/tweed/errors.py`.

use thiserror::Error;

/// An operation or a set-up that did not work. The texts say what happened, where, and what to do next.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EngineError {
    /// The call cannot be carried out as it stands; nothing was sent.
    #[error("{0}")]
    Usage(String),
    /// Ranks called different things.
    #[error("{0}")]
    ShapeMismatch(String),
    /// A rank died or left while it was needed.
    #[error("{0}")]
    PeerLost(String),
    /// Something did not end in time.
    #[error("{0}")]
    Deadline(String),
    /// The group was shut down meanwhile.
    #[error("{0}")]
    Aborted(String),
    /// This process is a fork of the one that started the engine.
    #[error("{0}")]
    Forked(String),
}

impl EngineError {
    /// Wraps a failure of the operating system during set-up.
    pub(crate) fn setup(what: &str, error: std::io::Error) -> EngineError {
        EngineError::Usage(format!("{what}: {error}"))
    }
}
