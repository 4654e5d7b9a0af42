//! What processes send each other about objects, and what a process's driver is asked to do.

use std::ops::Range;
use std::time::Duration;

use super::{Buffer, Bytes, Failure, Format, Included, Ledger, ObjectId, Process, Request, Slot};

/// A message from one process to another. Each repeats all it is about, so one that is sent again changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A report to the shard of an object.
    Report(Report),
    /// An order from the shard of an object.
    Order(Order),
}

/// How much of an object a process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing; it asks for a copy to pull from.
    Wanted,
    /// The first block or more, from a copy that it pulls from.
    Receiving,
    /// The first block or more, of its own making.
    Writing,
    /// All of it is there.
    Complete,
}

/// What the shard of an object is sent.
// Fields have the names of what they are; see `Holds`, `Assign` and `Pull` for those that recur.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// How the sender stands with the object. A look-up is one that wants it.
    Holds {
        /// The object that it holds.
        object: ObjectId,
        /// How much it has.
        state: State,
        /// Known from the first block on.
        format: Option<Format>,
        /// How often the object has begun anew.
        generation: u32,
        /// Whom it pulls from.
        fed_by: Option<Process>,
        /// How many changes of who takes part it had seen when it first told this shard.
        view: u32,
        /// Bytes per second that its links take, if it has measured that.
        rate: Option<u64>,
        /// All of a small object.
        bytes: Option<Bytes>,
    },
    /// The sender no longer wants the object, or has dropped its copy.
    Forget { object: ObjectId },
    /// Nobody is to have it any more.
    Delete { object: ObjectId },
    /// The shard of `target` asks to hear of each process that has the source `object`.
    Watch { object: ObjectId, target: ObjectId },
    /// The answer to `Watch`, as often as a process has the source.
    Arrived { target: ObjectId, object: ObjectId, format: Format, process: Process, bytes: Option<Bytes> },
    /// The other answer to `Watch`: the source was deleted.
    Gone { target: ObjectId, object: ObjectId },
    /// The sender calls for a reduce; `ledger` is what another shard had planned. A higher attempt replaces a lower one.
    Reduce { request: Request, attempt: u32, ledger: Option<Ledger> },
    /// The sender does not want the reduce any more.
    Withdraw { target: ObjectId },
    /// The destination has kept a ledger: what follows from it may be done.
    Kept { target: ObjectId, attempt: u32, number: u32 },
    /// The holder of a slot gets no more of what one of its feeds sends.
    Broken(Broken),
    /// The holder of a slot has followed orders of a shard before of which this one has not heard: nobody knows what its sum is of.
    Ahead { target: ObjectId, slot: Slot, generation: u32 },
    /// The holder of a slot cannot sum, or the destination has been asked and is not complete.
    Unable { target: ObjectId, why: Failure },
    /// The sender has lost a process.
    Lost { process: Process, object: ObjectId },
}

/// What a process says with [`Report::Broken`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    /// What the reduce makes.
    pub target: ObjectId,
    /// The process that fed it.
    pub process: Process,
    /// Whose sum it was.
    pub slot: Slot,
    /// Which one of it.
    pub generation: u32,
    /// Up to here it has come.
    pub received: u64,
}

/// What the shard of an object sends.
// Fields have the names of what they are; see `Holds`, `Assign` and `Pull` for those that recur.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Pull the object from this copy, from where you are; unless you have told another shard since this `view`.
    Feed { object: ObjectId, format: Format, generation: u32, from: Process, view: u32, block: u64 },
    /// All of a small object.
    Small { object: ObjectId, format: Format, bytes: Bytes },
    /// What is there of the object is void: begin anew.
    Restart { object: ObjectId, generation: u32 },
    /// The object is gone.
    Deleted { object: ObjectId },
    /// Take this slot of a reduce, or change what feeds it.
    Assign(Assign),
    /// What is planned for a reduce whose destination the receiver is; it belongs to whoever is the shard next. Ledgers of a plan are
    /// counted by `number`.
    Ledger { request: Request, attempt: u32, number: u32, ledger: Ledger },
    /// The reduce is over; its sums may go.
    Release { target: ObjectId, attempt: u32 },
    /// A process that feeds the receiver is dead.
    Lost { process: Process, target: ObjectId },
    /// The result is complete at its destination, and sums these; a small one is brought by this.
    Reduced { target: ObjectId, included: Included, small: Option<(Format, Bytes)> },
    /// For that reason no more comes of the reduce: is it complete at its destination, which the receiver is?
    Unable { target: ObjectId, why: Failure },
    /// It cannot be made.
    Failed { target: ObjectId, why: Failure },
}

/// All that the holder of a slot has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assign {
    /// What the reduce makes.
    pub target: ObjectId,
    /// The attempt that it belongs to.
    pub attempt: u32,
    /// Counts the orders to this slot: an older one changes nothing.
    pub version: u32,
    /// The slot that is assigned.
    pub slot: Slot,
    /// Which sum of it; a new one is begun at `from`.
    pub generation: u32,
    /// What the holder adds of its own; the destination adds nothing.
    pub own: Option<ObjectId>,
    /// The size and kind of sources and sums.
    pub format: Format,
    /// The number of bytes per block.
    pub block: u64,
    /// Where the sum begins.
    pub from: u64,
    /// What it sums besides its own, all of whose ranges together say what is still missing.
    pub feeds: Vec<Feed>,
    /// The driver's number for the operator.
    pub op: u32,
}

/// What one child adds to a slot's sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feed {
    /// The slot whose sum it is.
    pub slot: Slot,
    /// Which one of it.
    pub generation: u32,
    /// Its bytes that are added.
    pub range: Range<u64>,
    /// Who has it, and what to ask for; none while nobody has taken the slot.
    pub source: Option<Source>,
}

/// Where a feed is pulled from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The process that has it.
    pub process: Process,
    /// The source that holds the slot.
    pub object: ObjectId,
    /// What to ask for.
    pub buffer: Buffer,
}

/// A pull under way, by a number of the puller's.
pub type Stream = u64;

/// What the driver of a process is to do.
// Fields have the names of what they are; see `Holds`, `Assign` and `Pull` for those that recur.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a message to a process.
    Send { to: Process, message: Message },
    /// Ask a process for bytes of a buffer, and report them by `handle_block` as they come.
    Open { stream: Stream, pull: Pull, sink: Sink },
    /// Bytes of this stream are not wanted any more.
    Close { stream: Stream },
    /// No more bytes of this stream are wanted than are under way: when all of these are here, `handle_stopped` says so.
    Stop { stream: Stream },
    /// After so long call `handle_timeout`; a stream that is over by then is of no matter.
    Timer { stream: Stream, after: Duration },
    /// Sum these bytes, into the buffer of the slot, and report that by `handle_folded`.
    Fold(Fold),
    /// The buffer begins anew: what is there of it is void, and those who read it have to ask again.
    Reset { buffer: Buffer },
    /// Nobody needs the buffer any more.
    Release { buffer: Buffer },
    /// The slot is over, and with it what its streams have brought.
    Over { target: ObjectId, slot: Slot },
    /// A get has its object.
    Got { object: ObjectId },
    /// Sum these small objects, and report that by `handle_small_sum`.
    SumSmall { target: ObjectId, format: Format, op: u32, parts: Vec<Bytes> },
    /// A reduce is complete here.
    Reduced { target: ObjectId, included: Included },
    /// A call has no result.
    Failed { object: ObjectId, why: Failure },
}

/// What the bytes of a stream are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sink {
    /// They are the copy of this object.
    Copy(ObjectId),
    /// They are added for this slot of the reduce that makes the object, and kept until that is over: a repair may need
    /// them again.
    Slot(ObjectId, Slot),
}

/// What a process asks another for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pull {
    /// The process that has it.
    pub from: Process,
    /// The buffer that is pulled.
    pub buffer: Buffer,
    /// How often that has begun anew; another one is of no use.
    pub generation: u32,
    /// The first byte that is wanted.
    pub offset: u64,
    /// The first that is not.
    pub end: u64,
    /// The number of bytes per block.
    pub block: u64,
}

/// Arithmetic: the range of a slot's sum, and what it is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fold {
    /// What the reduce makes.
    pub target: ObjectId,
    /// The slot whose sum it is.
    pub slot: Slot,
    /// Which one of it.
    pub generation: u32,
    /// The bytes that are added up.
    pub range: Range<u64>,
    /// What the holder adds of its own.
    pub own: Option<ObjectId>,
    /// Streams whose bytes are added.
    pub streams: Vec<Stream>,
    /// The driver's number for the operator.
    pub op: u32,
}

impl Fold {
    /// Where the sum goes.
    pub fn sum(&self) -> Buffer {
        Buffer::of_slot(self.target, self.slot)
    }
}
