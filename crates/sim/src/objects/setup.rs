//! What a run of objects depends on, and what came of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tweed_proto::objects::{Failure, Included, Log, Mode, ObjectId, Rule};
use tweed_schedule::{Rank, Topology};

/// What processes do, when: all that [`run`](super::run) depends on besides the network.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The links between processes, which are its ranks. Blocks between two take the path with the fewest hops.
    pub topology: Arc<Topology>,
    /// The calls, in any order.
    pub calls: Vec<Call>,
    /// These processes come so long after the start; others know nothing of them before, and the rest are there.
    pub joins: BTreeMap<Rank, Duration>,
    /// These processes die so long after the start.
    pub deaths: BTreeMap<Rank, Duration>,
    /// Links that break between processes that live.
    pub cuts: Vec<Cut>,
    /// These processes stand still, as by SIGSTOP: from so long after the start on, and for so long. Nobody takes them for lost.
    pub pauses: BTreeMap<Rank, (Duration, Duration)>,
    /// After a death each other process learns of it within half of this and one and a half times this.
    pub detection: Duration,
    /// A process is busy so long with each message that it sends or takes in, one after the other.
    pub message: Duration,
    /// Every message comes late by a random time up to this.
    pub jitter: Duration,
    /// Every block carries so many bytes besides its payload.
    pub header: u64,
    /// The seed of what is left to chance.
    pub seed: u64,
    /// Keep the logs of reduces.
    pub keep_logs: bool,
    /// Keep a line for each message.
    pub trace: bool,
}

impl Setup {
    /// Nobody calls anything yet, nobody dies.
    pub fn new(topology: Arc<Topology>) -> Setup {
        let (calls, jitter, message) = (Vec::new(), Duration::ZERO, Duration::ZERO);
        let (joins, deaths, cuts, pauses) = (BTreeMap::new(), BTreeMap::new(), Vec::new(), BTreeMap::new());
        let detection = Duration::from_millis(2);
        Setup {
            topology,
            calls,
            joins,
            deaths,
            cuts,
            pauses,
            detection,
            message,
            jitter,
            header: 0,
            seed: 0,
            keep_logs: true,
            trace: false,
        }
    }

    /// Adds a call to the setup.
    pub fn call(&mut self, at: Duration, process: Rank, what: What) {
        self.calls.push(Call { at, process, what });
    }
}

/// The link of a pair breaks: what is on its way is lost, and leaves once more when the two have met again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Which pair, in any order.
    pub pair: (Rank, Rank),
    /// So long after the start.
    pub at: Duration,
    /// For so long they do not reach each other.
    pub lasts: Duration,
}

/// A call of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// So long after the start.
    pub at: Duration,
    /// The process that calls.
    pub process: Rank,
    /// What the process calls.
    pub what: What,
}

/// What a process calls.
// The fields are what their names are.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// An object of `size` bytes is there.
    Put { object: ObjectId, size: u64 },
    /// A copy is wanted.
    Get { object: ObjectId },
    /// The sum of the first `count` of `ids` is wanted.
    Reduce { target: ObjectId, ids: Vec<ObjectId>, count: u32, mode: Mode, rule: Rule },
    /// Nobody is to have it any more.
    Delete { object: ObjectId },
}

/// What came of a run. Times are since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// When a process had an object that it got, or a reduce of its own complete.
    pub got: BTreeMap<(Rank, ObjectId), Duration>,
    /// The ids that each reduce sums, where it is complete.
    pub included: BTreeMap<ObjectId, Included>,
    /// Calls that have no result, and why.
    pub failed: Vec<(Rank, ObjectId, Failure)>,
    /// Gets and reduces of living processes that never ended.
    pub waiting: Vec<(Rank, ObjectId)>,
    /// Processes that died before a link stood again over which they had something to send.
    pub unheard: BTreeSet<Rank>,
    /// Payload bytes that each pair moved.
    pub pair_bytes: BTreeMap<(Rank, Rank), u64>,
    /// Payload bytes of an object that a process took in, those that it had to throw away too.
    pub taken: BTreeMap<(Rank, ObjectId), u64>,
    /// Payload bytes of blocks that came and were of no use: a link broke before they were whole, or their pull was closed.
    pub taken_twice: u64,
    /// The most others that one copy fed at a time.
    pub most_fed: u32,
    /// How many pulls were opened.
    pub pulls: u64,
    /// How many messages processes sent each other besides blocks.
    pub messages: u64,
    /// The simulator's own steps.
    pub events: u64,
    /// Each message, if [`Setup::trace`] says so.
    pub trace: Vec<String>,
    /// What was planned, if [`Setup::keep_logs`] says so.
    pub logs: Vec<Log>,
}

impl Outcome {
    /// Payload bytes that a process sent.
    pub fn sent(&self, process: Rank) -> u64 {
        self.pair_bytes.iter().filter(|(pair, _)| pair.0 == process).map(|(_, bytes)| bytes).sum()
    }

    /// When the last call was answered.
    pub fn end(&self) -> Duration {
        self.got.values().copied().max().unwrap_or_default()
    }
}
