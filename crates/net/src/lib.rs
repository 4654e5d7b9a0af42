//! The engine: sockets, shared memory, threads. The only crate that touches the world.
//!
//! A process has one [`Node`]; ranks that know each other's address cards join to a [`Group`]; a group runs
//! [`Request`]s, each along the schedule that its plan names. The deciding is done by `tweed-proto`.
//!
//! The way of a call: `group` and `plans` (which schedule) -> `engine` (the loop) -> `running` (memory, arithmetic) ->
//! `links` (to whom) -> `ring` and `bell` in shared memory, or `stream` over a wire. `watch` and `reader` bring
//! in what comes over sockets, `stats` counts it, `greet` and `meet` introduce processes to each other, `drive` says who runs the loop.

mod arena;
mod bell;
mod card;
mod ctable;
mod drive;
mod engine;
mod error;
mod futex;
mod greet;
mod group;
mod links;
mod meet;
mod message;
mod node;
mod op;
mod p2p;
mod plans;
mod reader;
mod request;
mod ring;
mod running;
mod silence;
mod stats;
mod stream;
mod watch;
mod whereabouts;

pub use ctable::{Table, TABLE};
pub use error::EngineError;
pub use group::{Group, Tuning};
pub use node::{GroupSpec, Node, NodeOptions};
pub use op::Op;
pub use plans::PlanRow;
pub use request::{Operation, Request, Segment};
pub use stats::{LinkStats, Traffic, Wires};
