//! Links of the loss-tolerant transport over a virtual network that loses, reorders, doubles and delays packets,
//! is cut, and whose ends crash and come back.
//!
//! A [`World`] has channels and connections. A connection is a pair of real [`Link`](tweed_proto::ltp::Link)s;
//! several may share a channel, as eight senders into one port do. After each event the world checks what must
//! always hold, and names the seed where it does not: the same seed gives the same run, packet by packet.

mod channel;
mod end;
mod world;

pub use channel::Conditions;
pub use end::{Ending, Message, Ticket};
pub use world::{Defect, World};
