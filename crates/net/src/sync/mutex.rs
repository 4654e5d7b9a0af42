//! std's mutex and condition variable, with a place in the order of locks.
//!
//! These two are the only locks of the crate: `clippy.toml` forbids std's elsewhere.
//! A poisoned lock means that a thread panicked; what it guards is still whole enough to shut down, so it is taken all
//! the same.
#![allow(clippy::disallowed_types, reason = "these are what the others are to use")]

use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

use super::lock_order::{Held, LockRank, Order};
use super::sanitizer::Told;

/// A lock that knows which others may be held when it is taken.
pub(crate) struct Mutex<T> {
    order: Order,
    inner: std::sync::Mutex<T>,
}

/// The lock is held until this is dropped.
pub(crate) struct MutexGuard<'a, T> {
    // Dropped before the lock is given back.
    told: Told,
    // Dropped next: the lock is free before the thread forgets that it held it.
    inner: std::sync::MutexGuard<'a, T>,
    held: Held,
}

/// Waits for a change of what a [`Mutex`] guards.
#[derive(Default)]
pub(crate) struct Condvar(std::sync::Condvar);

impl<T> Mutex<T> {
    pub(crate) const fn new(rank: LockRank, value: T) -> Mutex<T> {
        Mutex { order: Order::new(rank), inner: std::sync::Mutex::new(value) }
    }

    /// Waits for the lock. Panics in debug builds if the thread holds one that goes after it.
    #[track_caller]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let held = self.order.enter();
        MutexGuard::new(self.inner.lock().unwrap_or_else(PoisonError::into_inner), held)
    }

    /// Takes the lock if nobody holds it; that may be done in any order.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard::new(inner, self.order.enter_unasked()))
    }

    /// What it guards, of which nobody else can have a guard. Takes no lock: in a fork it may be a dead thread's.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a, T> MutexGuard<'a, T> {
    fn new(inner: std::sync::MutexGuard<'a, T>, held: Held) -> Self {
        MutexGuard { told: Told::of(&*inner), inner, held }
    }

    /// For a wait, which gives the lock back.
    fn into_parts(self) -> (std::sync::MutexGuard<'a, T>, Held) {
        let MutexGuard { told: _told, inner, held } = self;
        (inner, held)
    }
}

impl Condvar {
    /// Gives the lock back until somebody notifies, or for no reason.
    #[track_caller]
    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let (inner, held) = guard.into_parts();
        held.check_wait();
        MutexGuard::new(self.0.wait(inner).unwrap_or_else(PoisonError::into_inner), held)
    }

    /// Gives the lock back until somebody notifies, or `timeout` is over, or for no reason.
    #[track_caller]
    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> MutexGuard<'a, T> {
        let (inner, held) = guard.into_parts();
        held.check_wait();
        let (inner, _) = self.0.wait_timeout(inner, timeout).unwrap_or_else(PoisonError::into_inner);
        MutexGuard::new(inner, held)
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn two() -> (Mutex<u8>, Mutex<u8>) {
        (Mutex::new(LockRank::Engine, 1), Mutex::new(LockRank::Inbox, 2))
    }

    /// What a panic of another thread says.
    fn panics(run: impl FnOnce() + Send + 'static) -> String {
        let panic = std::thread::spawn(run).join().expect_err("it panics");
        *panic.downcast::<String>().expect("it says why")
    }

    #[test]
    fn locks_are_taken_in_their_order_as_often_as_one_likes() {
        let (engine, inbox) = two();
        for _ in 0..2 {
            let outer = engine.lock();
            assert_eq!((*outer, *inbox.lock()), (1, 2));
        }
        drop(inbox.lock());
        drop(engine.lock());
    }

    #[test]
    fn a_lock_may_be_given_back_before_one_that_was_taken_later() {
        let (engine, inbox) = two();
        let (outer, inner) = (engine.lock(), inbox.lock());
        drop(outer);
        drop(inner);
        drop(engine.lock());
    }

    #[test]
    #[cfg(debug_assertions)]
    fn a_lock_out_of_order_is_named_with_the_one_that_is_held() {
        let why = panics(|| {
            let (engine, inbox) = two();
            let _inner = inbox.lock();
            drop(engine.lock());
        });
        assert_eq!(why, "locks out of order: Engine is taken while Inbox is held; it goes before it");
    }

    #[test]
    #[cfg(debug_assertions)]
    fn no_lock_is_taken_twice() {
        let why = panics(|| {
            let (engine, _) = two();
            let _outer = engine.lock();
            drop(engine.lock());
        });
        assert!(why.starts_with("locks out of order: Engine is taken while Engine is held"), "{why}");
    }

    #[test]
    #[cfg(debug_assertions)]
    fn nobody_waits_with_a_later_lock_in_hand() {
        let why = panics(|| {
            let ((engine, inbox), changed) = (two(), Condvar::default());
            let outer = engine.lock();
            let _inner = inbox.lock();
            drop(changed.wait_timeout(outer, Duration::ZERO));
        });
        assert_eq!(why, "Engine is waited for while Some(Inbox) is held");
    }

    #[test]
    fn trying_is_free_of_order_and_still_counts_as_held() {
        let (engine, inbox) = two();
        let inner = inbox.lock();
        assert!(inbox.try_lock().is_none());
        let outer = engine.try_lock().expect("nobody holds it");
        drop((inner, outer));
        drop(engine.lock());
    }

    #[test]
    fn a_lock_whose_thread_panicked_is_taken_all_the_same() {
        let lock = Arc::new(Mutex::new(LockRank::Engine, 1));
        let other = Arc::clone(&lock);
        let joined = std::thread::spawn(move || {
            let _held = other.lock();
            panic!("on purpose");
        })
        .join();
        assert!(joined.is_err());
        assert_eq!(*lock.lock(), 1);
        assert_eq!(lock.try_lock().map(|value| *value), Some(1));
    }

    #[test]
    fn a_wait_ends_when_it_is_notified() {
        let shared = Arc::new((Mutex::new(LockRank::Offers, false), Condvar::default()));
        let other = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            *other.0.lock() = true;
            other.1.notify_all();
        });
        let mut done = shared.0.lock();
        while !*done {
            done = shared.1.wait(done);
        }
        drop(done);
        thread.join().expect("it ends");
    }
}
