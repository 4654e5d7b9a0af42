//! [`SimError`]: why a run has no outcome.

use tweed_schedule::Rank;

/// Why a run has no outcome.
// The texts name the fields.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    /// The setup cannot be run.
    #[error("{0}")]
    Setup(String),
    /// The schedule uses a link that the topology lacks.
    #[error("send {send} needs the link {from} -> {to}, which the topology lacks; simulate it on the topology it was built for")]
    NoSuchLink { send: u32, from: u32, to: u32 },
    /// No links lead from one process to another.
    #[error("no links lead from process {from} to process {to}; give a topology that joins all")]
    NoPath { from: Rank, to: Rank },
    /// A copy does not hold the objects that are said to be in it: a defect of tweed.
    #[error("process {process} holds wrong values in bytes {}..{} of {object}; this is a defect of tweed, please report it", range.start, range.end)]
    WrongObject { process: Rank, object: String, range: std::ops::Range<u64> },
    /// Ranks wait for ever, such as for bytes on a link of bandwidth 0.
    #[error("rank {rank} waits for ever for ranks {waits_for:?}; look for links of bandwidth 0 on its way")]
    Stalled { rank: Rank, waits_for: Vec<Rank> },
    /// An executor refused a message: a defect of tweed.
    #[error("rank {rank} refused a message about send {send}: {reason}; this is a defect of tweed, please report it")]
    Refused { rank: Rank, send: u32, reason: &'static str },
    /// A result lacks contributions or holds one twice: a defect of tweed.
    #[error(
        "rank {rank} ends with a wrong value in chunk {chunk}; this is a defect of tweed, please report it"
    )]
    Wrong { rank: Rank, chunk: u32 },
}
