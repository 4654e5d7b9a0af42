//! Memory of objects that neighbours map: a file without a name in any folder for each, which its maker writes and others
//! only read.
//!
//! A neighbour opens it by its maker's number of it (`/proc/PID/fd`), which the kernel allows to the same user alone. The
//! random tag that the file is called by comes over the link, so nobody maps for another what that one has not been told
//! of. What is mapped stays when its maker lets go of it, or dies, and does not shrink under who reads it (a seal). A
//! neighbour's mapping is private: what it writes there (a pull that goes on, or a user by force) nobody else sees.

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

const PAGE: usize = 4096;
const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
/// Its owner reads it. The maker's descriptor was there before.
const MODE: u32 = 0o400;

/// A file, and where it lies in this process.
#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) start: NonNull<u8>,
    bytes: usize,
    /// Others open it by its number.
    file: File,
    tag: u128,
    is_made_here: bool,
}

impl Mapped {
    /// New memory: zeros, which take none before they are written.
    pub(super) fn make(bytes: usize) -> io::Result<Mapped> {
        fork::install()?;
        let bytes = bytes.next_multiple_of(PAGE);
        let tag = u128::from_str_radix(&random_hex()?, 16).map_err(io::Error::other)?;
        let name = CString::new(name_of(tag))?;
        // SAFETY: a plain system call with a name that lives as long.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and owned by nobody else.
        let file = unsafe { File::from_raw_fd(fd) };
        fork::shut_in_children(&file);
        file.set_len(bytes as u64)?;
        file.set_permissions(fs::Permissions::from_mode(MODE))?;
        // SAFETY: a plain system call on our own file.
        done(unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, SEALS) })?;
        let mut registry = fork::registry();
        let start = map(&file, bytes, libc::MAP_SHARED)?;
        registry.add_settled(start.as_ptr(), bytes as u64, fd);
        Ok(Mapped { start, bytes, file, tag, is_made_here: true })
    }

    /// The first `bytes` of what process `pid` has under that number.
    pub(super) fn open(pid: u32, id: FileId, bytes: u64) -> io::Result<Mapped> {
        let stranger = || io::Error::new(io::ErrorKind::InvalidData, "it is not the memory that was named");
        let place = format!("/proc/{pid}/fd/{}", id.descriptor);
        // First a mere handle: to open a device or a pipe could do something.
        let handle = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(place)?;
        let own = format!("/proc/self/fd/{}", handle.as_raw_fd());
        if fs::read_link(&own)?.as_os_str() != format!("/memfd:{} (deleted)", name_of(id.tag)).as_str() {
            return Err(stranger());
        }
        let file = File::open(own)?;
        // SAFETY: a plain question.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & SEALS != SEALS || file.metadata()?.len() < bytes {
            return Err(stranger());
        }
        fork::shut_in_children(&file);
        let bytes = usize::try_from(bytes).map_err(|_| stranger())?;
        let start = map(&file, bytes, libc::MAP_PRIVATE)?;
        Ok(Mapped { start, bytes, file, tag: id.tag, is_made_here: false })
    }

    pub(super) fn id(&self) -> FileId {
        FileId { descriptor: self.file.as_raw_fd() as u32, tag: self.tag }
    }

    pub(super) fn is_made_here(&self) -> bool {
        self.is_made_here
    }

    /// Writes some of what was made here. To pages that are not there yet this takes half the time of a copy, which stumbles
    /// over each of them, and has it filled with zeros first. `false`: it cannot be.
    ///
    /// # Safety
    /// Nobody reads or writes these bytes meanwhile.
    pub(super) unsafe fn write(&self, begin: u64, bytes: &[u8]) -> bool {
        self.is_made_here && self.file.write_all_at(bytes, begin).is_ok()
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

fn name_of(tag: u128) -> String {
    format!("tweed-object-{tag:032x}")
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
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn first(of: &Mapped) -> u8 {
        // SAFETY: nobody writes it meanwhile.
        unsafe { of.start.as_ptr().read() }
    }

    #[test]
    fn what_is_mapped_stays_and_what_is_written_there_is_ones_own() {
        let made = Mapped::make(10).expect("a file is made");
        // SAFETY: nobody else has it.
        unsafe { made.start.as_ptr().write(7) };
        let (pid, id) = (std::process::id(), made.id());
        let read = [(); 2].map(|()| Mapped::open(pid, id, 10).expect("it is opened"));
        // SAFETY: as above.
        unsafe { read[0].start.as_ptr().write(8) };
        let passed_on = Mapped::open(pid, read[1].id(), 10).expect("a neighbour passes it on");
        drop(made);
        assert_eq!((first(&read[0]), first(&read[1]), first(&passed_on)), (8, 7, 7));
        assert!(Mapped::open(pid, id, 10).is_err(), "its maker has it no more");
    }

    #[test]
    fn what_its_maker_writes_later_is_seen() {
        let made = Mapped::make(2 * PAGE).expect("a file is made");
        let read = Mapped::open(std::process::id(), made.id(), 2 * PAGE as u64).expect("it is opened");
        assert_eq!(first(&read), 0, "a page that was read before it was written");
        // SAFETY: nobody else writes it.
        unsafe { made.start.as_ptr().write(7) };
        assert_eq!(first(&read), 7);
    }

    #[test]
    fn what_is_not_the_memory_that_was_named_is_not_opened() {
        let (made, pid) = (Mapped::make(10).expect("a file is made"), std::process::id());
        let other = FileId { tag: made.id().tag ^ 1, ..made.id() };
        let null = File::open("/dev/null").expect("it is there");
        let null = FileId { descriptor: null.as_raw_fd() as u32, ..made.id() };
        assert!(Mapped::open(pid, other, 10).is_err());
        assert!(Mapped::open(pid, null, 0).is_err());
        assert!(Mapped::open(pid, made.id(), 1 << 20).is_err(), "it is not that long");
    }

    #[test]
    fn others_may_read_it_and_nobody_cuts_it_off() {
        let made = Mapped::make(PAGE).expect("a file is made");
        assert_eq!(made.file.metadata().expect("it is known").mode() & 0o7777, MODE);
        assert!(made.file.set_len(0).is_err());
        // SAFETY: nobody else has it.
        assert!(unsafe { made.write(1, &[5; 7]) });
        // SAFETY: as above.
        assert_eq!(unsafe { std::slice::from_raw_parts(made.start.as_ptr(), 3) }, [0, 5, 5]);
        let read = Mapped::open(std::process::id(), made.id(), PAGE as u64).expect("it is opened");
        // SAFETY: as above.
        assert!(!unsafe { read.write(1, &[6; 7]) });
    }

    #[test]
    fn a_fork_sees_what_was_there_and_what_it_writes_stays_its_own() {
        let made = Mapped::make(2 * PAGE).expect("a file is made");
        let read = Mapped::open(std::process::id(), made.id(), 2 * PAGE as u64).expect("it is opened");
        // SAFETY: nobody else has it.
        unsafe { made.start.as_ptr().write(7) };
        // SAFETY: the child makes plain system calls, and ends without running destructors.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_right = first(&made) == 7 && first(&read) == 7;
            // SAFETY: the child's own.
            let is_shut = unsafe {
                made.start.as_ptr().write(1);
                read.start.as_ptr().write(2);
                libc::fcntl(made.id().descriptor as i32, libc::F_GET_SEALS) < 0
            };
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!is_right || !is_shut)) };
        }
        let mut status = 0;
        // SAFETY: the child is ours.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!((status, first(&made), first(&read)), (0, 7, 7));
    }
}
