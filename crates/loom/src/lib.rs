//! The protocols by which threads and processes of `crates/net` wake each other, in all interleavings: `make loom`.
//!
//! The files are net's own, taken in by their path, with a kernel of loom's beside them (`futex_model`, `event_model`). What
//! they meet in is core's atomics there and loom's here. Building all of net for loom would take minutes and look at no more.
//! Each protocol has its tests beside it, in `*_model.rs`.
#![cfg(loom)]
// Only a part of each file is used here, and the files are of a crate that may look at the clock.
#![allow(dead_code, unreachable_pub, clippy::disallowed_methods)]

#[path = "../../net/src/sync/mod.rs"]
mod sync;

#[path = "../../net/src/link"]
mod link {
    #[path = "futex_model.rs"]
    pub(crate) mod futex;
    pub(crate) mod shm_queue;
    pub(crate) mod wakeup;
}

#[path = "../../net/src/ltp"]
mod ltp {
    #[path = "event_model.rs"]
    mod event;
    mod wait;
}

#[path = "../../net/src/operation"]
mod operation {
    pub(crate) mod op;
}

/// Runs all interleavings with at most three preemptions (or `LOOM_MAX_PREEMPTIONS`).
#[cfg(test)]
fn model(run: impl Fn() + Sync + Send + 'static) {
    bounded(3, run);
}

/// As [`model`], with fewer: for four threads, of which three take minutes. Almost all faults of such protocols need no
/// more than two.
#[cfg(test)]
fn bounded(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(run);
}
