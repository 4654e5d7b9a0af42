//! What threads meet in: locks that are taken in one order, atomics that a model checker can watch, waits that can be
//! ended.
//!
//! # Theory of operation
//!
//! Every lock of the crate is a [`Mutex`] of this room (`clippy.toml` forbids std's), and each has a [`LockRank`]. A
//! thread that holds locks may wait only for one of higher rank than all of them. So of all threads that wait for locks,
//! the one that waits for the highest waits for a thread that waits for none: no circle of threads can wait for each
//! other.
//!
//! Debug builds keep, for each thread, the list of ranks that it holds, and ask it at each `lock` and each
//! `Condvar::wait`, whether another thread is near or not. A wrong order panics with both names at the first run that
//! takes it, not at the one in a million that hangs. `try_lock` waits for nobody and is not asked, but what it has taken
//! counts as held. Two locks of one rank are never held together. Release builds keep no list, and a lock is as large and
//! as fast as std's.
//!
//! A thread that panics poisons nothing: what it guarded is taken as it is, so that the others can still leave in good
//! order.
//!
//! Outside the order are: `secure::record::Keys`, a read-write lock that is taken last, under `SealedIncoming` or
//! `SealedOutgoing`, while nothing else is; Python's GIL, which no thread may wait for while it holds one of these locks,
//! but for `Joining`; and sleeping on a futex (`link::wakeup`, `Op`), with no lock held but for `Seat`. `Joining` and
//! `Seat` may be held for long because they are only ever tried, and never waited for.
//!
//! `atomic` and `cell` are core's types, and loom's where loom looks at a protocol (`make loom`). `sanitizer` tells
//! the thread sanitizer of locks (`make sanitize`). `stop` ends waits from
//! outside: whoever waits for a socket or a pause does so in slices of [`stop::SLICE`], and looks.

pub(crate) mod atomic;
pub(crate) mod cell;
mod lock_order;
mod mutex;
mod sanitizer;
pub(crate) mod stop;

pub(crate) use lock_order::LockRank;
pub(crate) use mutex::{Condvar, Mutex, MutexGuard};
