//! Ways through switches.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use thin_vec::ThinVec;

use super::moves::Move;
use super::run::Run;

/// A channel that the search has taken.
struct Visit {
    channel: u32,
    previous: Option<usize>,
    /// When the first byte leaves it.
    head: u64,
    /// How long a chunk takes on the slowest channel up to here.
    busy: u64,
}

/// What a search may look at next, best first: level, channels taken, chunks that the end has, a random number, the
/// channel, and the visit before it.
type Ahead = Reverse<(usize, usize, u32, u64, u32, Option<usize>)>;

impl Run<'_> {
    /// A chunk for the first rank that needs one, searching from channel `first` of a rank on: over the fastest links,
    /// then the fewest, and only such as are free when the first byte comes.
    pub(super) fn through_switches(&mut self, first: u32) -> Option<Move> {
        let network = self.network;
        let from = network.channels[first as usize].from;
        let mut done = vec![false; network.out.len()];
        let mut visits: Vec<Visit> = Vec::new();
        let mut ahead: BinaryHeap<Ahead> = BinaryHeap::new();
        ahead.push(Reverse((network.channels[first as usize].level, 1, 0, 0, first, None)));
        while let Some(Reverse((level, hops, _, _, index, previous))) = ahead.pop() {
            let channel = &network.channels[index as usize];
            if std::mem::replace(&mut done[channel.to as usize], true) {
                continue;
            }
            let (head, busy) = previous.map_or((self.now(), 0), |at| (visits[at].head, visits[at].busy));
            let (head, busy) = (head + channel.latency, busy.max(channel.busy));
            visits.push(Visit { channel: index, previous, head, busy });
            if network.is_rank(channel.to) {
                let cost = head + busy - self.now();
                if let Some(chunk) = self.choose(from, channel.to, level, cost) {
                    return Some(Move { chunk, from, to: channel.to, channels: way(&visits) });
                }
                continue;
            }
            let last = Some(visits.len() - 1);
            for &next in &network.out[channel.to as usize] {
                let onward = &network.channels[next as usize];
                if !done[onward.to as usize] && onward.to != from && self.lane(next, head).is_some() {
                    let (level, has) = (level.max(onward.level), self.claims(onward.to));
                    ahead.push(Reverse((level, hops + 1, has, self.draw(), next, last)));
                }
            }
        }
        None
    }
}

/// The channels that lead to the last visit.
fn way(visits: &[Visit]) -> ThinVec<u32> {
    let mut channels = ThinVec::new();
    let mut at = visits.len().checked_sub(1);
    while let Some(visit) = at.map(|at| &visits[at]) {
        channels.push(visit.channel);
        at = visit.previous;
    }
    channels.reverse();
    channels
}
