//! [`TimeExpanded`]: every chunk spreads greedily over whatever link is idle.
//!
//! Source: Won et al., "TACOS: Topology-Aware Collective Algorithm Synthesizer for Distributed Machine
//! Learning", MICRO 2024, section IV (arXiv 2304.05301): chunks are matched with idle links of the network
//! expanded over time. Ours differs in three ways: the clock is that of the simulator (a link is free again once
//! the last byte has entered, not when it has arrived); a slow link brings first what its far end's fast neighbours
//! lack; and switches are crossed without a stop.

mod bits;
mod network;
mod random;
mod run;

use std::sync::Arc;

use crate::trees::{Tree, Trees};
use crate::{Collective, Draft, Topology};
use network::Network;
use run::Run;

/// What to build, and how hard to try.
#[derive(Clone, Copy, Debug)]
pub struct TimeExpanded {
    /// Chunks of every rank.
    pub pieces: u32,
    /// Bytes of one chunk: what weighs latency against bandwidth.
    pub bytes: u64,
    /// The first seed.
    pub seed: u64,
    /// So many seeds are tried, one after the other, and the best is kept.
    pub tries: u32,
}

/// How all chunks spread to all ranks.
#[derive(Clone, Debug)]
pub struct Spread {
    /// `pieces` from every rank, in the order of the roots.
    pub trees: Vec<Tree>,
    /// When the last chunk arrives, in nanoseconds.
    pub nanos: u64,
    /// No spread can be faster: some rank's own links are busy for so long.
    pub bound: u64,
    /// The seed that did it.
    pub seed: u64,
}

impl TimeExpanded {
    /// The sends of an all-gather, a reduce-scatter (an all-gather on the reversed links, backwards) or an all-reduce
    /// (one after the other), and the nanoseconds that they take. None if some rank cannot be reached from another.
    pub fn draft(&self, collective: Collective, topology: &Arc<Topology>) -> Option<(Draft, u64)> {
        let reversed = topology.reversed();
        let down = match collective {
            Collective::ReduceScatter => None,
            _ => Some(self.grow(topology)?),
        };
        let up = match (&down, collective) {
            (Some(down), Collective::AllReduce) if reversed == **topology => Some(down.clone()),
            (_, Collective::AllGather) => None,
            _ => Some(self.grow(&reversed)?),
        };
        let trees = |spread: &Option<Spread>| spread.as_ref().map_or(Vec::new(), |s| s.trees.clone());
        let (down, up, nanos) =
            (trees(&down), trees(&up), down.iter().chain(&up).map(|spread| spread.nanos).sum());
        let trees = Trees { topology, down: &down, up: &up, pieces: 1, stride: 0 };
        Some((trees.draft("time_expanded", collective).pinned(), nanos))
    }

    /// Spreads every rank's chunks over `topology`. None if some rank cannot be reached from another.
    ///
    /// # Cost
    /// Per try, `O(chunks * ranks * (chunks / 64 + log(links)))` over direct links.
    pub fn grow(&self, topology: &Topology) -> Option<Spread> {
        let network = Network::new(topology, self.bytes);
        let chunks = topology.ranks() as usize * self.pieces as usize;
        let bound = network.bound(chunks - self.pieces as usize);
        let mut best: Option<(Run, u64)> = None;
        for seed in (0..u64::from(self.tries.max(1))).map(|nth| self.seed.wrapping_add(nth)) {
            let run = Run::new(&network, self.pieces, seed).finish()?;
            if best.as_ref().is_none_or(|(old, _)| run.end() < old.end()) {
                best = Some((run, seed));
            }
            if best.as_ref().is_some_and(|(run, _)| run.end() <= bound) {
                break;
            }
        }
        best.map(|(run, seed)| Spread { nanos: run.end(), bound, seed, trees: run.trees() })
    }
}
