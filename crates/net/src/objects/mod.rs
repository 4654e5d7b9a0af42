//! Objects that processes put, get and sum as they appear: the live driver of `tweed_proto::objects`.
//!
//! # Theory of operation
//!
//! A process holds one [`Objects`]. It listens for others and calls them by their descriptors alone, over the links of the
//! `hub` room: sealed, one epoll, no thread each. A process *is* its key, made anew at each start: its id is how that begins.
//! Of two that [`meet`](Objects::meet), whoever came later calls, and says hello when it has a link to all; nobody hears of it
//! before, so nobody is asked for bytes by one to whom there was never a link. What a process sends another goes through a
//! channel of the planner's (`peers`), which keeps it until it is taken: links may break.
//!
//! `state` is all that a process knows, under one lock: the planner's member, the bytes (`memory`, `pulls`), the others
//! (`peers`) and who waits (`calls`). Whoever changes something then *drives*: carries out all that the member asks for, and
//! sends the blocks that may leave. So a call acts on the caller's thread. Two threads of its own drive besides: one waits for
//! links and deadlines, one adds (`sums`), as much at a time as the planner's blocks, without the lock.
//!
//! *Bytes.* A buffer has a mark; what is behind it is not written any more, and what is beyond has one writer. A buffer that
//! begins anew gets new memory, so whoever still sends or reads the old one reads what it was. Neighbours (processes of one
//! host, network and user) map what one of them has (`file`), and are told how far it may be read; all others get blocks, and
//! so does a neighbour where that cannot be. A process is its own neighbour, without a file. Pulls name an offset, and go on
//! from there elsewhere when their feeder dies. When only the link breaks, they go on over the next one, from the first block
//! that did not come whole. So many blocks of a pull are under way as fit on the way.
//!
//! *Room.* Memory counts until its last holder lets go of it, be it an array of the user. What is mapped counts at its maker
//! and at each that maps it, as copies would: the last of them frees it, whoever that is. A put waits for room; a copy that was
//! asked for here does, too. What the sums of others need is taken in any case, as they could wait for each other.
//!
//! *Faults.* When the last link to a process has ended, both call anew (`dialing`). One whose port is closed has ended; one that
//! cannot be reached until the deadline counts as lost, too. Half of the deadline a link may be silent, and half of it is there
//! for calls. Who is lost is so for all: whoever hears of it by the planner's messages ends its own link, with a word, so that the one
//! cut off calls nobody.
//!
//! Locks: `state`, then those of the links. What cannot happen: bytes are written that somebody may read; memory for a frame
//! that has not come; a call without a deadline of its own waits without a word for one that has ended.

mod calls;
mod dialing;
mod file;
mod kind;
mod measured;
mod meeting;
mod memory;
mod node;
mod peers;
mod pulls;
mod state;
mod sums;
#[cfg(test)]
mod tests;

pub use calls::{Ended, Finished};
pub use kind::{dtype_of, list_of, shape_of, Layout};
pub use memory::Memory;
pub use node::{Objects, ObjectsOptions};
