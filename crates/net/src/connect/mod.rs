//! How processes come to know each other, and who is let in.
//!
//! `connector` is what its threads share, and `options` what users state. A `descriptor` says who and where a process is;
//! `agreement` is what those of a group must have in common. `discovery` joins a group by a `meeting` (`missing` has its words), which calls by
//! `local_handshake` or `tcp_handshake` (with `proof`s, after pauses of `backoff`), or where neither can call by a third
//! process (`relayed`), while `admission` lets callers in.
//! The directory of `tweed_proto` knows whom this process has met, and `invite` makes packets possible.
//!
//! # Theory of operation
//!
//! Each process opens a local socket and, unless it only dials out, binds a port. Its descriptor names both, and goes
//! through the launcher's store. A group is joined by one thread at a time (`joining`):
//!
//! 1. all descriptors are read, and must agree. All ranks hold the same ones, so all refuse alike;
//! 2. links that some descriptor says are broken are given up;
//! 3. of each pair without a link, exactly one calls (`Connector::calls`), and the other one once that has failed
//!    (`meeting`), or both call a third process; calls are numbered by `attempt`. Who calls proves by the nonce,
//!    or by the secret and its key, that it belongs to the run, and so does the called one;
//! 4. a neighbour that has called becomes a peer at once. A TCP caller is *pending* until a group names it, for its
//!    streams are several and its descriptor may come later;
//! 5. `add_peer` gives the peer a number, enters it in the directory, and hands its streams to the watcher;
//! 6. with `transport="ltp"`, members that are far invite each other to their sockets for packets.
//!
//! Each caller has a thread of its own, as introductions block. The two listeners bound how many come at a time, over
//! wires and from this host. All waits for another process are within a deadline, and those of a meeting end
//! within a slice by `Stop`; those of the listeners' callers, when their sockets are shut down.
//!
//! Locks: `joining`, over all of this; `pending`, then `failed`; `pending`, then the engine or the `directory`; the
//! engine, then the `directory`. A crowd's `state` and `refusals`, with nothing under them. While `interrupted` is
//! asked, which may run code of the caller's, none is held but `joining`. `met` is notified after `pending` was taken, so
//! no change is missed.
//!
//! What cannot happen: memory or values go to a process that has not proven to belong to the run; two links to one
//! process are both in use, or the two ends hold different ones for good (a greater `attempt` wins at both); a process
//! that has ended, or that does not speak, holds up the others beyond the deadline; a caller takes memory for what it
//! only claims.

pub(crate) mod admission;
mod agreement;
pub(crate) mod backoff;
pub(crate) mod connector;
pub(crate) mod descriptor;
mod discovery;
mod invite;
pub(crate) mod local_handshake;
mod meeting;
mod missing;
pub(crate) mod options;
mod proof;
mod relayed;
mod same_host;
pub(crate) mod same_user;
mod tcp_handshake;
