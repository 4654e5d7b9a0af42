//! Sleeping on a word of shared memory.

use std::time::Duration;

use crate::sync::atomic::AtomicU32;

/// Sleeps while `word` holds `expected`, until a wake whose bits meet `bits` or the end of `timeout`.
/// `false` if a signal interrupted it.
pub(crate) fn wait(word: &AtomicU32, expected: u32, bits: u32, timeout: Option<Duration>) -> bool {
    let deadline = timeout.map(deadline_after);
    let pointer = deadline.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `word` and the deadline outlive the call; the other arguments are plain numbers.
    let result = unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT_BITSET, expected, pointer, 0, bits)
    };
    result == 0 || std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted
}

/// Wakes those who sleep on `word` with any of `bits`.
pub(crate) fn wake(word: &AtomicU32, bits: u32) {
    // SAFETY: as above.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE_BITSET, i32::MAX, 0, 0, bits);
    }
}

/// `FUTEX_WAIT_BITSET` takes an absolute time of the monotonic clock.
fn deadline_after(timeout: Duration) -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid place to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    let nanos = now.tv_nsec as u64 + u64::from(timeout.subsec_nanos());
    let seconds = now.tv_sec.saturating_add(timeout.as_secs().min(1 << 40) as i64);
    libc::timespec {
        tv_sec: seconds + (nanos / 1_000_000_000) as i64,
        tv_nsec: (nanos % 1_000_000_000) as i64,
    }
}
