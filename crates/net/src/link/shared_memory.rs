//! The memory of a process that its peers on the same host see: one sparse file without a name.
//!
//! It is as long as the machine's memory, and takes pages only where it is used, so peers map it once. Being a
//! memfd it does not depend on the size of `/dev/shm`.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::sync::{LockRank, Mutex};

/// All blocks begin and end on pages.
const PAGE: u64 = 4096;

/// A shared mapping of a whole arena, of this process or of a peer.
pub(crate) struct Mapping {
    base: *mut u8,
    bytes: u64,
}

// SAFETY: a mapping is an address range; who may touch which part of it is decided by the protocol.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` of `file`.
    pub(crate) fn new(file: &OwnedFd, bytes: u64) -> io::Result<Mapping> {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_NORESERVE);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes as usize, access, flags, file.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping { base: base.cast(), bytes })
    }

    /// The address of `bytes` bytes at `offset`; `None` if they do not lie within.
    pub(crate) fn at(&self, offset: u64, bytes: u64) -> Option<*mut u8> {
        let end = offset.checked_add(bytes)?;
        // SAFETY: the sum stays within the mapping.
        (end <= self.bytes).then(|| unsafe { self.base.add(offset as usize) })
    }

    /// The offset of an address; `None` if the `bytes` bytes there do not lie within.
    pub(crate) fn offset_of(&self, address: *const u8, bytes: u64) -> Option<u64> {
        let offset = (address as u64).checked_sub(self.base as u64)?;
        (offset.checked_add(bytes)? <= self.bytes).then_some(offset)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new` and is unmapped once.
        unsafe { libc::munmap(self.base.cast(), self.bytes as usize) };
    }
}

/// This process's arena.
pub(crate) struct Arena {
    file: OwnedFd,
    mapping: Mapping,
    blocks: Mutex<Blocks>,
}

impl Arena {
    /// An empty arena as long as the machine's memory.
    pub(crate) fn new() -> io::Result<Arena> {
        let bytes = machine_memory();
        // SAFETY: a plain system call with a static name.
        let fd = unsafe { libc::memfd_create(c"tweed".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and owned by nobody else.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: a plain system call on our own file.
        if unsafe { libc::ftruncate(file.as_raw_fd(), bytes as i64) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let mapping = Mapping::new(&file, bytes)?;
        Ok(Arena { file, mapping, blocks: Mutex::new(LockRank::Blocks, Blocks::new(bytes)) })
    }

    pub(crate) fn file(&self) -> &OwnedFd {
        &self.file
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.mapping.bytes
    }

    /// Takes a block; its offset, or `None` if there is no room. Old contents may be in it.
    pub(crate) fn take(&self, bytes: u64) -> Option<u64> {
        self.blocks.lock().take(bytes)
    }

    /// The length of a block that was taken.
    pub(crate) fn length(&self, offset: u64) -> Option<u64> {
        self.blocks.lock().taken.get(&offset).copied()
    }

    /// Gives a block back. Its pages stay for the next who takes it.
    pub(crate) fn give(&self, offset: u64) {
        self.blocks.lock().give(offset);
    }

    /// Gives a block back together with its pages.
    pub(crate) fn give_pages(&self, offset: u64) {
        let mut blocks = self.blocks.lock();
        if let Some(bytes) = blocks.taken.get(&offset).copied() {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: a plain system call on our own file; nobody uses the block any more.
            unsafe { libc::fallocate(self.file.as_raw_fd(), mode, offset as i64, bytes as i64) };
            blocks.give(offset);
        }
    }
}

/// Which parts are free and which are taken: offset to length. First fit keeps the low pages warm.
struct Blocks {
    free: BTreeMap<u64, u64>,
    taken: BTreeMap<u64, u64>,
}

impl Blocks {
    fn new(bytes: u64) -> Blocks {
        Blocks { free: BTreeMap::from([(0, bytes)]), taken: BTreeMap::new() }
    }

    fn take(&mut self, bytes: u64) -> Option<u64> {
        let bytes = bytes.max(1).checked_next_multiple_of(PAGE)?;
        let (&offset, &room) = self.free.iter().find(|(_, &room)| room >= bytes)?;
        self.free.remove(&offset);
        if room > bytes {
            self.free.insert(offset + bytes, room - bytes);
        }
        self.taken.insert(offset, bytes);
        Some(offset)
    }

    fn give(&mut self, offset: u64) {
        let Some(mut bytes) = self.taken.remove(&offset) else { return };
        let mut start = offset;
        if let Some(next) = self.free.remove(&(offset + bytes)) {
            bytes += next;
        }
        if let Some((&before, &room)) = self.free.range(..offset).next_back() {
            if before + room == offset {
                (start, bytes) = (before, room + bytes);
            }
        }
        self.free.insert(start, bytes);
    }
}

/// Bytes of memory in this machine, in whole pages.
fn machine_memory() -> u64 {
    // SAFETY: plain questions to the system.
    let (pages, page) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    (pages.max(1) as u64).saturating_mul(page.max(1) as u64).next_multiple_of(PAGE).max(1 << 30)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_are_given_back_join_their_neighbours() {
        let mut blocks = Blocks::new(16 * PAGE);
        let taken: Vec<u64> = (0..4).filter_map(|_| blocks.take(PAGE + 1)).collect();
        assert_eq!(taken, [0, 2 * PAGE, 4 * PAGE, 6 * PAGE]);
        for offset in [taken[1], taken[3], taken[0], taken[2]] {
            blocks.give(offset);
        }
        assert_eq!(blocks.free, BTreeMap::from([(0, 16 * PAGE)]));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut blocks = Blocks::new(2 * PAGE);
        assert_eq!(blocks.take(3 * PAGE), None);
        assert_eq!(blocks.take(u64::MAX), None);
    }

    #[test]
    fn offsets_beyond_the_mapping_are_refused() {
        let arena = Arena::new().expect("a memfd can be made");
        assert!(arena.mapping().at(arena.bytes() - 8, 9).is_none());
        assert!(arena.mapping().at(u64::MAX, 2).is_none());
        assert_eq!(arena.mapping().at(8, 8).and_then(|p| arena.mapping().offset_of(p, 8)), Some(8));
    }
}
