//! The live half of the engine: `tweed_proto::engine` decides, this process does.
//!
//! `driver` is what its threads share (and what those of sockets for packets have of it, an `EventSink`), `live` what the engine needs of its process, `driving` the turns that threads take
//! at driving it, `callbacks` the workers that lead and run what users have asked to be called, `watcher` the thread that
//! reads sockets, `peer_status` how a late rank's process is looked at.
//!
//! # Theory of operation
//!
//! All state of the engine is behind one lock, `engine`, and whoever drives holds it. Who wants something done leaves an
//! event in `inbox`, which needs no more than that lock, and rings. These threads come to drive:
//!
//! - a caller that waits, if it gets the `seat`: the *waiter*. Others park on their own operation;
//! - the *leader*, one of the workers, when there is no waiter. With callbacks to run it gives up the lead to another
//!   worker, rested or new, and runs one: so a callback may wait for anything;
//! - the watcher, when a socket is ready; and a caller that starts something small while the engine is free.
//!
//! Each goes the same way: lock, `Engine::step` until nothing is left, note until when it will sleep, unlock; then tell
//! the callers of what has ended, print, hand on callbacks, sleep. `tweed_proto::engine::driving` says who is woken and
//! why no wake-up gets lost.
//!
//! A peer is *linked* when `connect` has added it: its number is its place in `Engine::peers` and `Live::links`, and is
//! never used again. It is *lost* by an event, from the watcher (a socket or the process has ended), from packets that
//! make no sense, or from `connect`: a later link to the same process, or the word of the other end that it has lost the
//! link. The engine then closes its streams and unmaps its memory once nobody points there.
//!
//! The watcher owns all it watches. Others give it work by `WatcherHandle` and wake it. When a stream or a process ends,
//! it reads what lies in other streams before it reports the loss: the reason may lie there.
//!
//! Locks: `seat`, then `engine`, then what the methods of [`Live`](live::Live) take, which run under it: `endpoints`,
//! `offers` and what is inside of sockets for packets, `inbox`, `added`, stream queues, the withdrawn ranges, the buffer
//! pool, the arena. `workers` and `threads` of the callbacks each alone, or under the seat. The order of all is in
//! `sync::lock_order`.
//!
//! What cannot happen: a callback, a line on stderr or a caller's wake-up under the engine's lock (but for the line of a
//! process that is about to abort, which waits for no reader); two that put into one shared queue; a deadline that passes
//! while all sleep.

pub(crate) mod callbacks;
pub(crate) mod driver;
mod driving;
pub(crate) mod live;
pub(crate) mod peer_status;
pub(crate) mod watcher;
