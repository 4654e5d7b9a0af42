//! [`Grower`]: for which steps, and in which order, the trees grow.

use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};

use super::grow::{Growing, Growth};
use super::pool::Pool;
use crate::{Topology, Tree};

/// The turns that trees take in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Trees go by the rank of their root.
    Root,
    /// The trees whose root has the farthest to go are first.
    Farthest,
    /// Those first that have the fewest ranks. Behind a switch a tree takes those first that follow its root: they
    /// are others for every tree.
    Behind,
}

/// How the trees grow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grower<'a> {
    /// The links that trees grow along.
    pub(super) topology: &'a Topology,
    /// So many trees start at each rank.
    pub(super) per_root: u32,
    /// Who has the first choice in a step.
    pub(super) order: Order,
}

/// The trees, by root.
#[derive(Clone, Debug)]
pub(super) struct Grown {
    /// The trees in the order of their roots.
    pub(super) trees: Vec<Tree>,
    /// So many from each rank.
    pub(super) per_root: u32,
    /// So many steps they took.
    pub(super) steps: u32,
    /// After so many steps the next piece can follow; 0: no piece was meant to follow.
    pub(super) period: u32,
    /// In a step a link takes one chunk for each of these bytes per second.
    pub(super) unit: u64,
}

impl Grower<'_> {
    /// Grows trees over the links. Where they are not all equally fast, a step is as long as one of them needs for
    /// a chunk, and slower ones are left out; that with the least time is kept. None: some rank cannot be reached.
    ///
    /// # Cost
    /// `O(ranks^2 * per_root)` searches, each over a few links of a direct network, and over the switches of another.
    pub(super) fn grow(&self) -> Option<Grown> {
        let (slowest, faster) = self.units();
        let first = self.growth(slowest, 0).run(u32::MAX)?;
        let others = faster.into_iter().filter_map(|unit| self.growth(unit, 0).run(u32::MAX));
        Some(others.fold(first, Grown::quicker))
    }

    /// Grows trees in a timetable that repeats: piece after piece can be summed up the trees and spread down them,
    /// and no link is used twice in a step. The shortest period that a bisection finds, if any is below `limit` (in the unit
    /// of [`Grown::time`]); a step is as long as the slowest link needs for a chunk. Links must be the same in both
    /// directions.
    ///
    /// # Cost
    /// As [`Grower::grow`], for each period that is tried: about seven.
    pub(super) fn grow_periodic(&self, limit: f64) -> Option<Grown> {
        let (unit, _) = self.units();
        let ranks = u64::from(self.topology.ranks());
        // Each edge of each tree is crossed twice in a period, up and down, and ends at a rank: with so many uses of links
        // into ranks per step, no shorter period can do.
        let arrivals = 2 * u64::from(self.per_root) * ranks * (ranks - 1);
        let least = arrivals.div_ceil(self.growth(unit, 0).pool.uses_into_ranks().max(1));
        let least = u32::try_from(least).ok()?.max(1);
        let limit = (limit * f64::from(self.per_root) * unit as f64) as u32;
        let tried = least.div_ceil(TRIED);
        let (mut low, mut high) = (0, limit.saturating_sub(least).div_ceil(tried));
        let mut best = None;
        // Where one period is long enough, longer ones mostly are.
        while low < high {
            let middle = (low + high) / 2;
            let period = least + middle * tried;
            match self.growth(unit, period).run(LONGEST * period) {
                Some(grown) => (best, high) = (Some(grown), middle),
                None => low = middle + 1,
            }
        }
        best
    }

    fn growth(&self, unit: u64, period: u32) -> Growth {
        let ranks = self.topology.ranks();
        let farthest = match self.order {
            Order::Farthest => eccentricities(self.topology),
            Order::Root | Order::Behind => vec![0; ranks as usize],
        };
        let is_behind = self.order == Order::Behind;
        let from = |root: u32| if is_behind { root + 1 } else { 0 };
        let roots = (0..ranks * self.per_root).map(|tree| tree / self.per_root);
        let trees = roots.map(|root| Growing::new(root, from(root), ranks));
        let turn = move |tree: &Growing| {
            let joined = if is_behind { tree.edges.len() } else { 0 };
            (Reverse(farthest[tree.root as usize]), joined)
        };
        let pool = Pool::new(self.topology, unit, period);
        Growth { trees: trees.collect(), pool, turn: Box::new(turn), unit, period, step: 0 }
    }

    /// The slowest bandwidth, and some of the others where there are many.
    fn units(&self) -> (u64, Vec<u64>) {
        let all = self.topology.links().into_iter().map(|(_, link)| link.bandwidth.max(1));
        let all: BTreeSet<u64> = all.collect();
        let every = all.len().div_ceil(UNITS).max(1);
        let mut some = all.into_iter().step_by(every);
        (some.next().unwrap_or(1), some.collect())
    }
}

/// How many different bandwidths are tried.
const UNITS: usize = 4;

/// Periods are tried that differ by a fiftieth of the least, or by one step.
const TRIED: u32 = 50;

/// Trees may take so many periods.
const LONGEST: u32 = 4;

impl Grown {
    /// For one byte per rank, in steps of a second.
    pub(super) fn time(&self) -> f64 {
        f64::from(self.steps) / f64::from(self.per_root) / self.unit as f64
    }

    /// The one that takes less time; of equals, this one.
    pub(super) fn quicker(self, other: Grown) -> Grown {
        if other.time() < self.time() {
            other
        } else {
            self
        }
    }
}

/// How many links lie between each rank and the rank that is farthest from it.
fn eccentricities(topology: &Topology) -> Vec<u32> {
    let mut out = vec![Vec::new(); topology.nodes() as usize];
    for ((from, to), _) in topology.links() {
        out[from as usize].push(to);
    }
    (0..topology.ranks()).map(|rank| farthest(&out, rank)).collect()
}

fn farthest(out: &[Vec<u32>], from: u32) -> u32 {
    let mut distance = vec![u32::MAX; out.len()];
    distance[from as usize] = 0;
    let mut queue = VecDeque::from([from]);
    let mut most = 0;
    while let Some(node) = queue.pop_front() {
        most = distance[node as usize];
        for &to in &out[node as usize] {
            if distance[to as usize] == u32::MAX {
                distance[to as usize] = most + 1;
                queue.push_back(to);
            }
        }
    }
    most
}
