//! Stores that bypass the cache, for results that go to main memory anyway.
//!
//! An ordinary store first reads the line it writes to; a non-temporal one does not, which saves a third of
//! the traffic of a copy. Other CPUs than x86-64 get ordinary stores.

/// Bytes of a cache line. Streaming stores are made in whole lines.
pub(crate) const LINE: usize = 64;

/// Writes `bytes` past the cache.
///
/// Safety: `to` is aligned to [`LINE`] and has room; `bytes.len()` is a multiple of 16.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn lines(to: *mut u8, bytes: &[u8]) {
    use std::arch::x86_64::{_mm_loadu_si128, _mm_stream_si128};
    for at in (0..bytes.len()).step_by(16) {
        // SAFETY: within both ranges; SSE2 is part of x86-64.
        unsafe { _mm_stream_si128(to.add(at).cast(), _mm_loadu_si128(bytes.as_ptr().add(at).cast())) };
    }
}

/// Writes `bytes` with ordinary stores.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) unsafe fn lines(to: *mut u8, bytes: &[u8]) {
    // SAFETY: by contract.
    unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

/// Orders streaming stores before everything that follows: they are not ordered by x86's usual rules.
#[inline(always)]
pub(crate) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
