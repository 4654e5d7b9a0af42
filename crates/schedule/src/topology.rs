//! [`Topology`]: the links between ranks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::Rank;

/// What one directed link can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Link {
    /// Bytes per second; of each, if there are several.
    pub bandwidth: u64,
    /// Time from the first byte's departure to its arrival.
    pub latency: Duration,
    /// So many equal links lie side by side. One message takes one of them.
    pub count: u32,
}

impl Link {
    /// One link without others beside it.
    pub fn new(bandwidth: u64, latency: Duration) -> Link {
        Link { bandwidth, latency, count: 1 }
    }

    /// The time `bytes` keep one link busy; a link of bandwidth 0 never gets them across.
    pub fn busy(&self, bytes: u64) -> Duration {
        if bytes == 0 {
            return Duration::ZERO;
        }
        let nanos = (u128::from(bytes) * 1_000_000_000).checked_div(u128::from(self.bandwidth));
        nanos.and_then(|nanos| nanos.try_into().ok()).map_or(Duration::MAX, Duration::from_nanos)
    }
}

/// A regular grid of ranks; the last dimension counts fastest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Grid {
    /// How many ranks along each dimension.
    pub sides: Vec<u32>,
    /// Whether the last rank along a dimension is a neighbour of the first.
    pub wraps: Vec<bool>,
}

/// What builders know of a network beyond its links. All of it may be left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Traits {
    /// For people, such as "torus 8x8".
    pub name: String,
    /// Bytes per second that a switch takes through in all; switches that are left out take what their links bring.
    pub capacities: BTreeMap<u32, u64>,
    /// The ranks form this grid.
    pub grid: Option<Grid>,
    /// Where each rank is, from the widest to the narrowest: site, rack, host. Empty: not known.
    pub places: Vec<Vec<u32>>,
}

/// Directed links between nodes. Nodes below `ranks` are ranks, those above are switches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Topology {
    ranks: u32,
    links: Links,
    traits: Traits,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
        Topology { ranks, links: Links::Complete(link), traits: Traits::default() }
    }

    /// Exactly these directed links, each independent of the others. The last one given for a pair counts.
    pub fn from_links(ranks: u32, links: impl IntoIterator<Item = ((u32, u32), Link)>) -> Topology {
        Topology { ranks, links: Links::Listed(links.into_iter().collect()), traits: Traits::default() }
    }

    /// This topology with what is known beyond its links.
    pub fn with(self, traits: Traits) -> Topology {
        Topology { traits, ..self }
    }

    /// How many nodes are ranks.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// What is known beyond the links.
    pub fn traits(&self) -> &Traits {
        &self.traits
    }

    /// Ranks and switches: one more than the highest node.
    pub fn nodes(&self) -> u32 {
        match &self.links {
            Links::Complete(_) => self.ranks,
            Links::Listed(links) => links.keys().map(|&(a, b)| a.max(b) + 1).fold(self.ranks, u32::max),
        }
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

    /// Every link turned round.
    pub fn reversed(&self) -> Topology {
        match &self.links {
            Links::Complete(_) => self.clone(),
            Links::Listed(links) => {
                let links = links.iter().map(|(&(from, to), &link)| ((to, from), link)).collect();
                Topology { ranks: self.ranks, links: Links::Listed(links), traits: self.traits.clone() }
            }
        }
    }

    /// What is left when these ranks and links are gone. The other ranks keep their order and close up, switches
    /// as well; a grid is a grid no more.
    pub fn without(&self, lost: &BTreeSet<Rank>, cut: &BTreeSet<(u32, u32)>) -> Topology {
        let number = |node: u32| node - lost.range(..node).count() as u32;
        let stays = |node: u32| !lost.contains(&node);
        let kept =
            self.links().into_iter().filter(|((a, b), _)| stays(*a) && stays(*b) && !cut.contains(&(*a, *b)));
        let links = match &self.links {
            Links::Complete(link) if cut.is_empty() => Links::Complete(*link),
            _ => Links::Listed(kept.map(|((a, b), link)| ((number(a), number(b)), link)).collect()),
        };
        let Traits { name, capacities, places, .. } = self.traits.clone();
        let places = (0..).zip(places).filter(|(rank, _)| stays(*rank)).map(|(_, place)| place).collect();
        let capacities = capacities.into_iter().map(|(node, capacity)| (number(node), capacity)).collect();
        let gone = lost.range(..self.ranks).count() as u32;
        Topology { ranks: self.ranks - gone, links, traits: Traits { name, capacities, places, grid: None } }
    }
}
