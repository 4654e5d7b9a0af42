//! Objects that processes put, get and sum, along collectives that form as objects appear (after Hoplite: Zhuang et al. 2021).
//!
//! [`Member`] is one process: its driver reports what happened and does what it is asked to. Inside are its share of the
//! *directory*, which knows where copies are; the *broadcast* of an object, driven by its receivers; the plans of each
//! *reduce*, a tree that is filled in the order in which sources appear; and the slots of such trees that this process has.
//! [`choose`] picks the tree. A plan's [`Log`] is a schedule that says which contributors it sums, and that the
//! checker proves afterwards.
//!
//! What a process sends another goes through a [`Channel`], which outlives the links that it goes over.
//!
//! No clock, no bytes and no arithmetic are here: the driver moves and adds them.

mod channel;
mod deleted;
mod directory;
mod feeders;
mod included;
mod ledger;
mod log;
mod member;
mod message;
mod reduce;
mod role;
mod rule;
mod shape;
mod shards;
mod small;
mod spare;
mod types;
mod window;
mod wire;

pub use channel::{Channel, Mark, OutOfOrder};
pub use included::History;
pub use ledger::{Holder, Ledger, Place};
pub use log::{Log, LogError};
pub use member::Member;
pub use message::{
    Action, Assign, Broken, Feed, Fold, Message, Order, Pull, Report, Sink, Source, State, Stream,
};
pub use rule::{blocks, broadcast_block, choose, degree, forms, hybrid, model};
pub use shape::{Form, Shape};
pub use shards::shard_of;
pub use spare::Spare;
pub use types::{
    Buffer, Bytes, Costs, Failure, Format, Included, Mode, ObjectId, Operators, Process, Request, Rule, Slot,
    ROOT, SMALL_BYTES,
};
pub use window::{lag, untold, window};
pub use wire::{FileId, Frame, Garbled};
