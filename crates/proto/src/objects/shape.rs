//! The trees of a reduce: which slot's sum goes to which.
//!
//! Slots are numbered by in-order traversal, the destination left out: a left child comes before its parent, a right
//! child and all below it after. Sources take slots in this order as they appear, so whoever comes finds what it is to
//! add to nearly complete, and nothing waits for the full membership.

use super::{Slot, ROOT};

/// The family of a tree, by what it is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Each slot adds to the one before it.
    Chain,
    /// A full binary tree of `2^depth - 1` nodes, the destination at its top, over `2^depth` chains.
    Trees {
        /// The depth, which is at least 1.
        depth: u32,
    },
    /// All go to the destination directly.
    Star,
}

/// A tree over `n` slots and the destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The family of the shape.
    pub form: Form,
    /// The slots that add to each slot, in the order in which they are filled.
    pub children: Vec<Vec<Slot>>,
    /// The slot that each slot adds to. The destination has itself.
    pub parent: Vec<Slot>,
}

impl Shape {
    /// The tree of this form over `count` sources. A depth that is not possible is lowered to the greatest that is.
    pub fn new(form: Form, count: u32) -> Shape {
        let mut shape = Shape {
            form,
            children: vec![Vec::new(); count as usize + 1],
            parent: vec![ROOT; count as usize + 1],
        };
        match form {
            Form::Star => (1..=count).for_each(|slot| shape.add(ROOT, slot)),
            Form::Chain => {
                let top = chain(&mut shape, &mut 1, count);
                top.into_iter().for_each(|top| shape.add(ROOT, top));
            }
            Form::Trees { depth } => {
                let depth = depth.clamp(1, most_depth(count));
                let chains = Chains::under(depth, count);
                let mut grow = Grow { shape, next: 1, depth, chains, begun: 0 };
                grow.node(1);
                shape = grow.shape;
            }
        }
        shape
    }

    /// How many slots take contributions.
    pub fn sources(&self) -> u32 {
        self.parent.len() as u32 - 1
    }

    /// Nobody adds to this slot: what it sends is its object.
    pub fn is_leaf(&self, slot: Slot) -> bool {
        self.children[slot as usize].is_empty()
    }

    fn add(&mut self, parent: Slot, child: Slot) {
        self.children[parent as usize].push(child);
        self.parent[child as usize] = parent;
    }
}

/// The deepest full binary tree over `count` sources and the destination: `floor(log2(count + 2))`.
pub(crate) fn most_depth(count: u32) -> u32 {
    (count + 2).ilog2()
}

/// The chains under a full binary tree: their lengths differ by one at most, the longer ones first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chains {
    pub(crate) count: u32,
    pub(crate) rest: u32,
}

impl Chains {
    pub(crate) fn under(depth: u32, sources: u32) -> Chains {
        Chains { count: 1 << depth, rest: (sources + 1).saturating_sub((1 << depth) - 1) }
    }

    /// The length of chain `index`.
    pub(crate) fn length(self, index: u32) -> u32 {
        self.rest / self.count + u32::from(index < self.rest % self.count)
    }
}

/// A full binary tree while it is built, in order.
struct Grow {
    shape: Shape,
    next: Slot,
    depth: u32,
    chains: Chains,
    begun: u32,
}

impl Grow {
    /// Builds the node of this level (the top is 1) with all below it; returns its slot.
    fn node(&mut self, level: u32) -> Slot {
        let left = self.below(level);
        let slot = if level == 1 { ROOT } else { self.next };
        self.next += u32::from(level > 1);
        let right = self.below(level);
        left.into_iter().chain(right).for_each(|child| self.shape.add(slot, child));
        slot
    }

    fn below(&mut self, level: u32) -> Option<Slot> {
        if level < self.depth {
            return Some(self.node(level + 1));
        }
        let length = self.chains.length(self.begun);
        self.begun += 1;
        chain(&mut self.shape, &mut self.next, length)
    }
}

/// A chain of this length from slot `next` on; returns its top.
fn chain(shape: &mut Shape, next: &mut Slot, length: u32) -> Option<Slot> {
    let first = std::mem::replace(next, *next + length);
    (first + 1..first + length).for_each(|slot| shape.add(slot, slot - 1));
    (length > 0).then(|| first + length - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_filled_from_its_far_end() {
        let shape = Shape::new(Form::Chain, 3);
        assert_eq!(shape.children, [vec![3], vec![], vec![1], vec![2]]);
        assert_eq!(shape.parent, [0, 2, 3, 0]);
    }

    #[test]
    fn trees_stand_over_chains_that_differ_by_one() {
        let shape = Shape::new(Form::Trees { depth: 2 }, 8);
        // Two nodes below the destination, and six slots on four chains: 2, 2, 1, 1.
        assert_eq!(shape.children[ROOT as usize], [3, 7]);
        assert_eq!(shape.children[3], [2, 5]);
        assert_eq!(shape.children[7], [6, 8]);
        assert_eq!((shape.children[2].as_slice(), shape.children[5].as_slice()), (&[1][..], &[4][..]));
    }

    #[test]
    fn every_slot_is_placed_after_those_on_its_left_and_reaches_the_root() {
        for count in 1..80 {
            let depths = (1..=most_depth(count)).map(|depth| Form::Trees { depth });
            for form in depths.chain([Form::Chain, Form::Star]) {
                let shape = Shape::new(form, count);
                for slot in 1..=count {
                    let way = std::iter::successors(Some(slot), |&s| Some(shape.parent[s as usize]));
                    assert!(way.take(count as usize + 1).any(|s| s == ROOT), "{form:?} {count}");
                    let (children, parent) = (&shape.children[slot as usize], shape.parent[slot as usize]);
                    assert!(children.first().is_none_or(|&left| left < slot), "{form:?} {count}");
                    assert!(shape.children[parent as usize].contains(&slot));
                }
            }
        }
    }
}
