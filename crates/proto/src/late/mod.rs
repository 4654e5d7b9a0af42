//! What is late, and who is to blame. No clock and no socket: times are arguments, answers are values.
//!
//! [`History`] knows how long operations usually take; [`Limits`] derives every internal timeout from the one
//! deadline of the user and from that; a [`Vigil`] says when to ask the other ranks, when to warn and when to give
//! up; [`Blame`] follows what they answered to the rank or link at the root of it; [`Scene`] puts it into words.

mod blame;
mod history;
mod limits;
mod vigil;
mod words;

pub use blame::{Activity, Blame, Call, Culprit, Reason, Report, Stand};
pub use history::{History, Kind, Usual};
pub use limits::Limits;
pub use vigil::{Step, Vigil};
pub use words::{Process, Scene, Seat};
