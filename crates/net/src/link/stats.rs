//! What has gone over each link: counters that only grow.

use std::sync::Arc;
use std::time::Duration;

use tweed_proto::engine::metrics::Traffic;
use tweed_proto::ltp::LinkMetrics;
use tweed_schedule::Rank;

use crate::link::sockopt::tcp_info;
use crate::link::stream::{Socket, Stream};

/// What this process has to do with one rank of a group.
#[derive(Clone, Debug)]
pub struct LinkStats {
    /// The rank at the other end.
    pub rank: Rank,
    /// The name of that rank's host.
    pub host: String,
    /// How it is reached: `self`, `shm`, `tcp` or `ltp`.
    pub link: &'static str,
    /// What went to and fro, in all groups.
    pub traffic: Traffic,
    /// What the kernel says of its connections.
    pub wires: Wires,
    /// What went in packets, in all groups with the same settings.
    pub packets: Packets,
    /// In so many operations of the group it was the last to come, as seen from here.
    pub times_last: u64,
    /// How long after the call here, or the first message from anybody, its first message came: all operations together.
    pub lateness: Duration,
}

/// What is known of the packets to one peer; zero where values go by streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packets {
    /// All that were sent.
    pub sent: u64,
    /// How many are deemed lost.
    pub lost: u64,
    /// Smoothed round trip; `None` before the first acknowledgement.
    pub rtt: Option<Duration>,
    /// What the path delivers, in bytes per second; `None` before the first acknowledgement.
    pub bandwidth: Option<u64>,
}

impl From<LinkMetrics> for Packets {
    fn from(metrics: LinkMetrics) -> Packets {
        let LinkMetrics { sent_packets, lost_packets, rtt_smoothed, bandwidth, .. } = metrics;
        Packets { sent: sent_packets, lost: lost_packets, rtt: rtt_smoothed, bandwidth }
    }
}

/// What the kernel knows of the TCP connections to one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wires {
    /// Segments sent again, all connections together.
    pub retransmissions: u64,
    /// The shortest smoothed round trip; `None` without TCP.
    pub rtt: Option<Duration>,
}

impl Wires {
    /// Asks the kernel about these streams.
    pub(crate) fn of(streams: &[Arc<Stream>]) -> Wires {
        let wires = streams.iter().map(|s| &s.socket).filter(|s| !matches!(s, Socket::Local(_)));
        let known: Vec<libc::tcp_info> = wires.filter_map(|socket| tcp_info(socket).ok()).collect();
        Wires {
            retransmissions: known.iter().map(|i| u64::from(i.tcpi_total_retrans)).sum(),
            rtt: known.iter().map(|i| Duration::from_micros(i.tcpi_rtt.into())).min(),
        }
    }
}
