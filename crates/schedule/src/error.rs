//! [`ScheduleError`]: what a schedule can do wrong.

use std::fmt;

use crate::record::{Rank, Send};

/// Where in a schedule: one transfer of one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hop {
    /// The step of the send.
    pub step: u32,
    /// The rank that sends.
    pub src: Rank,
    /// The rank that receives.
    pub dst: Rank,
    /// The chunk that is sent.
    pub chunk: u32,
}

impl Hop {
    pub(crate) fn of(send: &Send) -> Hop {
        let &Send { step, src, dst, chunk, .. } = send;
        Hop { step, src, dst, chunk }
    }
}

impl fmt::Display for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hop { step, src, dst, chunk } = self;
        write!(f, "step {step}, link {src} -> {dst}, chunk {chunk}")
    }
}

/// A schedule does not do what it declares. Every text names step, link, rank and chunk where there are any.
///
/// A *foreign* contribution has no kind of its own: a chunk keeps its number on its way, so it could only
/// come from a rank that holds nothing of the chunk, and that is [`ScheduleError::NotHeld`].
// The texts name the fields.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// No collective of this name.
    #[error("there is no collective '{name}'; use one of all_reduce, reduce_scatter, all_gather, broadcast, reduce, gather, scatter, all_to_all")]
    UnknownCollective { name: String },
    /// Too few ranks, or a number of chunks that cannot be cut into equal parts.
    #[error("{collective} over {ranks} ranks needs at least one rank and a number of chunks that is a positive multiple of {unit}, not {chunks}")]
    Chunks {
        collective: &'static str,
        ranks: u32,
        chunks: u32,
        /// What it must be a multiple of.
        unit: u64,
    },
    /// More ranks than the checker takes.
    #[error("a schedule over {ranks} ranks is too large; {most} are possible")]
    TooManyRanks {
        ranks: u32,
        /// The most there can be.
        most: u32,
    },
    /// The root is not a rank, or the collective has none.
    #[error("{collective} over {ranks} ranks cannot have root {root}; give a rank below {ranks}, and 0 where there is no root")]
    Root { collective: &'static str, root: Rank, ranks: u32 },
    /// Contributors that cannot be.
    #[error("the contributors of chunk {chunk} of {chunks} are not a list of ranks below {ranks}, ascending; give one of at least one rank for every chunk")]
    Contributors { chunk: u32, ranks: u32, chunks: u32 },
    /// `src` or `dst` is not a rank of the group.
    #[error("{at}: rank {rank} is outside the group of {ranks} ranks")]
    RankOutOfRange { at: Hop, rank: Rank, ranks: u32 },
    /// The chunk does not exist.
    #[error("{at}: rank {} sends chunk {} of a buffer of {chunks} chunks", at.src, at.chunk)]
    ChunkOutOfRange { at: Hop, chunks: u32 },
    /// A rank sends to itself.
    #[error("{at}: rank {} sends to itself; leave this send out, the rank has the value already", at.src)]
    SendToSelf { at: Hop },
    /// The send, or one hop of its route, uses a link that the topology lacks.
    #[error("{at}: the topology has no link {from} -> {to}; route the send over links that exist")]
    NoSuchLink {
        at: Hop,
        /// Start of the missing link.
        from: u32,
        /// End of the missing link.
        to: u32,
    },
    /// A rank sends a value that it does not hold at that step.
    #[error("{at}: rank {} holds nothing of chunk {} before this step", at.src, at.chunk)]
    NotHeld { at: Hop },
    /// A reduction arrives where there is nothing to add it to.
    #[error("{at}: rank {} holds nothing of chunk {} that could be added to; send a copy", at.dst, at.chunk)]
    NothingToAddTo { at: Hop },
    /// A copy arrives in the same step as something else for the same rank and chunk.
    #[error("{at}: a copy and another send, from rank {other}, reach chunk {} of rank {} in one step; their order is not defined", at.chunk, at.dst)]
    Collision {
        /// The later of the two sends.
        at: Hop,
        /// Who sent the earlier one.
        other: Rank,
    },
    /// A sum would hold one rank's contribution twice.
    #[error("{at}: the contribution of rank {contributor} would be counted twice in chunk {} at rank {}", at.chunk, at.dst)]
    Twice {
        /// Which send adds it the second time.
        at: Hop,
        contributor: Rank,
    },
    /// The result of a chunk lacks a contribution at the end.
    #[error(
        "rank {rank} ends without the contribution of rank {contributor} in chunk {chunk}; {}",
        last_text(last)
    )]
    Missing {
        /// Where the result is short.
        rank: Rank,
        chunk: u32,
        /// Whose contribution is missing.
        contributor: Rank,
        /// The last send that reached this rank's chunk, if any did.
        last: Option<Hop>,
    },
    /// `after` names a send that does not exist.
    #[error("{at}: waits for send {index}, but there are only {sends} sends")]
    AfterOutOfRange { at: Hop, index: u32, sends: usize },
    /// `after` names a send whose end the waiting rank cannot see.
    #[error("{at}: waits for the send of {other}, which rank {} cannot see; wait for one that starts or ends there", at.src)]
    AfterUnseen { at: Hop, other: Hop },
    /// Sends that wait for each other.
    #[error("{at}: rank {} would wait for ever: this send waits for {}, which waits for it", at.src, via_text(via))]
    CyclicWait {
        /// One send of the cycle.
        at: Hop,
        /// The others, each waited for by the one before.
        via: Vec<Hop>,
    },
}

fn last_text(last: &Option<Hop>) -> String {
    match last {
        Some(hop) => format!("the last arrival there was {hop}"),
        None => "nothing arrived there".into(),
    }
}

fn via_text(via: &[Hop]) -> String {
    let texts: Vec<String> = via.iter().map(|hop| format!("({hop})")).collect();
    if texts.is_empty() {
        "itself".into()
    } else {
        texts.join(", then ")
    }
}
