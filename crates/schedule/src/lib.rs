//! Collectives as values: the records, the checker that proves them, and their cost.
//!
//! **What a schedule means.** A buffer is cut into `chunks`. A [`Send`] moves the value of one chunk
//! from `src` to `dst`. Sends carry a `step`, and steps are read *as if* everybody moved in lockstep:
//! a send of step `t` carries the value its source held before step `t` began, and all that arrives in
//! step `t` takes effect together when the step ends. So, for the value of `(dst, chunk)`:
//!
//! * reductions that arrive in one step are summed **in rank order, the destination's own value taking
//!   its place as rank `dst`**; the order of summation is therefore part of the schedule and does not
//!   depend on timing;
//! * a copy replaces the value, and is the only arrival of that chunk at that rank in its step.
//!
//! Nobody waits for a step to end when it runs: the executor (`tweed-proto`) derives from the steps what
//! each send really waits for; [`Waits`] is that derivation.
//!
//! **What it promises.** Each chunk starts at some ranks ([`Schedule::origin`]) and must end at some
//! ranks ([`Schedule::destination`]) holding exactly one contribution of every rank it started at.
//! That one rule covers all eight collectives. [`Schedule::new`] proves the rule, and so does
//! [`Schedule::of_contributors`] for a sum of some; there is no other way to make a schedule.

/// Builders that are too heavy for Python.
mod builders {
    pub(crate) mod multitree;
    pub(crate) mod time_expanded;
}
mod check;
mod collective;
mod cost;
mod cycle;
mod digest;
mod error;
mod record;
mod rotate;
mod topology;
mod trees;
mod waits;

pub use builders::multitree::MultiTree;
pub use builders::time_expanded::{Spread, TimeExpanded};
pub use collective::{Collective, Ranks};
pub use cost::Cost;
pub use error::{Hop, ScheduleError};
pub use thin_vec::ThinVec;

pub use record::{Draft, Rank, Schedule, Send};
pub use topology::{Grid, Link, Topology, Traits};
pub use trees::{Edge, Tree, Trees};
pub use waits::{Arrival, Waits};
