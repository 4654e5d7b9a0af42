//! The loss-tolerant transport: messages in UDP packets, of which a bounded share may stay lost.
//!
//! A [`Link`] is one peer, both directions. It holds the state and decides; its caller has the socket, the clock,
//! the keys and the messages' memory. The wire format and what every packet does to a message: `docs/protocol.md`.

pub mod close;
pub mod frame;
mod inbox;
mod incoming;
mod link;
pub mod mtu;
mod open_limit;
mod outbox;
mod outgoing;
pub mod packet;
pub mod ranges;
pub mod rate;
pub mod repair;
pub mod replay;
mod seen;
mod sent;

pub use close::Closing;
pub use frame::TAG_BYTES;
pub use link::{Event, Link, LinkMetrics, MessageId, Place, Settings, Transmit};
pub use outgoing::Outgoing;
pub use packet::{BadPacket, Header, Kind};
