//! A link emulator for the testbed: delays, reorders, duplicates and loses what hosts send to each other.
//!
//! ```text
//!     sender ── tbf ──> its port ──> packet socket ── decides, waits ──> the receiver's port ── tbf ──> receiver
//! ```
//!
//! It takes the place of the hub's bridge. Rates and queues stay with the kernel's token buckets at both ends, so
//! that what arrives from many meets in the receiver's queue, as behind a switch.
//!
//! What decides is pure: [`Links`] says what becomes of a packet and when it is due, [`Queue`] keeps it until then,
//! `path` joins them. `socket` and the loop in `serve` are the only parts that look at the world (docs/decisions/0012).

mod direction;
mod frame;
mod links;
mod path;
mod queue;
mod serve;
mod settings;
mod socket;

pub use direction::Direction;
pub use frame::{target, Target, MAC_PREFIX};
pub use links::{Fate, Links};
pub use queue::Queue;
pub use serve::serve;
pub use settings::{Counts, Directions, Report, Request, Settings};
