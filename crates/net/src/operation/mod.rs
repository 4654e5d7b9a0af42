//! One operation: what was asked for, its schedule, its memory, and how it ended.

pub(crate) mod active;
pub(crate) mod config;
pub(crate) mod delivery;
pub(crate) mod op;
pub(crate) mod p2p;
pub(crate) mod plans;
pub(crate) mod request;
