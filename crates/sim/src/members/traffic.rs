//! What members say to each other, in bytes, on a network that loses nothing: while nobody comes or goes, and about a loss.

use std::collections::BTreeMap;

use tweed_proto::hub::Key;
use tweed_proto::members::{Action, Epoch, Member, Message, Node, Settings, Voters};

use super::world::key;

/// Bytes that a member sends, on average over members; without headers and seals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traffic {
    /// In a second in which nobody comes or goes.
    pub quiet: f64,
    /// More than that, from a kill of one of them until all others are in the next epoch.
    pub loss: f64,
}

const TICKS_PER_SECOND: u64 = 100;

/// The traffic of this many members with the settings of the live driver.
///
/// # Panics
/// If the members come to no epoch without the one that was killed.
pub fn traffic(members: usize) -> Traffic {
    let mut net = Net::new(members);
    let span = |net: &mut Net, ticks: u64| {
        let before = net.bytes;
        (0..ticks).for_each(|_| net.tick());
        (net.bytes - before) as f64
    };
    span(&mut net, TICKS_PER_SECOND / 2); // all hear each other
    let quiet = span(&mut net, TICKS_PER_SECOND) / members as f64;
    let (begin, before) = (net.now, net.bytes);
    net.kill();
    while net.nodes.values().any(|node| node.epoch().is_none_or(|epoch| epoch.number == 1)) {
        assert!(net.now < begin + 10 * TICKS_PER_SECOND, "the members come to no epoch");
        net.tick();
    }
    let seconds = (net.now - begin) as f64 / TICKS_PER_SECOND as f64;
    let about = (net.bytes - before) as f64 / net.nodes.len() as f64;
    Traffic { quiet, loss: (about - quiet * seconds).max(0.0) }
}

struct Net {
    nodes: BTreeMap<Key, Node>,
    way: Vec<(Key, Key, Message)>,
    now: u64,
    bytes: u64,
}

impl Net {
    fn new(members: usize) -> Net {
        let all: Vec<Member> = (0..members).map(|id| Member { key: key(id), incarnation: 1 }).collect();
        let first = Epoch::first(all.clone(), Voters::Members);
        let node = |me: Member| Node::founder(me, first.clone(), Settings::new(1, members));
        let nodes = all.iter().map(|&me| (me.key, node(me))).collect();
        Net { nodes, way: Vec::new(), now: 0, bytes: 0 }
    }

    /// What was sent arrives a tick later.
    fn tick(&mut self) {
        self.now += 1;
        for (from, to, message) in std::mem::take(&mut self.way) {
            if let Some(node) = self.nodes.get_mut(&to) {
                node.handle_message(from, message);
            }
        }
        for (&from, node) in &mut self.nodes {
            node.handle_tick();
            while let Some(action) = node.poll() {
                if let Action::Send { to, message } = action {
                    self.bytes += message.encode().len() as u64;
                    self.way.push((from, to, message));
                }
            }
        }
    }

    /// The kernel tells all others.
    fn kill(&mut self) {
        let (lost, _) = self.nodes.pop_last().expect("there are members");
        self.nodes.values_mut().for_each(|node| node.handle_lost(lost));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_says_as_much_more_as_there_are_others() {
        let (few, many) = (traffic(8), traffic(32));
        let to_each = |of: Traffic, others: f64| of.quiet / others;
        assert!(to_each(few, 7.0) <= to_each(many, 31.0) && to_each(many, 31.0) < 1.5 * to_each(few, 7.0));
        assert!(many.loss > 0.0 && many.loss < 20.0 * few.loss);
    }
}
