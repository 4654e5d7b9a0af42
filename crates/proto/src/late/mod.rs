//! What is late, and who is to blame. No clock and no socket: times are arguments, answers are values.
//!
//! [`History`] knows how long operations usually take; [`Limits`] derives every internal timeout from the one
//! deadline of the user and from that; a [`Watchdog`] says when to ask the other ranks, when to warn and when to give
//! up; [`Blame`] follows what they answered to the rank or link at the root of it; [`Context`] puts it into words.

mod blame;
mod format;
mod history;
mod limits;
mod watchdog;

pub use blame::{Activity, Blame, Call, Culprit, Reason, Report, Standing};
pub use format::{Context, Process, RankStatus};
pub use history::{History, Kind, Usual};
pub use limits::Limits;
pub use watchdog::{Step, Watchdog};
