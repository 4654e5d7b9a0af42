//! Memory of objects that neighbours map: a file without a name in any folder, which its maker writes and others only read.
//!
//! A neighbour opens it by its maker's number of it (`/proc/PID/fd`), which the kernel allows to the same user alone. The
//! random name of the file comes over the link, so nobody maps for another what that one has not been told of. What is
//! mapped stays when its maker lets go of it, or dies, and does not shrink under who reads it (a seal). A neighbour's
//! mapping is private: what it writes there (a pull that goes on, or a user by force) nobody else sees.
//!
//! # When a file holds another object
//!
//! Both ends keep a file, and their mappings of it, when nobody reads the object any more: the pages are there, and need not
//! be filled with zeros and mapped anew. Who reads it holds a shared lock (`flock`) on a description of its own, which the
//! kernel gives back when the last mapping of it ends, however its process ends. Its maker takes it for another object
//! ([`Mapped::renew`]) only while it has the exclusive lock, so while nobody reads it, and first counts up the use that stands
//! behind the bytes. Neighbours are told of the file and the use; who has the shared lock and finds another use there does
//! not read it, and asks for blocks. A mapping is kept ([`Mapped::retire`]) only if no fork of the process has it, and if none
//! of its pages is the process's own.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::ptr::NonNull;

use tweed_proto::objects::FileId;

use crate::connect::descriptor::random_hex;
use crate::link::fork;
use crate::link::sockopt::done;

/// Files are multiples of this.
const PAGE: usize = 4096;
const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
/// Its owner reads it. The maker's descriptor was there before.
const MODE: u32 = 0o400;
/// Bits of a tag that say the use. The rest is the name of the file, which is random.
const USE_BITS: u32 = 32;

/// A file, and where it lies in this process.
#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) start: NonNull<u8>,
    /// Objects have so many. The page behind them says the use.
    bytes: usize,
    /// Others open it by its number.
    file: File,
    name: u128,
    used: u32,
    is_made_here: bool,
    /// Its pages are there, and are mapped.
    is_present: bool,
    /// Of this process, when the use began.
    forks: u64,
}

// SAFETY: an address range; who may touch which part of it is decided by `Memory`.
unsafe impl Send for Mapped {}

impl Mapped {
    /// New memory: zeros, which take none before they are written.
    pub(super) fn make(bytes: usize) -> io::Result<Mapped> {
        fork::install()?;
        let bytes = bytes.next_multiple_of(PAGE);
        let name = u128::from_str_radix(&random_hex()?, 16).map_err(io::Error::other)? >> USE_BITS;
        let path = CString::new(path_of(name))?;
        // SAFETY: a plain system call with a name that lives as long.
        let fd = unsafe { libc::memfd_create(path.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and owned by nobody else.
        let file = unsafe { File::from_raw_fd(fd) };
        fork::shut_in_children(&file);
        file.set_len((bytes + PAGE) as u64)?;
        file.set_permissions(fs::Permissions::from_mode(MODE))?;
        // SAFETY: a plain system call on our own file.
        done(unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, SEALS) })?;
        let mut registry = fork::registry();
        let start = map(&file, bytes, libc::MAP_SHARED)?;
        registry.add_settled(start.as_ptr(), bytes as u64, fd);
        let forks = registry.forks();
        Ok(Mapped { start, bytes, file, name, used: 0, is_made_here: true, is_present: false, forks })
    }

    /// What process `pid` has under that number, of at least so many bytes.
    pub(super) fn open(pid: u32, id: FileId, bytes: u64) -> io::Result<Mapped> {
        fork::install()?;
        let name = id.tag >> USE_BITS;
        let place = format!("/proc/{pid}/fd/{}", id.descriptor);
        // First a mere handle: to open a device or a pipe could do something.
        let handle = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(place)?;
        let own = format!("/proc/self/fd/{}", handle.as_raw_fd());
        if fs::read_link(&own)?.as_os_str() != format!("/memfd:{} (deleted)", path_of(name)).as_str() {
            return Err(stranger());
        }
        let file = File::open(own)?;
        // SAFETY: a plain question.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        let length = file.metadata()?.len().saturating_sub(PAGE as u64);
        if seals < 0 || seals & SEALS != SEALS || length < bytes {
            return Err(stranger());
        }
        fork::shut_in_children(&file);
        let length = usize::try_from(length).map_err(|_| stranger())?;
        let (start, forks) = (map(&file, length, libc::MAP_PRIVATE)?, 0);
        let (is_made_here, is_present) = (false, false);
        let mut mapped =
            Mapped { start, bytes: length, file, name, used: 0, is_made_here, is_present, forks };
        if mapped.reopen(id) {
            Ok(mapped)
        } else {
            Err(stranger())
        }
    }

    pub(super) fn id(&self) -> FileId {
        let tag = self.name << USE_BITS | u128::from(self.used);
        FileId { descriptor: self.file.as_raw_fd() as u32, tag }
    }

    pub(super) fn is_made_here(&self) -> bool {
        self.is_made_here
    }

    /// How many bytes it holds.
    pub(super) fn len(&self) -> u64 {
        self.bytes as u64
    }

    /// Writes some of what was made here. To pages that are not there yet this takes half the time of a copy, which stumbles
    /// over each of them, and has it filled with zeros first. `false`: it cannot be, or a copy is faster.
    ///
    /// # Safety
    /// Nobody reads or writes these bytes meanwhile.
    pub(super) unsafe fn write(&self, begin: u64, bytes: &[u8]) -> bool {
        self.is_made_here && !self.is_present && self.file.write_all_at(bytes, begin).is_ok()
    }

    /// Nobody of this process reads what it holds. `false`: it is not to be kept.
    pub(super) fn retire(&self) -> bool {
        // A child of this process may hold what was in use when it was forked, by the same description.
        let is_ours = fork::registry().forks() == self.forks;
        is_ours && (self.is_made_here || (self.is_unwritten().unwrap_or(false) && self.lock(libc::LOCK_UN)))
    }

    /// What was made here is to hold another object. `false`: it was not, or somebody still reads it.
    pub(super) fn renew(&mut self) -> bool {
        let Some(used) = self.used.checked_add(1).filter(|_| self.is_made_here) else { return false };
        if !self.lock(libc::LOCK_EX) {
            return false;
        }
        let is_told = self.file.write_all_at(&used.to_le_bytes(), self.len()).is_ok();
        if !self.lock(libc::LOCK_UN) || !is_told {
            return false;
        }
        // SAFETY: the range is mapped, and keeps what it holds.
        self.is_present = self.is_present
            || unsafe { libc::madvise(self.start.as_ptr().cast(), self.bytes, libc::MADV_POPULATE_WRITE) }
                == 0;
        (self.used, self.forks) = (used, fork::registry().forks());
        true
    }

    /// What is mapped here is read once more, under that number. `false`: it is another file, or holds another object.
    pub(super) fn reopen(&mut self, id: FileId) -> bool {
        let mut used = [0; 4];
        if self.is_made_here || self.name != id.tag >> USE_BITS || !self.lock(libc::LOCK_SH) {
            return false;
        }
        let is_read = self.file.read_exact_at(&mut used, self.len()).is_ok();
        // Memory that was locked since (`mlockall`) has pages of its own, with what there was then.
        let is_files = self.is_unwritten().unwrap_or(false);
        if !is_read || !is_files || u32::from_le_bytes(used) != id.tag as u32 {
            self.lock(libc::LOCK_UN);
            return false;
        }
        (self.used, self.forks) = (id.tag as u32, fork::registry().forks());
        true
    }

    /// No page of the mapping is this process's own.
    fn is_unwritten(&self) -> io::Result<bool> {
        // SAFETY: a plain question.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let mut entries = vec![0; self.bytes.div_ceil(page) * size_of::<u64>()];
        let first = self.start.as_ptr() as usize / page * size_of::<u64>();
        File::open("/proc/self/pagemap")?.read_exact_at(&mut entries, first as u64)?;
        // Bits 63 and 62: there is a page, in memory or swapped out; 61: it is the file's.
        let (entries, _) = entries.as_chunks();
        Ok(!entries.iter().any(|&entry| matches!(u64::from_ne_bytes(entry) >> 61, 0b010 | 0b100 | 0b110)))
    }

    /// Takes a lock for this description, or gives it back. `false`: another one has it.
    fn lock(&self, kind: i32) -> bool {
        // SAFETY: a plain system call on our own file.
        unsafe { libc::flock(self.file.as_raw_fd(), kind | libc::LOCK_NB) == 0 }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if self.is_made_here {
            fork::registry().remove(self.start.as_ptr());
        }
        // SAFETY: mapped by `make` or `open`, and unmapped once.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

fn stranger() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it is not the memory that was named")
}

fn path_of(name: u128) -> String {
    format!("tweed-object-{name:024x}")
}

fn map(file: &File, bytes: usize, kind: i32) -> io::Result<NonNull<u8>> {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, kind | libc::MAP_NORESERVE);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, file.as_raw_fd(), 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(base.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Of 65,530 mappings that Linux lets a process have; each file is one, too.
const MOST_FILES: u64 = 1 << 14;

/// So many files this process may have open for objects: a quarter of its descriptors, and of its mappings.
pub(super) fn most_files() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a plain question.
    let is_known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0;
    if is_known {
        (limit.rlim_cur / 4).min(MOST_FILES)
    } else {
        0
    }
}

#[cfg(test)]
mod tests;
