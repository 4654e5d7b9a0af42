//! One operation as its caller holds it, its schedule, and the arithmetic that the engine asks for.
//!
//! # Theory of operation
//!
//! An [`Op`](op::Op) is *pending*, then *ended*, once and for good. The caller makes it; the thread that drove the engine
//! when it ended calls `end`, after it has let go of the engine. `end` stores the result, then, under `callback`, marks
//! the end and takes what the user has asked to be called, and then wakes who sleeps on it. It returns the callback, for
//! a worker to run. `on_end` looks at the mark under the same lock: it leaves its callback before the end, or runs it
//! itself after. So each is called exactly once, and with no lock held.
//!
//! A group's [`Plans`](plans::Plans) name the schedule of each call by its kind and size, and keep what was compiled for
//! this rank. All ranks look up the same rows, so they find the same schedule without a word. `Group::adopt` replaces the
//! rows, between the same two calls at all ranks.
//!
//! `compute` has no state: it folds, copies or averages what a job names, on whichever thread drives. The engine answers
//! for the memory.
//!
//! Locks: `callback` and `plans`; nothing is taken under them.
//!
//! What cannot happen: an operation ends twice, or a sleeper sleeps through its end (`op_model`, under loom);
//! inputs that were copied beforehand go away while the engine reads them, as the operation owns them.

pub(crate) mod compute;
pub(crate) mod op;
pub(crate) mod plans;
