//! The engine: sockets, shared memory, threads. The only crate that touches the world.
//!
//! A process has one [`Node`]; ranks that know each other's descriptors join to a [`Group`]; a group runs [`Request`]s,
//! each along the schedule that its plan names. The deciding is done by `tweed-proto`.
//!
//! The rooms, from below; each uses only those before it (`tests/test_house.py` has the table):
//!
//! - `system_error`: what the kernel refuses, in words;
//! - `sync` (locks in one order, atomics, waits that end), `stderr`, `process` (what the kernel tells of one), `framing`
//!   (what is said before both ends know each other);
//! - `secure`: keys, the handshake, sealed records;
//! - `link`: shared memory, and streams over sockets;
//! - `ltp`: packets, `operation`: one call as its caller holds it, its schedule and arithmetic, and `relay`: this process
//!   between two others;
//! - `engine`: the loop, and the threads that drive it;
//! - `connect`: how processes come to know each other, and who is let in;
//! - `hub`: links between a hub and its members, who are no ranks and come when they like;
//! - `objects`: what processes put, get and sum as it appears, over such links between all of them;
//! - `group` and `node`, which callers hold; `leaving`, their end; `ctable`, the same for C; `parsers`, for tests alone.
//!
//! Each room begins with its theory of operation. `sync::lock_order` has the order of all locks.

mod connect;
mod ctable;
mod engine;
mod framing;
mod group;
mod hub;
mod leaving;
mod link;
#[doc(hidden)]
pub mod ltp;
mod node;
mod objects;
mod operation;
#[doc(hidden)]
pub mod parsers;
mod process;
mod relay;
mod secure;
mod stderr;
mod sync;
mod system_error;

pub use connect::admission::Admission;
pub use connect::options::{GroupSpec, NodeOptions, Turn};
pub use connect::same_user::check_listener;
pub use ctable::{Table, TABLE};
pub use group::Group;
pub use hub::{Admitted, Event, HubLinks, HubOptions};
pub use link::ports::Ports;
pub use link::stats::{LinkStats, Packets, Wires};
pub use node::Node;
pub use objects::{dtype_of, list_of, shape_of, Ended, Finished, Layout, Memory, Objects, ObjectsOptions};
pub use operation::op::Op;
pub use operation::plans::PlanRow;
pub use secure::{from_hex, hex, Secret};
pub use tweed_proto::engine::config::{GroupConfig, Ltp};
pub use tweed_proto::engine::delivery::{Delivery, Share};
pub use tweed_proto::engine::members::Tuning;
pub use tweed_proto::engine::metrics::Traffic;
pub use tweed_proto::engine::request::{Operation, Request, Segment};
pub use tweed_proto::engine::{EngineError, GroupNumber, MOST_AHEAD_BYTES};
pub use tweed_proto::hub::{Body, Key, MOST_QUEUED};
pub use tweed_proto::objects::{Costs, Included, Mode, ObjectId, Rule};
