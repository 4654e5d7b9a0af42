//! How processes come to know each other, and who is let in.

pub(crate) mod admission;
mod agreement;
mod backoff;
pub(crate) mod connector;
pub(crate) mod descriptor;
mod directory;
mod discovery;
mod invite;
pub(crate) mod local_handshake;
mod meeting;
pub(crate) mod options;
mod proof;
mod tcp_handshake;
