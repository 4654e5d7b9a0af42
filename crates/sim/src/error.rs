//! [`SimError`]: why a run has no outcome.

use tweed_schedule::Rank;

/// Why a run has no outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    /// The setup cannot be run.
    #[error("{0}")]
    Setup(String),
    /// The schedule uses a link that the topology lacks.
    #[error("send {send} needs the link {from} -> {to}, which the topology lacks; simulate it on the topology it was built for")]
    NoSuchLink {
        /// Index of the send in the schedule.
        send: u32,
        /// Start of the missing link.
        from: u32,
        /// End of the missing link.
        to: u32,
    },
    /// Ranks wait for ever, such as for bytes on a link of bandwidth 0.
    #[error("rank {rank} waits for ever for ranks {waits_for:?}; look for links of bandwidth 0 on its way")]
    Stalled {
        /// The first rank that waits.
        rank: Rank,
        /// Whose messages it waits for.
        waits_for: Vec<Rank>,
    },
    /// An executor refused a message: a defect of tweed.
    #[error("rank {rank} refused a message about send {send}: {reason}; this is a defect of tweed, please report it")]
    Refused {
        /// Who.
        rank: Rank,
        /// Index of the send in the schedule.
        send: u32,
        /// Its words.
        reason: &'static str,
    },
    /// A result lacks contributions or holds one twice: a defect of tweed.
    #[error(
        "rank {rank} ends with a wrong value in chunk {chunk}; this is a defect of tweed, please report it"
    )]
    Wrong {
        /// Who.
        rank: Rank,
        /// In which chunk.
        chunk: u32,
    },
}
