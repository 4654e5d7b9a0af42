//! The growth, step by step: trees take turns until nobody finds a free way.

use std::cmp::Reverse;

use super::grower::Grown;
use super::pool::{Members, Pool};
use crate::{Edge, Rank, Tree};

/// Whose turn comes first: those with the least of this.
pub(super) type Turn = Box<dyn Fn(&Growing) -> (Reverse<u32>, usize)>;

/// Trees that grow together.
pub(super) struct Growth {
    pub(super) trees: Vec<Growing>,
    pub(super) pool: Pool,
    pub(super) turn: Turn,
    pub(super) unit: u64,
    pub(super) period: u32,
    pub(super) step: u32,
}

impl Growth {
    /// Grows until all trees span all ranks. None after `limit` steps, or after as many without an edge as the
    /// timetable has.
    pub(super) fn run(mut self, limit: u32) -> Option<Grown> {
        let mut idle = 0;
        loop {
            let turns = self.turns();
            if turns.is_empty() {
                break;
            }
            // As many steps as the timetable has showed every slot once: nothing more will come free.
            if idle >= self.period.max(1) || self.step >= limit {
                return None;
            }
            idle = if self.grow(turns) { 0 } else { idle + 1 };
            self.step += 1;
        }
        let per_root = self.trees.len() as u32 / self.pool.ranks;
        let trees = self.trees.into_iter().map(|t| Tree { root: t.root, edges: t.edges }).collect();
        Some(Grown { trees, per_root, steps: self.step, period: self.period, unit: self.unit })
    }

    /// The trees that are not complete, in the order of their turns.
    fn turns(&self) -> Vec<usize> {
        let mut turns: Vec<usize> = (0..self.trees.len()).filter(|&tree| !self.is_complete(tree)).collect();
        turns.sort_by_key(|&tree| (self.turn)(&self.trees[tree]));
        turns
    }

    /// One step; says whether any tree grew.
    fn grow(&mut self, mut turns: Vec<usize>) -> bool {
        let unfinished = turns.clone();
        self.pool.start(self.step, self.period > 0);
        let mut grew = false;
        while !turns.is_empty() {
            turns.retain(|&tree| self.trees[tree].extend(&mut self.pool, self.step));
            grew |= !turns.is_empty();
            turns.retain(|&tree| !self.is_complete(tree));
        }
        unfinished.into_iter().for_each(|tree| self.trees[tree].end_step(&self.pool, self.step));
        grew
    }

    fn is_complete(&self, tree: usize) -> bool {
        self.trees[tree].edges.len() + 1 == self.pool.ranks as usize
    }
}

/// A tree, as far as it has come.
pub(super) struct Growing {
    pub(super) root: Rank,
    /// Behind a switch, those from this rank on are taken first.
    from: Rank,
    pub(super) edges: Vec<Edge>,
    inside: Members,
    /// The ranks that joined before this step and may have a neighbour outside, in the order of joining.
    parents: Vec<Rank>,
    /// The parents before this one are stuck for the rest of the step.
    first: usize,
}

impl Growing {
    pub(super) fn new(root: Rank, from: Rank, ranks: u32) -> Growing {
        let mut inside = Members::none(ranks);
        inside.add(root);
        Growing { root, from, edges: Vec::new(), inside, parents: vec![root], first: 0 }
    }

    /// Takes one edge, if there is a free way to one.
    fn extend(&mut self, pool: &mut Pool, step: u32) -> bool {
        if pool.is_spent(&self.inside) {
            return false;
        }
        while self.parents.get(self.first).is_some_and(|&parent| pool.is_stuck(parent, &self.inside)) {
            self.first += 1;
        }
        let Some(way) = pool.nearest(&self.parents[self.first..], &self.inside, self.from) else {
            return false;
        };
        let nodes = pool.take(&way);
        let (parent, child) = (nodes[0], nodes[nodes.len() - 1]);
        let route = nodes[1..nodes.len() - 1].into();
        self.edges.push(Edge { parent, child, step, route });
        self.inside.add(child);
        true
    }

    /// Makes the ranks that joined in this step possible parents from now on.
    fn end_step(&mut self, pool: &Pool, step: u32) {
        let joined = self.edges.iter().rev().take_while(|edge| edge.step == step).count();
        let joined = &self.edges[self.edges.len() - joined..];
        self.parents.extend(joined.iter().map(|edge| edge.child));
        self.parents.retain(|&parent| !pool.is_enclosed(parent, &self.inside));
        self.first = 0;
    }
}
