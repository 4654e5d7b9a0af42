//! [`Topology`]: the links between ranks.

use std::collections::BTreeMap;
use std::time::Duration;

/// What one directed link can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Link {
    /// Bytes per second.
    pub bandwidth: u64,
    /// Time from the first byte's departure to its arrival.
    pub latency: Duration,
}

impl Link {
    /// The time `bytes` keep the link busy; a link of bandwidth 0 never gets them across.
    pub fn busy(&self, bytes: u64) -> Duration {
        if bytes == 0 {
            return Duration::ZERO;
        }
        let nanos = (u128::from(bytes) * 1_000_000_000).checked_div(u128::from(self.bandwidth));
        nanos.and_then(|nanos| nanos.try_into().ok()).map_or(Duration::MAX, Duration::from_nanos)
    }
}

/// Directed links between nodes. Nodes below `ranks` are ranks, those above are switches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    ranks: u32,
    links: Links,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Links {
    /// Every pair of ranks, through a core that is never the bottleneck: a rank's port is.
    Complete(Link),
    /// These links and no others; each carries its own traffic.
    Listed(BTreeMap<(u32, u32), Link>),
}

impl Topology {
    /// A flat network: every rank reaches each other directly, and all it sends (or receives) at a time
    /// shares one port of `link.bandwidth`.
    pub fn complete(ranks: u32, link: Link) -> Topology {
        Topology { ranks, links: Links::Complete(link) }
    }

    /// Exactly these directed links, each independent of the others. The last one given for a pair counts.
    pub fn from_links(ranks: u32, links: impl IntoIterator<Item = ((u32, u32), Link)>) -> Topology {
        Topology { ranks, links: Links::Listed(links.into_iter().collect()) }
    }

    /// How many nodes are ranks.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// The directed link between two nodes, if there is one.
    pub fn link(&self, from: u32, to: u32) -> Option<Link> {
        match &self.links {
            Links::Complete(link) => (from != to && from < self.ranks && to < self.ranks).then_some(*link),
            Links::Listed(links) => links.get(&(from, to)).copied(),
        }
    }

    /// Is there a directed link between two nodes?
    pub fn has_link(&self, from: u32, to: u32) -> bool {
        self.link(from, to).is_some()
    }

    /// Every directed link, by its nodes. A complete topology of `n` ranks has `n * (n - 1)`.
    pub fn links(&self) -> Vec<((u32, u32), Link)> {
        match &self.links {
            Links::Listed(links) => links.iter().map(|(&nodes, &link)| (nodes, link)).collect(),
            Links::Complete(link) => {
                let pairs = (0..self.ranks).flat_map(|from| (0..self.ranks).map(move |to| (from, to)));
                pairs.filter(|(from, to)| from != to).map(|nodes| (nodes, *link)).collect()
            }
        }
    }

    /// The port that all traffic of one rank shares in each direction, if ranks have one.
    pub fn port(&self) -> Option<Link> {
        match self.links {
            Links::Complete(link) => Some(link),
            Links::Listed(_) => None,
        }
    }
}
