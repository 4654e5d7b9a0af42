//! The records: [`Send`], [`Collective`], [`Schedule`].

use std::sync::Arc;

/// A rank's number within its group.
pub type Rank = u32;

/// One transfer of one chunk.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Send {
    /// Logical time; see the crate's documentation for what it means.
    pub step: u32,
    /// Who sends.
    pub src: Rank,
    /// Who receives.
    pub dst: Rank,
    /// Which chunk of the buffer.
    pub chunk: u32,
    /// Added to the value at `dst` (`true`) or put in its place (`false`).
    pub reduce: bool,
    /// Nodes between `src` and `dst`, in order; empty for a direct link.
    pub route: Vec<u32>,
    /// Indices of sends that this one waits for, beyond what the steps imply. Each must start or end at `src`.
    pub after: Vec<u32>,
}

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

/// A frozen, proven collective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    pub(crate) name: String,
    pub(crate) collective: Collective,
    pub(crate) root: Rank,
    pub(crate) ranks: u32,
    pub(crate) chunks: u32,
    pub(crate) sends: Arc<[Send]>,
    pub(crate) digest: u64,
}

impl Schedule {
    /// The builder's name, for people.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// What it promises.
    pub fn collective(&self) -> Collective {
        self.collective
    }
    /// The root of rooted collectives; 0 elsewhere.
    pub fn root(&self) -> Rank {
        self.root
    }
    /// How many ranks take part.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }
    /// Into how many chunks the buffer is cut.
    pub fn chunks(&self) -> u32 {
        self.chunks
    }
    /// The transfers, ordered by step.
    pub fn sends(&self) -> &[Send] {
        &self.sends
    }
    /// Equal for equal schedules on every machine.
    pub fn digest(&self) -> u64 {
        self.digest
    }
}
