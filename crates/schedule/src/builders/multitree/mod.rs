//! MultiTree: trees from every rank, all grown together so that no link is used twice in a step.
//!
//! Source: Huang et al., "Communication Algorithm-Architecture Co-Design for Distributed Deep Learning", ISCA 2021,
//! section III. In every step all links are free again. Trees take turns; on its turn a tree takes the first free
//! way from a rank that had joined before the step to one that has not joined, and the links of the way are gone for
//! the rest of the step.
//!
//! On networks with switches the way is the shortest from *any* rank of the tree, not from the first that has one:
//! ranks behind the same switch come first, which keeps the links between switches for those who need them. That
//! reaches the fewest steps there can be on BiGraph (31 and 63), where the other order takes 43 and 91.
//!
//! Own design, where [`MultiTree::split`] is set. Several trees per rank leave less of the last step unused. And a
//! timetable may repeat: sums of one piece flow up the trees while results of the piece before flow down, and no
//! link is used twice in a step either.

mod grow;
mod grower;
mod pool;

use std::sync::Arc;

use crate::{Collective, Draft, Grid, Topology, Trees};
use grower::{Grower, Grown, Order};

/// How to build MultiTree schedules.
#[derive(Clone, Copy, Debug)]
pub struct MultiTree {
    /// Into how many pieces each rank's share of the buffer is cut; where `split` is set, at most.
    pub pieces: u32,
    /// Long buffers are to flow better than the paper's do.
    pub split: bool,
}

impl MultiTree {
    /// The schedule, links pinned to the order of the steps where there are no switches; none if some rank cannot
    /// be reached from another.
    ///
    /// As published: one tree per rank, all sums up the trees and then all results down them. Split: an all-reduce
    /// takes the quicker of two ways for long buffers, a tree for each piece, all sums before all results; or few
    /// trees, along which the pieces follow each other, sums of some beside results of others. The other
    /// collectives have a tree for each piece.
    ///
    /// # Cost
    /// One core takes about two seconds for 1,024 ranks of a torus and ten for those of a fat-tree; split, several
    /// times as long.
    pub fn draft(&self, collective: Collective, topology: &Arc<Topology>) -> Option<Draft> {
        if !self.split {
            let trees = Pair::grown(topology, 1, [paper_order(topology), Order::Behind])?;
            return Some(trees.draft("multitree", topology, collective, self.pieces));
        }
        let apart = apart(topology, self.pieces)?;
        let limit = 2.0 * apart.down.time() * (1.0 - WORTHWHILE);
        let can_overlap = collective == Collective::AllReduce && apart.up.is_none();
        let overlapped = can_overlap.then(|| Overlapped::best(topology, self.pieces, limit)).flatten();
        let (trees, pieces) = overlapped.map_or((apart, 1), |found| (found.trees, found.pieces));
        Some(trees.draft("multitree_split", topology, collective, pieces))
    }
}

/// On a mesh the paper's program gives the corners the first choice.
fn paper_order(topology: &Topology) -> Order {
    let is_mesh = |grid: &Grid| grid.wraps.contains(&false);
    if topology.traits().grid.as_ref().is_some_and(is_mesh) {
        Order::Farthest
    } else {
        Order::Root
    }
}

/// More pieces must save so much of the time, or there are fewer: each costs messages.
const WORTHWHILE: f64 = 0.01;

/// Where a step is not the paper's: the second one leaves less of the last step unused, mostly.
const ORDERS: [Order; 2] = [Order::Behind, Order::Root];

/// So many trees per rank are tried; more gain little and take long to grow.
const PER_ROOT: [u32; 4] = [1, 2, 4, 8];

/// Trees for sums and then results, at most `pieces` per rank.
fn apart(topology: &Topology, pieces: u32) -> Option<Pair> {
    let mut best = Pair::grown(topology, 1, ORDERS)?;
    for per_root in PER_ROOT.into_iter().filter(|&per_root| 1 < per_root && per_root <= pieces) {
        let found = Pair::grown(topology, per_root, ORDERS)?;
        if found.down.time() < best.down.time() * (1.0 - WORTHWHILE) {
            best = found;
        }
    }
    Some(best)
}

/// Trees of a periodic timetable, and how many pieces follow each other along each.
struct Overlapped {
    trees: Pair,
    pieces: u32,
    /// As [`Grown::time`], for sums and results.
    time: f64,
}

impl Overlapped {
    /// The quickest that takes less than `limit`; of equals, that with fewer trees.
    fn best(topology: &Topology, pieces: u32, limit: f64) -> Option<Overlapped> {
        let mut best: Option<Overlapped> = None;
        for per_root in PER_ROOT.into_iter().filter(|&per_root| pieces > 0 && pieces.is_multiple_of(per_root))
        {
            for order in ORDERS {
                let limit = best.as_ref().map_or(limit, |best| best.time);
                let grower = Grower { topology, per_root, order };
                let found = Overlapped::grown(grower, pieces / per_root, limit);
                best = found.filter(|found| found.time < limit).or(best);
            }
        }
        best
    }

    fn grown(grower: Grower<'_>, pieces: u32, limit: f64) -> Option<Overlapped> {
        let down = grower.grow_periodic(limit)?;
        let steps = (pieces - 1) * down.period + 2 * down.steps;
        let time = down.time() * f64::from(steps) / f64::from(down.steps * pieces);
        Some(Overlapped { trees: Pair { down, up: None }, pieces, time })
    }
}

/// Trees for values that spread, and others for sums where links differ by direction.
struct Pair {
    down: Grown,
    up: Option<Grown>,
}

impl Pair {
    /// Grows trees in the order that ends first.
    fn grown(topology: &Topology, per_root: u32, orders: [Order; 2]) -> Option<Pair> {
        let grow = |topology| {
            let [first, second] = orders.map(|order| Grower { topology, per_root, order }.grow());
            Some(first?.quicker(second?))
        };
        let reversed = topology.reversed();
        let up = if reversed == *topology { None } else { Some(grow(&reversed)?) };
        Some(Pair { down: grow(topology)?, up })
    }

    fn draft(&self, name: &str, topology: &Arc<Topology>, collective: Collective, pieces: u32) -> Draft {
        let Pair { down, up } = self;
        let stride = if down.period == 0 { down.steps } else { down.period };
        let up = up.as_ref().unwrap_or(down);
        let trees = Trees { topology, down: &down.trees, up: &up.trees, pieces, stride };
        let draft = trees.draft(name, collective);
        // A way over switches takes longer than a step of a short message: whoever waits for its turn then loses
        // more than the order gains (BiGraph of 64 ranks, 32 KiB, 16 GB/s, 150 ns: 16.1 us pinned, 5.5 us not).
        if topology.nodes() > topology.ranks() {
            draft
        } else {
            draft.pinned()
        }
    }
}
