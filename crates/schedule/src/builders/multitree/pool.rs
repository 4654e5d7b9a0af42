//! The links that are still free in a step, and the nearest rank that they lead to.

use std::collections::VecDeque;

use crate::{Rank, Topology};

const NONE: u32 = u32::MAX;

/// A set of ranks.
#[derive(Clone, Debug)]
pub(super) struct Members(Vec<u64>);

impl Members {
    pub(super) fn none(ranks: u32) -> Members {
        Members(vec![0; (ranks as usize).div_ceil(64)])
    }

    pub(super) fn has(&self, rank: Rank) -> bool {
        self.0[rank as usize / 64] >> (rank % 64) & 1 == 1
    }

    pub(super) fn add(&mut self, rank: Rank) {
        self.0[rank as usize / 64] |= 1 << (rank % 64);
    }

    /// Takes a rank out; a switch is not in.
    fn remove(&mut self, rank: Rank) {
        if let Some(word) = self.0.get_mut(rank as usize / 64) {
            *word &= !(1 << (rank % 64));
        }
    }

    fn is_within(&self, other: &Members) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| a & !b == 0)
    }
}

/// What is still free in one step of the timetable.
#[derive(Clone)]
struct Slot {
    /// How often each link can still be used.
    free: Vec<u32>,
    /// How often messages can still go through each node.
    through: Vec<u32>,
    /// How often the links into each node can still be used in all.
    entering: Vec<u32>,
    /// Ranks that a free link leads to.
    open: Members,
}

/// The links and when they are free.
pub(super) struct Pool {
    pub(super) ranks: u32,
    /// The nodes of each link.
    ends: Vec<(u32, u32)>,
    /// The links that leave each node, by where they lead.
    out: Vec<Vec<u32>>,
    /// The link in the opposite direction.
    back: Vec<u32>,
    fresh: Slot,
    slots: Vec<Slot>,
    /// The slot in which values go down a tree, and the one in which sums go up.
    now: (usize, Option<usize>),
    /// The link by which a search reached each node, and in which search it did.
    came: Vec<(u32, u32)>,
    search: u32,
}

impl Pool {
    /// In one step a link of `unit` bytes per second can be used once, a faster or manifold one more often, a slower
    /// one not at all.
    ///
    /// `period` 0: every step starts afresh. Else the steps repeat after so many, what has been taken stays taken,
    /// and who takes a way in some step has also taken the way back in the step as far from the end.
    pub(super) fn new(topology: &Topology, unit: u64, period: u32) -> Pool {
        let links = topology.links();
        let ends: Vec<(u32, u32)> = links.iter().map(|&(ends, _)| ends).collect();
        let mut out = vec![Vec::new(); topology.nodes() as usize];
        for (link, &(from, _)) in (0..).zip(&ends) {
            out[from as usize].push(link);
        }
        let back = |&(from, to): &(u32, u32)| ends.binary_search(&(to, from)).map_or(NONE, |at| at as u32);
        let fresh = Slot::fresh(topology, unit);
        Pool {
            ranks: topology.ranks(),
            back: ends.iter().map(back).collect(),
            ends,
            came: vec![(NONE, 0); out.len()],
            out,
            slots: vec![fresh.clone(); period.max(1) as usize],
            fresh,
            now: (0, None),
            search: 0,
        }
    }

    /// The links into ranks can be used so often in one step.
    pub(super) fn uses_into_ranks(&self) -> u64 {
        self.fresh.entering[..self.ranks as usize].iter().map(|&uses| u64::from(uses)).sum()
    }

    /// Turns to a step.
    pub(super) fn start(&mut self, step: u32, is_periodic: bool) {
        let period = self.slots.len();
        let down = step as usize % period;
        self.now = (down, is_periodic.then_some(period - 1 - down));
        if !is_periodic {
            self.slots[0].clone_from(&self.fresh);
        }
    }

    /// No free link leads to a rank outside `inside`.
    pub(super) fn is_spent(&self, inside: &Members) -> bool {
        self.slots[self.now.0].open.is_within(inside)
    }

    /// Nothing leads on from this rank in this step.
    pub(super) fn is_stuck(&self, rank: Rank, inside: &Members) -> bool {
        !self.out[rank as usize].iter().any(|&link| self.leads_out(link, inside) && self.is_free(link))
    }

    /// Nothing will lead on from this rank in any step.
    pub(super) fn is_enclosed(&self, rank: Rank, inside: &Members) -> bool {
        !self.out[rank as usize].iter().any(|&link| self.leads_out(link, inside))
    }

    fn leads_out(&self, link: u32, inside: &Members) -> bool {
        let to = self.ends[link as usize].1;
        to >= self.ranks || !inside.has(to)
    }

    fn is_free(&self, link: u32) -> bool {
        let is_free = |slot: usize, link: u32| self.slots[slot].free[link as usize] > 0;
        let (down, up) = self.now;
        is_free(down, link) && up.is_none_or(|up| is_free(up, self.back[link as usize]))
    }

    fn is_passable(&self, node: u32) -> bool {
        let left = |slot: usize| self.slots[slot].through[node as usize];
        match self.now {
            // In the middle slot of an odd period, sum and result go through in the same step.
            (down, Some(up)) if down == up => left(down) > 1,
            (down, up) => left(down) > 0 && up.is_none_or(|up| left(up) > 0),
        }
    }

    /// The free links that lead from one of `sources` through switches to the nearest rank outside `inside`: of
    /// equals, from the first source, and to where the first links lead. At a switch those come first that lead to
    /// nodes from `from` on.
    pub(super) fn nearest(&mut self, sources: &[Rank], inside: &Members, from: u32) -> Option<Vec<u32>> {
        self.search += 1;
        let mut switches = VecDeque::new();
        let mut sources = sources.iter().copied();
        while let Some(node) = sources.next().or_else(|| switches.pop_front()) {
            let links = &self.out[node as usize];
            let is_before = |&link: &u32| node >= self.ranks && self.ends[link as usize].1 < from;
            let first = links.partition_point(is_before);
            for at in 0..links.len() {
                let link = links[(first + at) % links.len()];
                let to = self.ends[link as usize].1;
                if !self.leads_out(link, inside) || !self.is_free(link) {
                    continue;
                }
                if to < self.ranks {
                    return Some(self.way(node, link));
                }
                if self.came[to as usize].1 != self.search && self.is_passable(to) {
                    self.came[to as usize] = (link, self.search);
                    switches.push_back(to);
                }
            }
        }
        None
    }

    fn way(&self, mut node: u32, last: u32) -> Vec<u32> {
        let mut way = vec![last];
        while node >= self.ranks {
            let link = self.came[node as usize].0;
            way.push(link);
            node = self.ends[link as usize].0;
        }
        way.reverse();
        way
    }

    /// Uses the links of a way once; returns its nodes.
    pub(super) fn take(&mut self, way: &[u32]) -> Vec<u32> {
        let (down, up) = self.now;
        let mut nodes = vec![self.ends[way[0] as usize].0];
        for &link in way {
            let (from, to) = self.ends[link as usize];
            self.slots[down].use_up(link, to);
            if let Some(up) = up {
                self.slots[up].use_up(self.back[link as usize], from);
            }
            nodes.push(to);
        }
        nodes
    }
}

impl Slot {
    fn fresh(topology: &Topology, unit: u64) -> Slot {
        let times = |bandwidth: u64| u32::try_from(bandwidth / unit).unwrap_or(u32::MAX);
        let capacities = &topology.traits().capacities;
        let through = |node| capacities.get(&node).map_or(u32::MAX, |&capacity| times(capacity));
        let mut slot = Slot {
            free: Vec::new(),
            through: (0..topology.nodes()).map(through).collect(),
            entering: vec![0; topology.nodes() as usize],
            open: Members::none(topology.ranks()),
        };
        for ((_, to), link) in topology.links() {
            let free = times(link.bandwidth).saturating_mul(link.count);
            slot.free.push(free);
            let entering = &mut slot.entering[to as usize];
            *entering = entering.saturating_add(free);
            if to < topology.ranks() && free > 0 {
                slot.open.add(to);
            }
        }
        slot
    }

    fn use_up(&mut self, link: u32, to: u32) {
        let (free, through) = (&mut self.free[link as usize], &mut self.through[to as usize]);
        *free -= 1;
        *through = through.saturating_sub(1);
        let entering = &mut self.entering[to as usize];
        *entering -= 1;
        if *entering == 0 {
            self.open.remove(to);
        }
    }
}
