//! How processes come to know each other, and who is let in.

pub(crate) mod admission;
pub(crate) mod agreement;
pub(crate) mod descriptor;
pub(crate) mod discovery;
pub(crate) mod local_handshake;
pub(crate) mod meeting;
pub(crate) mod peer_status;
pub(crate) mod process;
pub(crate) mod proof;
pub(crate) mod stop;
pub(crate) mod tcp_handshake;
