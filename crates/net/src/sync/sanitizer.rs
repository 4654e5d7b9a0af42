//! What the thread sanitizer is told (`--cfg tsan`, `make sanitize`); in all other builds nothing.
//!
//! It sees only code that was compiled with it. std comes compiled without it, so where a thread has to wait for a lock, in a
//! function of std's, it sees no order between who held it before and who holds it now, and would call each access to what
//! the lock guards a race. So each [`super::MutexGuard`] says itself when it begins and when it ends.

#[cfg(tsan)]
mod told {
    use std::ffi::c_void;

    unsafe extern "C" {
        fn __tsan_acquire(address: *mut c_void);
        fn __tsan_release(address: *mut c_void);
    }

    /// A lock is held, until this is dropped.
    pub(in crate::sync) struct Told(*mut c_void);

    impl Told {
        /// The lock over `guarded` has been taken.
        pub(in crate::sync) fn of<T>(guarded: &T) -> Told {
            let address = std::ptr::from_ref(guarded).cast_mut().cast();
            // SAFETY: the address is a name alone.
            unsafe { __tsan_acquire(address) };
            Told(address)
        }
    }

    impl Drop for Told {
        fn drop(&mut self) {
            // SAFETY: as above.
            unsafe { __tsan_release(self.0) };
        }
    }
}

#[cfg(not(tsan))]
mod told {
    /// Holds nothing where no sanitizer runs.
    pub(in crate::sync) struct Told;

    impl Told {
        #[inline(always)]
        pub(in crate::sync) fn of<T>(_guarded: &T) -> Told {
            Told
        }
    }
}

pub(super) use told::Told;
