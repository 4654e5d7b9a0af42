//! The live half of the engine: `tweed_proto::engine` decides, this process does.
//!
//! `live` is what the engine needs of its process, `driving` the turns that threads take at driving it, `callbacks` the
//! workers that lead and run what users have asked to be called, `watcher` the thread that reads sockets.
//!
//! Locks, in the order in which they may be taken: `joining`, the seat, the engine, then one of inbox, endpoints, stream
//! queue, arena. The workers' lock stands alone. Callers are told, lines printed and callbacks run with none of them held.

pub(crate) mod callbacks;
pub(crate) mod driver;
mod driving;
mod event_sink;
pub(crate) mod live;
pub(crate) mod peer_status;
pub(crate) mod watcher;
