//! Memory of objects that neighbours map: a file without a name for each, which its maker writes and others only read.
//!
//! A neighbour opens it by its maker's number of it (`/proc/PID/fd`), which the kernel allows to the same user alone; the link
//! over which it is named is sealed. What is mapped stays when its maker lets go of it, or dies. A neighbour's mapping is
//! private: what it writes there (a continued pull, or a user by force) nobody else sees, nor do forks.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::ptr::NonNull;

use tweed_proto::objects::FileId;

use crate::link::fork;
use crate::link::sockopt::done;

/// What such a file is called; others are not opened.
const NAME: &str = "/memfd:tweed-object ";
const PAGE: usize = 4096;

/// A file, and where it lies in this process.
#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) start: NonNull<u8>,
    bytes: usize,
    /// Others open it by its number.
    file: File,
    id: FileId,
    is_made_here: bool,
}

impl Mapped {
    /// New memory: zeros, which take none before they are written.
    pub(super) fn make(bytes: usize) -> io::Result<Mapped> {
        fork::install()?;
        let bytes = bytes.next_multiple_of(PAGE);
        // SAFETY: a plain system call with a static name.
        let fd = unsafe {
            libc::memfd_create(c"tweed-object".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and owned by nobody else.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(bytes as u64)?;
        // SAFETY: a plain system call on our own file. Others rely on it that what they have mapped stays there.
        done(unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) })?;
        let id = identify(&file)?;
        let mut registry = fork::registry();
        let start = map(&file, bytes, libc::MAP_SHARED)?;
        registry.add(start.as_ptr(), bytes as u64, Some(fd));
        registry.lend(start.as_ptr(), 0, bytes as u64);
        drop(registry);
        fork::shut_in_children(&file);
        Ok(Mapped { start, bytes, file, id, is_made_here: true })
    }

    /// The first `bytes` of what process `pid` has under that number.
    pub(super) fn open(pid: u32, id: FileId, bytes: u64) -> io::Result<Mapped> {
        let stranger = || io::Error::new(io::ErrorKind::InvalidData, "it is not the memory that was named");
        let path = format!("/proc/{pid}/fd/{}", id.descriptor);
        if !fs::read_link(&path)?.to_string_lossy().starts_with(NAME) {
            return Err(stranger());
        }
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        let found = identify(&file)?;
        // SAFETY: a plain question.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        let can_shrink = seals < 0 || seals & libc::F_SEAL_SHRINK == 0;
        if (found.device, found.inode) != (id.device, id.inode)
            || can_shrink
            || file.metadata()?.len() < bytes
        {
            return Err(stranger());
        }
        fork::shut_in_children(&file);
        let bytes = usize::try_from(bytes).map_err(|_| stranger())?;
        let start = map(&file, bytes, libc::MAP_PRIVATE)?;
        Ok(Mapped { start, bytes, file, id: found, is_made_here: false })
    }

    pub(super) fn id(&self) -> FileId {
        FileId { descriptor: self.file.as_raw_fd() as u32, ..self.id }
    }

    pub(super) fn is_made_here(&self) -> bool {
        self.is_made_here
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

fn identify(file: &File) -> io::Result<FileId> {
    let known = file.metadata()?;
    Ok(FileId { descriptor: file.as_raw_fd() as u32, device: known.dev(), inode: known.ino() })
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

/// So many files this process may have open for objects: a quarter of its descriptors.
pub(super) fn most_files() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a plain question.
    let is_known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0;
    if is_known {
        limit.rlim_cur / 4
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mapped_stays_and_what_is_written_there_is_ones_own() {
        let made = Mapped::make(10).expect("a file is made");
        // SAFETY: nobody else has it.
        unsafe { made.start.as_ptr().write(7) };
        let (pid, id) = (std::process::id(), made.id());
        let read = [(); 2].map(|()| Mapped::open(pid, id, 10).expect("it is opened"));
        // SAFETY: as above.
        unsafe { read[0].start.as_ptr().write(8) };
        drop(made);
        let [own, other] = read.map(|mapped| {
            // SAFETY: as above.
            unsafe { mapped.start.as_ptr().read() }
        });
        assert_eq!((own, other), (8, 7));
    }

    #[test]
    fn what_is_not_the_memory_that_was_named_is_not_opened() {
        let (made, pid) = (Mapped::make(10).expect("a file is made"), std::process::id());
        let other = FileId { inode: made.id().inode + 1, ..made.id() };
        let null = File::open("/dev/null").expect("it is there");
        let null = identify(&null).expect("it is known");
        assert!(Mapped::open(pid, other, 10).is_err());
        assert!(Mapped::open(pid, null, 0).is_err());
        assert!(Mapped::open(pid, made.id(), 1 << 20).is_err(), "it is not that long");
        drop(made);
    }
}
