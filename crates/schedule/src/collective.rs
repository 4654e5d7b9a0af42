//! [`Collective`]: what a schedule promises, chunk by chunk.

use std::fmt;
use std::str::FromStr;

use crate::record::Rank;

/// What a schedule promises to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Collective {
    /// Every rank ends with the sum of all.
    AllReduce,
    /// Rank `r` ends with its part of the sum.
    ReduceScatter,
    /// Every rank ends with every rank's part.
    AllGather,
    /// Every rank ends with the root's buffer.
    Broadcast,
    /// The root ends with the sum of all.
    Reduce,
    /// The root ends with every rank's part.
    Gather,
    /// Rank `r` ends with its part of the root's buffer.
    Scatter,
    /// Rank `r` ends with part `r` of every rank's buffer.
    AllToAll,
}

/// A set of ranks: either one or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ranks {
    /// Every rank of the group.
    All,
    /// Only this one rank.
    One(Rank),
}

impl Ranks {
    /// Is `rank` one of them?
    pub fn contains(self, rank: Rank) -> bool {
        self == Ranks::All || self == Ranks::One(rank)
    }
}

impl Collective {
    /// All of them, in the order of the engine's C table.
    pub const ALL: [Collective; 8] = [
        Collective::AllReduce,
        Collective::ReduceScatter,
        Collective::AllGather,
        Collective::Broadcast,
        Collective::Reduce,
        Collective::Gather,
        Collective::Scatter,
        Collective::AllToAll,
    ];

    /// Its name in Python and in texts, such as `all_reduce`.
    pub fn name(self) -> &'static str {
        match self {
            Collective::AllReduce => "all_reduce",
            Collective::ReduceScatter => "reduce_scatter",
            Collective::AllGather => "all_gather",
            Collective::Broadcast => "broadcast",
            Collective::Reduce => "reduce",
            Collective::Gather => "gather",
            Collective::Scatter => "scatter",
            Collective::AllToAll => "all_to_all",
        }
    }

    /// Does it have a root?
    pub fn is_rooted(self) -> bool {
        use Collective::{Broadcast, Gather, Reduce, Scatter};
        matches!(self, Broadcast | Reduce | Gather | Scatter)
    }

    /// The number of chunks is a multiple of this: 1, `ranks`, or `ranks * ranks`.
    pub fn chunk_unit(self, ranks: u32) -> u64 {
        let ranks = u64::from(ranks);
        match self {
            Collective::AllToAll => ranks * ranks,
            parted if parted.has_parts() => ranks,
            _ => 1,
        }
    }

    /// Whose part `chunk` belongs to, where the buffer has one part per rank; else none.
    ///
    /// Parts are contiguous: `chunk / (chunks / ranks)`.
    pub(crate) fn owner(self, chunk: u32, ranks: u32, chunks: u32) -> Option<Rank> {
        self.has_parts().then(|| chunk / (chunks / ranks))
    }

    fn has_parts(self) -> bool {
        use Collective::{AllGather, Gather, ReduceScatter, Scatter};
        matches!(self, ReduceScatter | AllGather | Gather | Scatter)
    }

    /// `(source, destination)` of `chunk` in an all-to-all: pairs are contiguous, source first; else none.
    pub(crate) fn pair(self, chunk: u32, ranks: u32, chunks: u32) -> Option<(Rank, Rank)> {
        (self == Collective::AllToAll).then(|| {
            let pair = chunk / (chunks / (ranks * ranks));
            (pair / ranks, pair % ranks)
        })
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Collective {
    type Err = crate::ScheduleError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Collective::ALL
            .into_iter()
            .find(|collective| collective.name() == name)
            .ok_or_else(|| crate::ScheduleError::UnknownCollective { name: name.into() })
    }
}
