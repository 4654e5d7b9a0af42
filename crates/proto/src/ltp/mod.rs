//! The loss-tolerant transport: messages in UDP packets, of which a bounded share may stay lost.

pub mod close;
pub mod mtu;
pub mod rate;
