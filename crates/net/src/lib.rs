//! The engine: sockets, shared memory, threads. The only crate that touches the world.
//!
//! A process has one [`Node`]; ranks that know each other's address cards join to a [`Group`]; a group runs
//! [`Request`]s, each along the schedule that its plan names. The deciding is done by `tweed-proto`.
//!
//! The rooms, from below: `secure` (keys, sealed records), `link` (shared memory and TCP), `ltp` (datagrams), `operation`
//! (one call: its request, schedule and memory), `engine` (the loop, and the threads that drive it), `connect` (how
//! processes come to know each other, and who is let in). `node` and `group` are what callers hold, `leaving` is their end; `ctable` is the same
//! for C.

mod connect;
mod ctable;
mod engine;
mod error;
mod group;
mod leaving;
mod link;
#[doc(hidden)]
pub mod ltp;
mod node;
mod operation;
#[doc(hidden)]
pub mod parsers;
mod secure;
mod stderr;

pub use connect::admission::Admission;
pub use ctable::{Table, TABLE};
pub use error::EngineError;
pub use group::{Group, Tuning};
pub use link::stats::{LinkStats, Packets, Traffic, Wires};
pub use node::{GroupSpec, Node, NodeOptions};
pub use operation::config::{GroupConfig, Ltp};
pub use operation::delivery::{Delivery, Share};
pub use operation::op::Op;
pub use operation::plans::PlanRow;
pub use operation::request::{Operation, Request, Segment};
pub use secure::Secret;
