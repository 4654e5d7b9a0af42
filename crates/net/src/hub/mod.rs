//! Links between a hub and its members: processes that share no group, and come, go and return when they like.
//!
//! `links` is what callers hold: sockets, and whoever waits for them. `introduction` is how the two sides come to know each
//! other, and `stream` a link that stands. What is decided is in `tweed_proto::hub`: who is let in, and how messages lie in
//! the stream.
//!
//! # Theory of operation
//!
//! Both sides hold a [`HubLinks`]; a hub listens, a member calls. Every link is sealed, also on loopback, where the secret
//! may be one that all know: a member *is* its key, and a hub is known by the key that members were given (a shared secret
//! admits, but whoever has it could pose as the hub).
//!
//! 1. A caller is heard out on a thread of the listener (`connect::admission`): preamble, handshake. It has then proven its
//!    key. The roster says whether it may come in; if so it is told, and its link stands from then on.
//! 2. A link has one socket that does not block, and no thread. Whoever calls `next` drives all of them: it waits for the
//!    kernel to name those where something can be done, and no event costs more with more members.
//! 3. `send` enters a message and writes as much as the kernel takes; `next` writes the rest. What was only entered leaves
//!    with the next message over its link, or when `next` is called.
//!
//! A link ends when its other end hangs up, says what is no message, announces a longer one than is allowed, does not read
//! what it is told, is silent for too long (the kernel's timeouts), is expelled, or has called anew. Whoever drives hears
//! of it once, as [`Event::Left`].
//!
//! Locks: `poll` while somebody waits, and the `state` of all links, never held while anybody waits; `listening` to begin
//! and end. The state is taken under the poll, never the other way.
//!
//! What cannot happen: two links of one key; a message of a link before its `Joined`, or after its `Left`; buffers for a
//! link on which nothing is under way; one link's bytes keep all others waiting (each is read for so long, then the next).

mod introduction;
mod links;
mod stream;

pub use introduction::HubOptions;
pub use links::{Admitted, Event, HubLinks};
