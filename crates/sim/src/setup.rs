//! [`Setup`]: all that a run depends on besides the schedule.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tweed_proto::{Layout, Reach};
use tweed_schedule::{Rank, Schedule, Topology};

use crate::SimError;

/// All that a run depends on besides the schedule. The same setup gives the same run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The whole buffer, all chunks together.
    pub bytes: u64,
    /// The links of the network.
    pub topology: Arc<Topology>,
    /// Chunks are cut into pieces of so many bytes; `None`: not at all.
    pub piece: Option<u64>,
    /// So many slices are under way at once.
    pub window: u32,
    /// Bytes per second that a rank reads while it adds and copies; `None`: arithmetic takes no time.
    pub compute: Option<u64>,
    /// A rank is busy so long with each message that it sends or receives, one after the other.
    pub message: Duration,
    /// Every packet carries so many bytes besides its payload.
    pub header: u64,
    /// The payload of a packet; `None`: a message is one packet, as under flow control by messages.
    pub packet: Option<u64>,
    /// Ranks of one host read each other's memory. By rank; empty: every rank has its own host.
    pub hosts: Vec<u32>,
    /// How long a signal takes between ranks of one host.
    pub local_latency: Duration,
    /// Draws what follows by chance.
    pub seed: u64,
    /// Every message comes late by a random time up to this.
    pub jitter: Duration,
    /// Every rank starts late by a random time up to this.
    pub late: Duration,
    /// These ranks start late by so much more.
    pub delays: BTreeMap<Rank, Duration>,
    /// These ranks take so many times as long for arithmetic and for sending.
    pub slow: BTreeMap<Rank, f64>,
    /// These ranks die so long after the start.
    pub deaths: BTreeMap<Rank, Duration>,
    /// So long after a death the others learn of it.
    pub detection: Duration,
    /// Keep a log of every message.
    pub log: bool,
    /// Keep the trace of this rank's executor.
    pub record: Option<Rank>,
}

impl Setup {
    /// A buffer of `bytes` over `topology`: uncut, punctual, and nobody dies.
    pub fn new(bytes: u64, topology: Arc<Topology>) -> Setup {
        Setup {
            bytes,
            topology,
            piece: None,
            window: 4,
            compute: None,
            message: Duration::ZERO,
            header: 0,
            packet: None,
            hosts: Vec::new(),
            local_latency: Duration::from_micros(1),
            seed: 0,
            jitter: Duration::ZERO,
            late: Duration::ZERO,
            delays: BTreeMap::new(),
            slow: BTreeMap::new(),
            deaths: BTreeMap::new(),
            detection: Duration::from_secs(1),
            log: false,
            record: None,
        }
    }

    /// Says what is wrong with it for `schedule`, if anything is.
    pub(crate) fn check(&self, schedule: &Schedule) -> Result<(), SimError> {
        let ranks = schedule.ranks();
        let named = [&self.delays, &self.deaths].into_iter().flat_map(BTreeMap::keys);
        let mut named = named.chain(self.slow.keys()).chain(&self.record);
        let complain = |what: String| Err(SimError::Setup(what));
        if schedule.contributors().is_some() {
            return complain(
                "a schedule of some contributors is the log of what has run; it is not run again".into(),
            );
        }
        if let Some(rank) = named.find(|&&rank| rank >= ranks) {
            return complain(format!("the setup names rank {rank}, but there are only {ranks} ranks"));
        }
        if [self.piece, self.compute, self.packet].contains(&Some(0)) || self.window == 0 {
            return complain("piece, window, compute and packet must be at least 1".into());
        }
        if !self.hosts.is_empty() && self.hosts.len() != ranks as usize {
            return complain(format!("hosts has {} entries for {ranks} ranks", self.hosts.len()));
        }
        if let Some((rank, factor)) = self.slow.iter().find(|(_, f)| !(f.is_finite() && **f > 0.0)) {
            return complain(format!("rank {rank} cannot be {factor} times as slow; give a positive number"));
        }
        Ok(())
    }

    pub(crate) fn is_local(&self, a: Rank, b: Rank) -> bool {
        !self.hosts.is_empty() && self.hosts[a as usize] == self.hosts[b as usize]
    }

    pub(crate) fn layout(&self, schedule: &Schedule, rank: Rank) -> Layout {
        let chunks = 0..schedule.chunks();
        let chunk_bytes: Vec<u64> = chunks.map(|c| schedule.chunk_bytes(c, self.bytes)).collect();
        let longest = chunk_bytes.iter().copied().max().unwrap_or(0);
        let reach = |other| if self.is_local(rank, other) { Reach::Shared } else { Reach::Wire };
        Layout {
            chunk_bytes,
            piece: self.piece.unwrap_or(longest).max(1),
            window: self.window,
            in_place: false,
            reach: (0..schedule.ranks()).map(reach).collect(),
        }
    }
}
