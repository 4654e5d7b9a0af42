//! What the user states: how a process takes part in the network, and what makes a group.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use tweed_proto::engine::config::GroupConfig;
use tweed_proto::engine::GroupNumber;
use tweed_proto::late::Limits;

use crate::connect::admission::Admission;
use crate::link::ports::Ports;
use crate::operation::plans::PlanRow;

/// How a node is set up.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The address to listen on for ranks that share no memory with this one.
    pub host: IpAddr,
    /// The ports on which it listens, and over which packets go.
    pub ports: Ports,
    /// TCP connections per pair.
    pub streams: u32,
    /// Congestion control of these connections; `None`: the system's.
    pub congestion: Option<String>,
    /// Never use shared memory.
    pub wire_only: bool,
    /// Write how each operation went to a file in this folder, to be replayed in the simulator.
    pub traces: Option<PathBuf>,
    /// How late a step may be; `None`: as late as the caller's timeout allows.
    pub deadline: Option<Duration>,
    /// What it lets in.
    pub admission: Admission,
}

impl NodeOptions {
    /// The timeouts of a call of which nothing is known, where the caller allows `most`.
    pub(crate) fn limits(&self, most: Duration) -> Limits {
        Limits::derive(self.deadline, None, most)
    }
}

/// Ranks that cannot be called from here are asked, in ways of the caller's, to call this one: takes those of which that is
/// known by now, and returns those that ask this one.
pub type Turn<'a> = dyn Fn(&[u32]) -> Vec<u32> + 'a;

/// What makes a group.
pub struct GroupSpec {
    /// For people.
    pub name: String,
    /// The same at all ranks, and of no other group, but for chance.
    pub hash: u64,
    /// Whose group it is, where members come and go: no message of another epoch is taken for one of it.
    pub epoch: Option<u64>,
    /// This process's rank.
    pub rank: u32,
    /// The descriptors of all ranks ([`Node::descriptor`](crate::Node::descriptor)).
    pub descriptors: Vec<Vec<u8>>,
    /// Pairs of ranks that cannot call each other, though by their descriptors they could. The same at all ranks.
    pub missing: Vec<(u32, u32)>,
    /// Which schedule runs what.
    pub rows: Vec<PlanRow>,
    /// How long an operation may take unless it says otherwise.
    pub timeout: Duration,
    /// Who contributes, and what may be lost.
    pub config: GroupConfig,
}

impl GroupSpec {
    /// What names it in messages.
    pub(crate) fn number(&self) -> GroupNumber {
        GroupNumber::new(self.hash, self.epoch)
    }
}
