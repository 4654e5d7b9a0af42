//! The memory of a process that its peers on the same host see: one sparse file without a name.
//!
//! The file is as long as what is in use, and grows. Its owner reserves addresses for all of the machine's memory once,
//! so nothing in it ever moves. A peer maps what there is, and maps more when it is told of a value beyond: 64 ranks
//! need not find room for 64 times the machine's memory. Being a memfd the file does not depend on the size of `/dev/shm`.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

use crate::link::blocks::{Blocks, PAGE};
use crate::link::fork;
use crate::link::sockopt::done;
use crate::sync::{LockRank, Mutex};

/// The file is at least so long, and its length doubles.
const FIRST_BYTES: u64 = 16 << 20;

/// One range of addresses over the beginning of a file.
struct View {
    base: *mut u8,
    bytes: u64,
    /// A longer one that was made later. This one stays: addresses in it are in use.
    longer: OnceLock<Box<View>>,
}

impl View {
    /// Maps `bytes` of `file`, which may be shorter; `lends` if users will hold blocks of it.
    fn new(file: &OwnedFd, bytes: u64, lends: bool) -> io::Result<View> {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_NORESERVE);
        let mut registry = fork::registry();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes as usize, access, flags, file.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        registry.add(base.cast(), bytes, lends.then(|| file.as_raw_fd()));
        Ok(View { base: base.cast(), bytes, longer: OnceLock::new() })
    }
}

impl Drop for View {
    fn drop(&mut self) {
        fork::registry().remove(self.base);
        // SAFETY: the range was mapped by `new` and is unmapped once.
        unsafe { libc::munmap(self.base.cast(), self.bytes as usize) };
    }
}

/// A shared mapping of an arena, of this process or of a peer. Dropped, it leaves nothing behind.
pub(crate) struct Mapping {
    first: View,
    /// The file by which more of it is mapped; `None`: all there will ever be is mapped.
    file: Option<OwnedFd>,
}

// SAFETY: a mapping is an address range; who may touch which part of it is decided by the protocol.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` of a peer's file, and more when it is needed.
    pub(crate) fn new(file: &OwnedFd, bytes: u64) -> io::Result<Mapping> {
        // SAFETY: a plain question.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
            let text = "memory of a peer that could become shorter under its readers";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(Mapping { first: View::new(file, bytes, false)?, file: Some(file.try_clone()?) })
    }

    /// The address of `bytes` bytes at `offset`; `None` if they do not lie within.
    pub(crate) fn at(&self, offset: u64, bytes: u64) -> Option<*mut u8> {
        let end = offset.checked_add(bytes)?;
        let mut view = &self.first;
        while end > view.bytes {
            if view.longer.get().is_none() {
                // A view of all that the file has now, if `end` lies within.
                let file = self.file.as_ref()?;
                let bytes = file_bytes(file).ok().filter(|&bytes| end <= bytes)?;
                let _ = view.longer.set(Box::new(View::new(file, bytes, false).ok()?));
            }
            view = view.longer.get()?;
        }
        // SAFETY: the sum stays within the view.
        Some(unsafe { view.base.add(offset as usize) })
    }

    /// The offset of an address; `None` if the `bytes` bytes there do not lie within.
    pub(crate) fn offset_of(&self, address: *const u8, bytes: u64) -> Option<u64> {
        let offset = (address as u64).checked_sub(self.first.base as u64)?;
        (offset.checked_add(bytes)? <= self.first.bytes).then_some(offset)
    }
}

/// The shared memory of this process.
pub(crate) struct Arena {
    pub(crate) mapping: Mapping,
    pub(crate) file: OwnedFd,
    blocks: Mutex<Blocks>,
}

impl Arena {
    /// An empty arena that can grow as long as the machine's memory.
    pub(crate) fn new() -> io::Result<Arena> {
        fork::install()?;
        let (most, flags) = (machine_memory(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        // SAFETY: a plain system call with a static name.
        let fd = unsafe { libc::memfd_create(c"tweed".as_ptr(), flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and owned by nobody else.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: a plain system call on our own file. Peers rely on it that what they have mapped stays there.
        done(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) })?;
        let present = FIRST_BYTES.min(most);
        lengthen(&file, present)?;
        // Addresses for all that the file can become.
        let mapping = Mapping { first: View::new(&file, most, true)?, file: None };
        fork::shut_in_children(&file);
        Ok(Arena { mapping, file, blocks: Mutex::new(LockRank::Blocks, Blocks::new(most, present)) })
    }

    /// How much of it there is now.
    pub(crate) fn bytes(&self) -> u64 {
        self.blocks.lock().present
    }

    /// A block for a user, which forks of this process get a copy of; `None` if there is no room, or in a fork.
    pub(crate) fn lend(&self, bytes: u64) -> Option<*mut u8> {
        let base = self.mapping.first.base;
        if !fork::registry().owns(base) {
            return None;
        }
        let offset = self.take(bytes)?;
        fork::registry().lend(base, offset, bytes.max(1).next_multiple_of(PAGE));
        self.mapping.at(offset, bytes)
    }

    /// Takes a user's block back, together with its pages. In a fork nothing happens: the block is the parent's.
    pub(crate) fn free(&self, address: *mut u8) -> bool {
        let Some(offset) = self.mapping.offset_of(address, 0) else { return false };
        let ours = fork::registry().take_back(self.mapping.first.base, offset);
        if ours {
            self.give_pages(offset);
        }
        ours
    }

    /// Takes a block; its offset, or `None` if there is no room. Old contents may be in it.
    pub(crate) fn take(&self, bytes: u64) -> Option<u64> {
        let mut blocks = self.blocks.lock();
        let offset = blocks.take(bytes)?;
        let end = offset + blocks.taken.get(&offset)?;
        if end > blocks.present {
            let longer = grown(end, self.mapping.first.bytes);
            if lengthen(&self.file, longer).is_err() {
                blocks.give(offset);
                return None;
            }
            blocks.present = longer;
        }
        Some(offset)
    }

    /// The length of a block that was taken.
    pub(crate) fn length(&self, offset: u64) -> Option<u64> {
        self.blocks.lock().taken.get(&offset).copied()
    }

    /// Gives a block back. Its pages stay for the next who takes it.
    pub(crate) fn give(&self, offset: u64) {
        self.blocks.lock().give(offset);
    }

    fn give_pages(&self, offset: u64) {
        let mut blocks = self.blocks.lock();
        if let Some(bytes) = blocks.taken.get(&offset).copied() {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: a plain system call on our own file; nobody uses the block any more.
            unsafe { libc::fallocate(self.file.as_raw_fd(), mode, offset as i64, bytes as i64) };
            blocks.give(offset);
        }
    }
}

/// How long a file becomes that must reach up to `end`, which is at most `most`.
fn grown(end: u64, most: u64) -> u64 {
    end.checked_next_power_of_two().map_or(most, |bytes| bytes.clamp(FIRST_BYTES.min(most), most))
}

fn lengthen(file: &OwnedFd, bytes: u64) -> io::Result<()> {
    // SAFETY: a plain system call on our own file.
    done(unsafe { libc::ftruncate(file.as_raw_fd(), bytes as i64) })
}

/// How long a file is.
pub(crate) fn file_bytes(file: &OwnedFd) -> io::Result<u64> {
    // SAFETY: all zero is a valid `stat` to be filled in.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a plain question about an open file.
    done(unsafe { libc::fstat(file.as_raw_fd(), &mut stat) })?;
    Ok(stat.st_size as u64)
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
    fn offsets_beyond_the_mapping_are_refused() {
        let arena = Arena::new().expect("a memfd can be made");
        let most = arena.mapping.first.bytes;
        assert!(arena.mapping.at(most - 8, 9).is_none());
        assert!(arena.mapping.at(u64::MAX, 2).is_none());
        assert_eq!(arena.mapping.at(8, 8).and_then(|p| arena.mapping.offset_of(p, 8)), Some(8));
    }

    #[test]
    fn a_peer_maps_what_is_used_and_no_more() {
        let arena = Arena::new().expect("a memfd can be made");
        let peers = Mapping::new(&arena.file, arena.bytes()).expect("a peer can map it");
        assert_eq!(peers.first.bytes, FIRST_BYTES);
        let early = peers.at(0, 8).expect("it lies within");
        let (beyond, bytes) = (FIRST_BYTES, 3 * FIRST_BYTES);
        assert!(peers.at(beyond, 1).is_none(), "the file is no longer yet");
        let offset = arena.take(bytes).expect("there is room");
        let (ours, theirs) = (arena.mapping.at(offset, bytes), peers.at(offset, bytes));
        let last = bytes as usize - 1;
        // SAFETY: both lie within, and nobody else uses them.
        let seen = unsafe {
            ours.expect("it lies within").add(last).write(7);
            theirs.expect("it lies within by now").add(last).read()
        };
        assert_eq!((seen, peers.at(0, 8)), (7, Some(early)));
        assert!(peers.at(arena.bytes(), 1).is_none());
    }

    #[test]
    fn memory_that_could_shrink_under_its_readers_is_refused() {
        // SAFETY: a plain system call with a static name.
        let fd = unsafe { libc::memfd_create(c"stranger".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: the descriptor is new and owned by nobody else.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        lengthen(&file, PAGE).expect("a file can be longer");
        assert!(Mapping::new(&file, PAGE).is_err());
    }

    #[test]
    fn a_dropped_mapping_leaves_no_addresses_and_no_descriptor() {
        let count = |place: &str| std::fs::read_dir(place).expect("/proc is there").count();
        let mapped = || {
            let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc is there");
            maps.lines().filter(|line| line.contains("memfd:tweed")).count()
        };
        let arena = Arena::new().expect("a memfd can be made");
        let before = (mapped(), count("/proc/self/fd"));
        let peers = Mapping::new(&arena.file, arena.bytes()).expect("a peer can map it");
        let offset = arena.take(2 * FIRST_BYTES).expect("there is room");
        assert!(peers.at(offset, 2 * FIRST_BYTES).is_some());
        assert_eq!(mapped(), before.0 + 2);
        drop(peers);
        assert_eq!((mapped(), count("/proc/self/fd")), before);
    }
}
