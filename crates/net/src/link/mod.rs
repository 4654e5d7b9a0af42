//! Links to peers: shared memory within a host, sockets to all.
//!
//! # Theory of operation
//!
//! **Memory.** A process has one `Arena` (`shared_memory`, `blocks`): a file without a name that only grows, mapped once,
//! so that nothing in it moves. A block is *free*, *taken* (by the engine), or *lent* (to a user). Neighbours map it and
//! hold offsets. In it lie a `ProcessPage` for all of them, with the word by which they wake this process (`wakeup`,
//! `futex`) and the table of `lease`s, and for each a `PeerArea`: a queue of messages (`shm_queue`) into which the
//! neighbour alone puts and from which this process alone takes, and the neighbour's claim. What a stopped neighbour may
//! still write to is `withdrawn`: private pages take its place, and the block is given to nobody else. A fork of the
//! process gets a copy of what is lent, and nothing else (`fork`).
//!
//! **Sockets.** A `Stream` is a connected socket and the frames that have not left. A frame is *queued*, then *begun*
//! once the kernel has taken some of it, then it has *left*, and its ticket says that the caller's memory is read no
//! more. An operation that ends early *detaches* its frames: one that has not begun is dropped, one that has goes on from
//! a copy. A `reader` puts together what comes in; the watcher's thread alone has it. A stream ends by `shut_down`, from
//! this side or the other; only the watcher reports that, and it frees nothing: the descriptor is closed when nobody
//! holds the `Stream`.
//!
//! Locks: a stream's `queue`, then, in the kernel's place, `Sealed`'s; `withdrawn`; the `buffer_pool`; the arena's
//! `blocks`; the registry of `fork`, which goes last since a user may fork at any time: it is held from before a fork
//! until after it. The engine's lock makes this process the only one to put and to take, and is held by the caller. What
//! both sides of shared memory change at once is atomic, and no process locks another out there: one that is stopped or
//! killed holds up nobody.
//!
//! What cannot happen: a message is put and its reader sleeps on (`wakeup_model`, under loom); memory that was mapped
//! becomes shorter; an offset or length of a peer leads outside of a mapping; a child closes a connection of its parent,
//! or keeps one open that was registered.

mod blocks;
pub(crate) mod buffer_pool;
pub(crate) mod fork;
pub(crate) mod futex;
pub(crate) mod lease;
pub(crate) mod ports;
pub(crate) mod reader;
pub(crate) mod shared_memory;
pub(crate) mod shm_queue;
pub(crate) mod sockopt;
pub(crate) mod stats;
pub(crate) mod stream;
pub(crate) mod tcp_timeouts;
pub(crate) mod wakeup;
pub(crate) mod withdrawn;
