//! The values that planner, holders and drivers share.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::Form;

/// The permanent id of a process.
pub type Process = u64;

/// The place of a contribution in the tree of a reduce; [`ROOT`] is its destination.
pub type Slot = u32;

/// The slot of the destination. The others count from 1, in the order in which they are filled.
pub const ROOT: Slot = 0;

/// Objects up to this size, inclusive, lie in the directory itself: a look-up brings them, and small sums form there.
pub const SMALL_BYTES: u64 = 65_536;

/// The bytes of a small object.
pub type Bytes = Arc<[u8]>;

/// Whatever tells one object from all others; it may be asked for before there are data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u128);

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "object {:x}", self.0)
    }
}

/// How many bytes an object has, and what they are: `kind` is the driver's number for element type and shape. Objects
/// are only summed with those of equal form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// All bytes of it.
    pub size: u64,
    /// The driver's number for element type and shape.
    pub kind: u64,
}

/// Bytes that one process holds and others pull: an object, or the sum that a slot of a reduce makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Buffer {
    /// An object, or as much of it as is there.
    Object(ObjectId),
    /// What the holder of a slot has summed for the reduce that makes `target`.
    Partial {
        /// What the reduce makes.
        target: ObjectId,
        /// The slot whose sum it is.
        slot: Slot,
    },
}

impl Buffer {
    /// What the holder of a slot sums into: the destination, into the target itself.
    pub fn of_slot(target: ObjectId, slot: Slot) -> Buffer {
        match slot {
            ROOT => Buffer::Object(target),
            _ => Buffer::Partial { target, slot },
        }
    }
}

/// What was measured of a process's links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// The time from the departure of a byte to its arrival.
    pub latency: Duration,
    /// Payload bytes per second.
    pub rate: u64,
    /// How long a process is busy with each message that it sends or takes in.
    pub message: Duration,
}

/// What a reduce does about a source that dies when a part of it has been summed already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each value sums the same ids: what holds the dead source is summed again, on the path to the destination.
    Whole,
    /// What is summed stays. Ranges of the result sum different ids, and the answer names them.
    Ranges,
}

/// How the shape of a reduce is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The fastest by the model of [`shape`](super::rule), cost per message included.
    Measured,
    /// Hoplite's last repository: a chain, or a binary tree over chains of at most about `size / (rate * latency)`.
    Hybrid,
    /// Hoplite's paper: the best of chain, binary tree and star, without cost per message.
    Degree,
    /// This one, with so many bytes per block: for those that look for a better one.
    Given(Form, u64),
}

/// Whether an operator goes with a kind of elements, by the driver's numbers for both.
pub type Operators = fn(op: u32, kind: u64) -> bool;

/// A reduce that was called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What it makes, at the process that calls.
    pub target: ObjectId,
    /// What may be summed, without repeats.
    pub ids: Arc<[ObjectId]>,
    /// The first so many that appear are summed.
    pub count: u32,
    /// The driver's number for the operator.
    pub op: u32,
    /// The mode of the request: see [`Mode`].
    pub mode: Mode,
    /// The rule of the request: see [`Rule`].
    pub rule: Rule,
    /// What was measured where it is called.
    pub costs: Costs,
}

/// Which ids a result sums: adjoining ranges of bytes that cover it, in order, each with its ids, ascending.
pub type Included = Vec<(Range<u64>, Vec<ObjectId>)>;

/// Why a call has no result.
// The texts name the fields.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Sources that cannot be summed.
    #[error("{one} has {} bytes of kind {}, and {other} has {} of kind {}: give sources of one size and dtype", .formats[0].size, .formats[0].kind, .formats[1].size, .formats[1].kind)]
    Unlike { one: ObjectId, other: ObjectId, formats: [Format; 2] },
    /// More are to be summed than there are.
    #[error("the first {count} of {ids} sources cannot be summed: give a count from 1 to the number of ids")]
    Count { count: u32, ids: u32 },
    /// What does not go with the operator, by the rule that the driver has given.
    #[error("{object} is of kind {}, with which operator {op} does not go", .format.kind)]
    Operator { object: ObjectId, format: Format, op: u32 },
    /// Someone has deleted it.
    #[error("{object} was deleted, or who wrote it gave up; put it again, under a new id")]
    Deleted { object: ObjectId },
    /// Bytes are not where they are to be added.
    #[error("{target} cannot be summed: process {process:016x} does not have all bytes of {object}, which it is to add; put it again, under a new id, and sum that")]
    Missing { target: ObjectId, object: ObjectId, process: Process },
    /// A process cannot hold what it is to add.
    #[error("{target} cannot be summed: process {process:016x} has no room for {bytes} bytes of it; open larger stores, or sum smaller objects")]
    NoRoom { target: ObjectId, process: Process, bytes: u64 },
}
