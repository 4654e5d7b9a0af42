//! Whole engines under a scheduler that decides every interleaving.
//!
//! [`run`] draws from a seed some processes, groups, calls of several threads, and faults; then it runs the engine of
//! `tweed-proto` for each process, together with the threads that drive it, step by step: which thread of which process
//! goes on next, what a `write` takes, when time passes. Arithmetic takes two steps, so others act between reading and
//! writing. In every run is checked: values are right, or an error names who; nobody sleeps past a deadline; callers come
//! to their end; what an operation, a group or a lost peer held is given back; early messages take bounded memory.
//!
//! The same seed gives the same run.

mod callers;
mod checks;
mod driving;
mod host;
mod join;
mod kernel;
mod link;
mod locks;
mod process;
mod scenario;
mod thread;
mod watching;
mod world;

pub use scenario::{Fault, Sabotage};
pub use world::Report;

/// What a seed stands for, for people.
pub fn describe(seed: u64) -> String {
    format!("{:#?}", world::draw(seed))
}

/// Runs the scenario of a seed, with an old fault put back if one is named.
///
/// # Errors
/// What was wrong, in words.
///
/// # Cost
/// About a millisecond.
pub fn run(seed: u64, sabotage: Option<Sabotage>) -> Result<Report, String> {
    world::World::new(seed, sabotage).run()
}
