//! Objects that processes put, get and sum as they appear: the live driver of `tweed_proto::objects`.
//!
//! # Theory of operation
//!
//! A process holds one [`Objects`]. It listens for others and calls them by their descriptors alone, over the links of the
//! `hub` room: sealed, one epoll, no thread each. A process *is* its key, made anew at each start: its id is how that begins.
//! Of two that [`meet`](Objects::meet), whoever came later calls, and says hello when it has a link to all; nobody hears of it
//! before, so nobody is asked for bytes by one to whom there is no link. Of two links of a pair each end sends over the one
//! that stood first, in order.
//!
//! `state` is all that a process knows, under one lock: the planner's member, the bytes (`memory`, `pulls`), the others
//! (`peers`) and who waits (`calls`). Whoever changes something then *drives*: carries out all that the member asks for, and
//! sends the blocks that may leave. So a call acts on the caller's thread. Two threads of its own drive besides: one waits for
//! links and deadlines, one adds (`sums`), as much at a time as the planner's blocks, without the lock.
//!
//! *Bytes.* A buffer has a mark; what is behind it is not written any more, and what is beyond has one writer. A buffer that
//! begins anew gets new memory, so whoever still sends or reads the old one reads what it was. Pulls name an offset, and go on
//! from there elsewhere when their feeder dies. So many blocks of a pull are under way as fit on the way.
//!
//! *Room.* Memory counts until its last holder lets go of it, be it an array of the user. A put waits for room; a copy that
//! was asked for here does, too. What the sums of others need is taken in any case, as they could wait for each other.
//!
//! *Faults.* A link that ends is the end of its process, for all: whoever hears of it by the planner's messages cuts its own
//! link. Hence the one that is cut off learns so.
//!
//! Locks: `state`, then those of the links. What cannot happen: bytes are written that somebody may read; memory for a frame
//! that has not come; a call without a deadline of its own waits without a word for one that has ended.

mod calls;
mod kind;
mod measured;
mod memory;
mod node;
mod peers;
mod pulls;
mod state;
mod sums;

pub use calls::{Ended, Finished};
pub use kind::{dtype_of, list_of, shape_of, Layout};
pub use memory::Memory;
pub use node::{Objects, ObjectsOptions};
