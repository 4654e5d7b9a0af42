//! State machines without sockets, clocks or threads.
//!
//! Here lives the [`Executor`]: it runs one rank's part of one collective. What happened goes in through
//! `handle_*`, what to do comes out of [`Executor::poll`]; the caller moves the bytes. The live engine
//! (`tweed-net`) and the simulator (`tweed-sim`) drive the very same code.
//!
//! In [`members`] is who is a member, agreed by the members; in [`relay`] who carries what two cannot send each other. In [`hub`] is who may have a link to a hub, and what crosses it. In [`late`] is what follows from the deadline: timeouts, and whom to blame when one fires.
//!
//! The way in: a [`Schedule`](tweed_schedule::Schedule) is compiled to a [`Program`] for one rank; a
//! [`Layout`] says how long the chunks are and into which slices they are cut; both make an `Executor`.

pub mod engine;
mod executor;
pub mod hub;
pub mod late;
mod layout;
pub mod ltp;
pub mod members;
pub mod objects;
mod program;
pub mod relay;
mod spans;
mod trace;

pub use executor::{Action, Arrival, Combine, Executor, Notice, Ready, Signal};
pub use layout::{Layout, Reach};
pub use program::{sums_directly, Input, Output, Program, Wait};
pub use spans::{spans, Span};
pub use trace::{Entry, Event, Recorder, Trace, TraceError};
