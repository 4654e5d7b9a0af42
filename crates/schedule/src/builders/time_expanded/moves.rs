//! What a run decided: who sent which chunk to whom over which channels, in the order of time.

use thin_vec::ThinVec;

use super::network::Network;
use crate::trees::{Edge, Tree};

/// A chunk on its way from a rank to a rank.
#[derive(Clone, Debug)]
pub(super) struct Move {
    pub(super) chunk: u32,
    pub(super) from: u32,
    pub(super) to: u32,
    /// The channels it takes, in order.
    pub(super) channels: ThinVec<u32>,
}

/// All moves, in the order in which they began.
#[derive(Clone, Debug)]
pub(super) struct Moves {
    pub(super) pieces: u32,
    pub(super) list: Vec<Move>,
}

impl Moves {
    fn chunks(&self, network: &Network) -> usize {
        network.ranks * self.pieces as usize
    }

    /// When the last chunk arrives if every channel keeps the order and nobody waits for anything else, in nanoseconds
    /// by the clock of `network`.
    pub(super) fn end(&self, network: &Network) -> u64 {
        let chunks = self.chunks(network);
        let mut arrived = vec![0; network.ranks * chunks];
        let mut lanes: Vec<Vec<u64>> = network.channels.iter().map(|c| vec![0; c.count as usize]).collect();
        let mut end = 0;
        for Move { chunk, from, to, channels } in &self.list {
            let mut head: u64 = arrived[*from as usize * chunks + *chunk as usize];
            let mut behind = 0;
            for &index in channels {
                let channel = &network.channels[index as usize];
                let lanes = lanes[index as usize].iter_mut();
                let lane = lanes.min_by_key(|free| **free).expect("a channel takes at least one chunk");
                let start = head.max(*lane);
                *lane = start + channel.busy;
                behind = (head + behind).max(*lane) - start;
                head = start + channel.latency;
            }
            arrived[*to as usize * chunks + *chunk as usize] = head + behind;
            end = end.max(head + behind);
        }
        end
    }

    /// The trees along which the chunks spread. Steps rise along each tree and along each channel, so that whoever
    /// keeps their order sends as it was planned.
    pub(super) fn trees(&self, network: &Network) -> Vec<Tree> {
        let chunks = self.chunks(network);
        let tree = |chunk| Tree { root: chunk / self.pieces, edges: Vec::with_capacity(network.ranks - 1) };
        let mut trees: Vec<Tree> = (0..chunks as u32).map(tree).collect();
        let mut arrived = vec![0u32; network.ranks * chunks];
        let mut used = vec![0u32; network.channels.len()];
        for Move { chunk, from, to, channels } in &self.list {
            let place = |rank: u32| rank as usize * chunks + *chunk as usize;
            let before = channels.iter().map(|&index| used[index as usize]).max().unwrap_or(0);
            let step = before.max(arrived[place(*from)]);
            channels.iter().for_each(|&index| used[index as usize] = step + 1);
            arrived[place(*to)] = step + 1;
            let between = channels.iter().skip(1).map(|&index| network.channels[index as usize].from);
            let route = between.filter(|&node| node < network.nodes).collect();
            trees[*chunk as usize].edges.push(Edge { parent: *from, child: *to, step, route });
        }
        trees
    }
}
