//! Memory that was taken away from peers: one of them was stopped while it touched a caller's memory, and would write to
//! it whenever it goes on.
//!
//! The pages are replaced by private ones with the same contents, at the same address. What the peer writes then goes to
//! pages that nobody looks at. The block in the shared file is never given to anybody else.

use std::io;
use std::ops::Range;

use super::shared_memory::Arena;
use crate::sync::{LockRank, Mutex};

const PAGE: u64 = 4096;

/// Ranges of an arena that are private by now, as offsets.
pub(crate) struct Withdrawn {
    ranges: Mutex<Vec<Range<u64>>>,
}

impl Default for Withdrawn {
    fn default() -> Withdrawn {
        Withdrawn { ranges: Mutex::new(LockRank::Withdrawn, Vec::new()) }
    }
}

impl Withdrawn {
    /// Some of these bytes are not shared any more.
    pub(crate) fn contains(&self, offset: u64, bytes: u64) -> bool {
        self.ranges.lock().iter().any(|range| offset < range.end && range.start < offset + bytes)
    }

    /// Makes the pages of these bytes private. Fails if there is no memory for the copy; they are shared still, then.
    pub(crate) fn withdraw(&self, arena: &Arena, offset: u64, bytes: u64) -> io::Result<()> {
        let range = offset / PAGE * PAGE..(offset + bytes).next_multiple_of(PAGE);
        if bytes == 0 || self.contains(offset, bytes) {
            return Ok(());
        }
        let length = range.end - range.start;
        let at = arena.mapping.at(range.start, length).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: the range is mapped, whole pages of one block, and the operation that used it has ended.
        unsafe { replace(at, length as usize)? };
        self.ranges.lock().push(range);
        Ok(())
    }
}

/// # Safety
/// `at` is the first of `bytes` bytes of whole, mapped pages.
unsafe fn replace(at: *mut u8, bytes: usize) -> io::Result<()> {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping; then a copy between two mapped ranges; then the new one takes the old one's place.
    unsafe {
        let fresh = libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0);
        if fresh == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        std::ptr::copy_nonoverlapping(at, fresh.cast::<u8>(), bytes);
        let moves = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let moved = libc::mremap(fresh, bytes, bytes, moves, at.cast::<libc::c_void>());
        if moved == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_withdrawn_keeps_its_contents_and_hears_nothing_more_of_the_file() {
        let arena = Arena::new().expect("a memfd can be made");
        let block = arena.take(3 * PAGE).expect("there is room");
        let own = arena.mapping.at(block, 3 * PAGE).expect("it lies in the arena");
        let peer = crate::link::shared_memory::Mapping::new(&arena.file, arena.bytes()).expect("it maps");
        let theirs = peer.at(block, 3 * PAGE).expect("it lies in the file");
        let withdrawn = Withdrawn::default();
        // SAFETY: both are mapped, and this thread alone uses them.
        unsafe {
            own.add(4096).write(7);
            withdrawn.withdraw(&arena, block + 4100, 8).expect("there is memory");
            theirs.add(4096).write(9);
            theirs.write(5);
            assert_eq!((own.add(4096).read(), own.read()), (7, 5), "only the page in question is private");
        }
        assert!(withdrawn.contains(block, 3 * PAGE) && !withdrawn.contains(block, PAGE));
    }
}
