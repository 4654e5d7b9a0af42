//! What the ranks of a group have agreed on besides their schedules: who contributes, and what may be lost.

use std::time::Duration;

use tweed_schedule::Rank;

/// What the ranks of a group have agreed on. All ranks must hold the same.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupConfig {
    /// This rank sums and contributes nothing; averages divide by the others.
    pub server: Option<Rank>,
    /// How values cross wires in packets; `None`: over TCP.
    pub ltp: Option<Ltp>,
}

/// Settings of the loss-tolerant transport.
#[derive(Clone, Debug, PartialEq)]
pub struct Ltp {
    /// The share of a contribution that is enough once its time is over.
    pub fraction: f64,
    /// How much longer than the time of the slowest link it may take.
    pub slack: Duration,
    /// Nothing may be missing.
    pub lossless: bool,
    /// An average divides each number by those whose contribution to it has come.
    pub divide_by_delivered: bool,
    /// Keep what was lost for whoever sent it (the group hands them over).
    pub return_lost: bool,
    /// After so many operations of a kind, the times at which messages close are set anew.
    pub epoch: u32,
    /// How packets between hosts are sealed: `auto`, `aes-128-gcm` or `chacha20-poly1305`.
    pub cipher: String,
}

impl GroupConfig {
    /// How many of `ranks` contribute to a sum.
    pub fn contributors(&self, ranks: u32) -> u32 {
        ranks - u32::from(self.server.is_some())
    }

    /// What this cannot be met with in a group of `ranks`.
    pub fn objection(&self, ranks: u32) -> Option<String> {
        let server = self.server?;
        if server >= ranks {
            return Some(format!("the server is rank {server}, and there are {ranks} ranks"));
        }
        (ranks < 2).then(|| "a server alone has nothing to sum; give it a worker, or no server".into())
    }
}
