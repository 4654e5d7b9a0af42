//! [`TimeExpanded`]: every chunk spreads greedily over whatever link is idle.
//!
//! Source: Won et al., "TACOS: Topology-Aware Collective Algorithm Synthesizer for Distributed Machine
//! Learning", MICRO 2024, section IV (arXiv 2304.05301): chunks are matched with idle links of the network
//! expanded over time, and the best of several seeds is kept. What is different here:
//!
//! * the clock is that of the simulator: a link is free once the last byte has entered, not when it has arrived
//!   (every other try keeps to the paper's clock, which holds the ranks together in rounds, and is timed again);
//! * of the chunks that a link could bring, it brings one that few ranks have;
//! * a link that could bring little else is served before one that could bring anything;
//! * a slow link leaves out what the fast neighbours of its far end have, unless they have work enough;
//! * switches are crossed without a stop, over links that are free when the first byte comes.

mod bits;
mod moves;
mod near;
mod network;
mod run;
mod switches;

use std::sync::Arc;

use crate::trees::{Tree, Trees};
use crate::{Collective, Draft, Topology};
use moves::Moves;
use network::{Clock, Network};
use run::{Manner, Run};

/// What to build, and how hard to try.
#[derive(Clone, Copy, Debug)]
pub struct TimeExpanded {
    /// Chunks of every rank.
    pub pieces: u32,
    /// Bytes of one chunk: what weighs latency against bandwidth.
    pub bytes: u64,
    /// The first seed of those that are tried.
    pub seed: u64,
    /// So many seeds are tried, one after the other, and the best is kept; fewer if one is within a thousandth of
    /// what the links of some rank allow.
    pub tries: u32,
}

/// How all chunks spread to all ranks.
#[derive(Clone, Debug)]
pub struct Spread {
    /// `pieces` from every rank, in the order of the roots.
    pub trees: Vec<Tree>,
    /// When the last chunk arrives, in nanoseconds.
    pub nanos: u64,
    /// No spread can be faster: the links into some rank are busy for so long.
    pub bound: u64,
    /// The seed that did it.
    pub seed: u64,
}

impl TimeExpanded {
    /// The sends of an all-gather, of a reduce-scatter (an all-gather on the reversed links, backwards) or of an
    /// all-reduce (one after the other), and the nanoseconds that they take. None if some rank cannot be reached
    /// from another.
    pub fn draft(&self, collective: Collective, topology: &Arc<Topology>) -> Option<(Draft, u64)> {
        let (spreads, sums) = (collective != Collective::ReduceScatter, collective != Collective::AllGather);
        let reversed = topology.reversed();
        let down = if spreads { Some(self.grow(topology)?) } else { None };
        let up = match &down {
            _ if !sums => None,
            Some(down) if reversed == **topology => Some(down.clone()),
            _ => Some(self.grow(&reversed)?),
        };
        let nanos = down.iter().chain(&up).map(|spread| spread.nanos).sum();
        let trees = |spread: Option<Spread>| spread.map_or(Vec::new(), |spread| spread.trees);
        let (down, up) = (trees(down), trees(up));
        let trees = Trees { topology, down: &down, up: &up, pieces: 1, stride: 0 };
        Some((trees.draft("time_expanded", collective).pinned(), nanos))
    }

    /// Spreads every rank's chunks over `topology`. None if some rank cannot be reached from another.
    ///
    /// # Cost
    /// `O(chunks * ranks * (chunks / 64 + log(links)))` per try over direct links: 3 s for 1,024 ranks with six
    /// links each.
    pub fn grow(&self, topology: &Topology) -> Option<Spread> {
        let network = Network::new(topology, self.bytes, Clock::Simulator);
        let rounds = Network::new(topology, self.bytes, Clock::Rounds);
        let networks = if network.keeps_rounds() { [&rounds, &network] } else { [&network, &rounds] };
        let bound = network.bound(u64::from(topology.ranks().saturating_sub(1)) * u64::from(self.pieces));
        let mut best: Option<(u64, u64, Moves)> = None;
        for nth in 0..self.tries.max(1) {
            let seed = self.seed.wrapping_add(u64::from(nth));
            let manner = Manner { seed, patience: 1 + nth / 2 % 2 };
            let moves = Run::new(networks[nth as usize % 2], self.pieces, manner).finish()?;
            let nanos = moves.end(&network);
            if best.as_ref().is_none_or(|&(least, ..)| nanos < least) {
                best = Some((nanos, seed, moves));
            }
            if best.as_ref().is_some_and(|&(least, ..)| least <= bound + bound / 1000) {
                break;
            }
        }
        best.map(|(nanos, seed, moves)| Spread { trees: moves.trees(&network), nanos, bound, seed })
    }
}
