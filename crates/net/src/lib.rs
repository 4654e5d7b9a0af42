//! The engine: sockets, shared memory, threads. The only crate that touches the world.
//!
//! A process has one [`Node`]; ranks that know each other's address cards join to a [`Group`]; a group runs
//! [`Request`]s, each along the schedule that its plan names. The deciding is done by `tweed-proto`.
//!
//! The way of a call: `group` and `plans` (which schedule) -> `engine` (the loop) -> `running` (memory, arithmetic) ->
//! `links` (to whom) -> `ring` and `bell` in shared memory, or `stream` over a wire. `watch` and `reader` bring
//! in what comes over sockets, `stats` counts it, `drive` says who runs the loop. With LTP, values go in packets:
//! `datagram` is the driver of their sockets, `lines` opens these and invites peers.
//!
//! How processes come to know each other: `cards` says who they are, `greet` walks through them, `meet` introduces
//! neighbours and `wire` the others, `doors` keeps strangers out, `secure` seals links.

mod arena;
mod bell;
mod card;
mod cards;
mod ctable;
#[doc(hidden)]
pub mod datagram;
mod delivery;
mod doors;
mod drive;
mod engine;
mod error;
mod futex;
mod greet;
mod group;
mod lines;
mod links;
mod meet;
mod message;
mod node;
mod op;
mod p2p;
#[doc(hidden)]
pub mod parsers;
mod plans;
mod reader;
mod request;
mod ring;
mod running;
mod secure;
mod silence;
mod sockopt;
mod spare;
mod stats;
mod stream;
mod terms;
mod watch;
mod whereabouts;
mod wire;

pub use ctable::{Table, TABLE};
pub use delivery::{Delivery, Share};
pub use doors::Doors;
pub use error::EngineError;
pub use group::{Group, Tuning};
pub use node::{GroupSpec, Node, NodeOptions};
pub use op::Op;
pub use plans::PlanRow;
pub use request::{Operation, Request, Segment};
pub use secure::Secret;
pub use stats::{LinkStats, Packets, Traffic, Wires};
pub use terms::{Ltp, Terms};
