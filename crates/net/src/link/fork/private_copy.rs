//! What the child of a fork does with memory, before anything else runs in it: system calls and copies, no allocation.

use std::io;
use std::os::fd::RawFd;

use super::Region;

/// Makes blocks of users private, and the rest of a region inaccessible.
///
/// # Safety
/// The region is mapped, and no other thread of this process uses it.
pub(super) unsafe fn keep_only_lent(base: usize, region: &Region, copy: bool) {
    let mut end = base;
    for (&offset, &bytes) in &region.lent {
        let block = base + offset;
        // SAFETY: the range and the block lie in the region.
        unsafe {
            hide(end, block - end);
            let kept = region.file.is_some_and(|f| {
                (copy && copy_block(block, f, offset, bytes)) || map_privately(block, f, offset, bytes)
            });
            if !kept {
                hide(block, bytes);
            }
        }
        end = block + bytes;
    }
    // SAFETY: the range lies in the region.
    unsafe { hide(end, base + region.bytes - end) };
}

/// Replaces a range of the engine's memory by one that nobody can touch.
///
/// # Safety
/// It lies in a region of the engine.
unsafe fn hide(address: usize, bytes: usize) {
    if bytes > 0 {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: by the contract, nothing but the engine's memory is replaced.
        unsafe { libc::mmap(address as *mut _, bytes, libc::PROT_NONE, flags, -1, 0) };
    }
}

/// Replaces a block by anonymous memory with the same content; `false` if there is no room.
///
/// # Safety
/// The block lies in a region of the engine, over that offset of the file.
unsafe fn copy_block(block: usize, file: RawFd, offset: usize, bytes: usize) -> bool {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let fresh = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
    if fresh == libc::MAP_FAILED {
        return false;
    }
    let mut next = offset;
    while let Some((from, to)) = next_data(file, next, offset + bytes) {
        let skipped = from - offset;
        // SAFETY: the range lies in the fresh mapping. All its pages at once; if that fails, they come one by one.
        unsafe { libc::madvise(fresh.byte_add(skipped), to - from, libc::MADV_POPULATE_WRITE) };
        // SAFETY: both ranges lie in the two mappings, which are apart.
        unsafe {
            std::ptr::copy_nonoverlapping(
                (block + skipped) as *const u8,
                fresh.cast::<u8>().add(skipped),
                to - from,
            );
        }
        next = to;
    }
    let moves = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: by the contract, the block is the engine's.
    let moved = unsafe { libc::mremap(fresh, bytes, bytes, moves, block as *mut libc::c_void) };
    moved != libc::MAP_FAILED
}

/// The next part of a file, up to `end`, that has pages. To read where there are none would take some.
fn next_data(file: RawFd, from: usize, end: usize) -> Option<(usize, usize)> {
    if from >= end {
        return None;
    }
    // SAFETY: a plain system call; nobody uses the file's position.
    let data = unsafe { libc::lseek(file, from as i64, libc::SEEK_DATA) };
    if data < 0 {
        // ENXIO: there is none. Anything else: this kernel cannot tell.
        let none = io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO);
        return (!none).then_some((from, end));
    }
    // SAFETY: as above.
    let hole = unsafe { libc::lseek(file, data, libc::SEEK_HOLE) };
    let to = usize::try_from(hole).map_or(end, |hole| hole.min(end));
    ((data as usize) < end).then_some((data as usize, to))
}

/// Replaces a block by a private mapping of the file; `false` if that cannot be.
///
/// # Safety
/// The block lies in a region of the engine, over that offset of the file.
unsafe fn map_privately(block: usize, file: RawFd, offset: usize, bytes: usize) -> bool {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: by the contract, the block is the engine's.
    unsafe { libc::mmap(block as *mut _, bytes, access, flags, file, offset as i64) != libc::MAP_FAILED }
}
