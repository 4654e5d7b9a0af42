//! [`Trees`]: from trees to sends, the one step that all tree builders share.

use std::sync::Arc;

use thin_vec::ThinVec;

use crate::record::{Draft, Rank, Send};
use crate::{Collective, Topology};

/// A child joins its parent's tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The rank that has the value already.
    pub parent: Rank,
    /// The rank that gets the value.
    pub child: Rank,
    /// When, counted from the root on; later than the edge that brought it to `parent`.
    pub step: u32,
    /// Nodes between `parent` and `child`, in this order; empty for a direct link.
    pub route: ThinVec<u32>,
}

/// A spanning tree, from its root outward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The rank where the tree starts.
    pub root: Rank,
    /// One per rank but the root.
    pub edges: Vec<Edge>,
}

/// Trees that each carry an equal share of the buffer.
#[derive(Clone, Debug)]
pub struct Trees<'a> {
    /// The links that the trees use.
    pub topology: &'a Arc<Topology>,
    /// Values spread along these, from the root to all.
    pub down: &'a [Tree],
    /// Values are summed along these, each against its direction: an edge from parent to child says that the child
    /// sends to the parent. They were grown on [`Topology::reversed`]; where links are the same in both directions
    /// they may be `down` again. Tree `i` of both has the same root.
    pub up: &'a [Tree],
    /// Each share is cut into so many pieces, which follow each other.
    pub pieces: u32,
    /// Each piece is so many steps behind the one before.
    pub stride: u32,
}

impl Trees<'_> {
    /// The collective that the trees make: all-gather and reduce-scatter where every rank is root of equally many,
    /// all-reduce from any, broadcast and reduce where all have one root. Chunks of one tree are contiguous, and so
    /// are those of one root. What does not fit together is for the checker to find.
    pub fn draft(&self, name: &str, collective: Collective) -> Draft {
        let (first, last) = (collective.reduces(), collective.spreads());
        // Sums of a piece end everywhere before its results start to spread.
        let edges = self.up.iter().flat_map(|tree| &tree.edges);
        let height = if first { edges.map(|edge| edge.step + 1).max().unwrap_or(0) } else { 0 };
        // Trees by root, so that chunks are where their owners are.
        let roots = if self.down.is_empty() { self.up } else { self.down };
        let mut order: Vec<usize> = (0..roots.len()).collect();
        order.sort_by_key(|&tree| roots[tree].root);
        let mut sends = Vec::new();
        for (place, &tree) in order.iter().enumerate() {
            for piece in 0..self.pieces {
                let chunk = place as u32 * self.pieces + piece;
                let late = piece * self.stride;
                if first {
                    sends.extend(self.up[tree].edges.iter().map(|edge| Send {
                        route: edge.route.iter().rev().copied().collect(),
                        // The root is where sums end: its own edges come last.
                        ..Send::new(late + height - 1 - edge.step, edge.child, edge.parent, chunk, true)
                    }));
                }
                if last {
                    sends.extend(self.down[tree].edges.iter().map(|edge| Send {
                        route: edge.route.clone(),
                        ..Send::new(late + height + edge.step, edge.parent, edge.child, chunk, false)
                    }));
                }
            }
        }
        let trees = if last { self.down } else { self.up };
        Draft {
            name: name.to_owned(),
            collective,
            root: if collective.is_rooted() { trees.first().map_or(0, |t| t.root) } else { 0 },
            ranks: self.topology.ranks(),
            chunks: trees.len() as u32 * self.pieces,
            sends,
            topology: Some(Arc::clone(self.topology)),
        }
    }
}

impl Collective {
    /// Whether sums are taken.
    fn reduces(self) -> bool {
        matches!(self, Collective::AllReduce | Collective::ReduceScatter | Collective::Reduce)
    }

    /// Values are copied on.
    fn spreads(self) -> bool {
        matches!(self, Collective::AllReduce | Collective::AllGather | Collective::Broadcast)
    }
}
