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
    /// The number of its class: `tweed_status` in `engine.h`, and what peers tell each other.
    pub fn code(&self) -> u32 {
        match self {
            EngineError::Usage(_) => 2,
            EngineError::ShapeMismatch(_) => 3,
            EngineError::PeerLost(_) => 4,
            EngineError::Deadline(_) => 5,
            EngineError::Aborted(_) => 6,
            EngineError::Forked(_) => 7,
        }
    }

    /// An error that a peer has reported.
    pub fn from_peer(code: u32, text: &[u8]) -> EngineError {
        let text = String::from_utf8_lossy(text).into_owned();
        match code {
            3 => EngineError::ShapeMismatch(text),
            4 => EngineError::PeerLost(text),
            5 => EngineError::Deadline(text),
            _ => EngineError::Aborted(text),
        }
    }

    /// This error, in which a loss that names no operation yet is one of the operation `label`.
    pub fn about(mut self, label: &str) -> EngineError {
        if let EngineError::PeerLost(text) = &mut self {
            if !text.contains(label) {
                *text = format!("{label}: {text}");
            }
        }
        self
    }

    /// Wraps a failure of the operating system during set-up.
    pub fn setup(what: &str, error: impl std::fmt::Display) -> EngineError {
        EngineError::Usage(format!("{what}: {error}"))
    }
}
