//! What the emulator is told and what it answers: lines of JSON.

use serde::{Deserialize, Serialize};

use crate::direction::Direction;

/// What links do, by host: up from the host, and down to it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Directions {
    /// The directions from each host to the hub.
    pub up: Vec<Direction>,
    /// The directions from the hub to each host.
    pub down: Vec<Direction>,
}

/// What it begins with.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The name of the hub's interface towards each host.
    pub ports: Vec<String>,
    /// What links do at first.
    pub directions: Directions,
    /// Seed of every draw.
    pub seed: u64,
    /// Packets may be as large as segmentation offloads make them.
    pub offload: bool,
}

/// A line that it reads while it runs. Each is answered by a line with a [`Report`].
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Links are like this from now on.
    Change(Directions),
    /// Only the answer is wanted.
    Count,
}

/// What it has done to the packets of one sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Packets that came to be decided upon.
    pub packets: u64,
    /// Packets lost in a burst.
    pub lost: u64,
    /// Packets that were sent twice.
    pub duplicated: u64,
    /// Packets that were held back.
    pub reordered: u64,
    /// Dropped because the emulator held more than it may. Then it is not honest.
    pub overrun: u64,
}

/// What it has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What was done to the packets of each sender.
    pub hosts: Vec<Counts>,
    /// Frames of any sender that came faster than they could be taken. If there are some, it was not honest.
    pub missed: u64,
    /// Frames that were sent more than a millisecond after they were due.
    pub late: u64,
}
