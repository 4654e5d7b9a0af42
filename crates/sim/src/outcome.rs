//! [`Outcome`]: what came of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use tweed_proto::Trace;
use tweed_schedule::Rank;

/// How a rank's operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It has its result, which has been checked.
    Finished(Duration),
    /// It gave up because a peer was lost: the engine raises `PeerLost`.
    PeerLost {
        /// The peer that was lost.
        peer: Rank,
        /// When it learnt of it.
        at: Duration,
    },
    /// The rank's process has died.
    Died(Duration),
}

/// One message over the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// Index of the send in the schedule.
    pub send: u32,
    /// The number of the piece.
    pub slice: u32,
    /// The rank that sent it.
    pub src: Rank,
    /// The rank that got it.
    pub dst: Rank,
    /// The number of bytes.
    pub bytes: u64,
    /// When its first byte left.
    pub left: Duration,
    /// When its last byte arrived.
    pub arrived: Duration,
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How each rank's operation ended.
    pub ends: Vec<End>,
    /// Bytes that arrived over each directed link, headers not counted.
    pub link_bytes: BTreeMap<(u32, u32), u64>,
    /// Every message that arrived, in order of arrival, if [`Setup::log`](crate::Setup::log) says so.
    pub log: Vec<Crossing>,
    /// What the executor of [`Setup::record`](crate::Setup::record) did.
    pub trace: Option<Trace>,
    /// How many events the run took.
    pub events: u64,
}

impl Outcome {
    /// When the last rank had its result; `None` if any has none.
    pub fn finished(&self) -> Option<Duration> {
        let times = self.ends.iter().map(|end| match end {
            End::Finished(at) => Some(*at),
            _ => None,
        });
        times.collect::<Option<Vec<Duration>>>()?.into_iter().max()
    }
}

impl fmt::Display for Crossing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Crossing { send, slice, src, dst, bytes, left, arrived } = self;
        let (left, arrived) = (left.as_nanos(), arrived.as_nanos());
        write!(f, "{left} {arrived} {src} {dst} {send} {slice} {bytes}")
    }
}
