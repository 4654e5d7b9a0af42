//! The engine: sockets, shared memory, threads. The only crate that touches the world.
//!
//! A process has one [`Node`]; ranks that know each other's descriptors join to a [`Group`]; a group runs
//! [`Request`]s, each along the schedule that its plan names. The deciding is done by `tweed-proto`.
//!
//! The rooms, from below: `sync` (locks in one order, atomics), `secure` (keys, sealed records), `link` (shared memory and
//! TCP), `ltp` (datagrams), `operation` (one call: its request, schedule and memory), `engine` (the loop, and the threads
//! that drive it), `connect` (how processes come to know each other, and who is let in). `node` and `group` are what
//! callers hold, `leaving` is their end; `ctable` is the same for C.

mod connect;
mod ctable;
mod engine;
mod framing;
mod group;
mod leaving;
mod link;
#[doc(hidden)]
pub mod ltp;
mod node;
mod operation;
#[doc(hidden)]
pub mod parsers;
mod process;
mod secure;
mod stderr;
mod sync;

pub use connect::admission::Admission;
pub use connect::options::{GroupSpec, NodeOptions};
pub use ctable::{Table, TABLE};
pub use group::Group;
pub use link::stats::{LinkStats, Packets, Wires};
pub use node::Node;
pub use operation::op::Op;
pub use operation::plans::PlanRow;
pub use secure::Secret;
pub use tweed_proto::engine::config::{GroupConfig, Ltp};
pub use tweed_proto::engine::delivery::{Delivery, Share};
pub use tweed_proto::engine::members::Tuning;
pub use tweed_proto::engine::metrics::Traffic;
pub use tweed_proto::engine::request::{Operation, Request, Segment};
pub use tweed_proto::engine::EngineError;
