//! What threads meet in: locks that are taken in one order, and atomics that a model checker can watch.
//!
//! `mutex` is std's mutex with a rank; `lock_order` holds the ranks and, in debug builds, checks them. `atomic` and `cell`
//! are core's types, and loom's where loom looks at a protocol (`make loom`).

pub(crate) mod atomic;
pub(crate) mod cell;
mod lock_order;
mod mutex;
pub(crate) mod stop;

pub(crate) use lock_order::LockRank;
pub(crate) use mutex::{Condvar, Mutex, MutexGuard};
