//! What there is between each pair of processes, in one direction.

use std::collections::btree_map::{BTreeMap, Entry};

use tweed_schedule::Rank;

use super::cuts::InOrder;
use super::world::Block;
use crate::clock::Time;
use crate::network::Network;
use crate::SimError;

pub(crate) struct Pair {
    pub(crate) path: u32,
    pub(crate) latency: Time,
    /// When the last of what goes here arrives: later things do not overtake it.
    pub(crate) last: Time,
    pub(crate) order: InOrder<Box<Block>>,
    /// Payload that was taken in.
    pub(crate) bytes: u64,
}

/// Pairs by sender; each has few receivers.
pub(crate) struct Pairs(Vec<BTreeMap<Rank, Pair>>);

impl Pairs {
    pub(crate) fn new(ranks: Rank) -> Pairs {
        Pairs((0..ranks).map(|_| BTreeMap::new()).collect())
    }

    pub(crate) fn get(&mut self, network: &mut Network, src: Rank, dst: Rank) -> Result<&mut Pair, SimError> {
        match self.0[src as usize].entry(dst) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(new) => {
                let path = network.pair(src, dst).ok_or(SimError::NoPath { from: src, to: dst })?;
                let (latency, order) = (network.latency(path), InOrder::default());
                Ok(new.insert(Pair { path, latency, last: 0, order, bytes: 0 }))
            }
        }
    }

    /// The payload of all pairs that moved some.
    pub(crate) fn bytes(&self) -> BTreeMap<(Rank, Rank), u64> {
        let of = |(src, pairs): (Rank, &BTreeMap<Rank, Pair>)| {
            pairs.iter().map(move |(&dst, pair)| ((src, dst), pair.bytes)).collect::<Vec<_>>()
        };
        (0..).zip(&self.0).flat_map(of).filter(|pair| pair.1 > 0).collect()
    }
}
