//! Memory for objects: many read what is behind the mark while one writes beyond it.

use std::alloc::{alloc_zeroed, dealloc, Layout};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use tweed_proto::objects::{FileId, SMALL_BYTES};

use super::file::{most_files, Mapped};

/// Where a cache line begins, and a vector register may be loaded from.
const ALIGN: usize = 64;

/// How much memory the objects of a process may take, and do.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) most: u64,
    used: AtomicU64,
    /// There are neighbours, who map what is made from now on.
    pub(super) is_shared: AtomicBool,
    /// So many files are open, and so many may be.
    files: AtomicU64,
    most_files: u64,
}

impl Room {
    pub(super) fn new(most: u64) -> Arc<Room> {
        let (is_shared, used, files) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Room { most, used, is_shared, files, most_files: most_files() })
    }

    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    pub(super) fn has(&self, bytes: u64) -> bool {
        self.used().saturating_add(bytes) <= self.most
    }

    /// Whether so many bytes are to lie in a file.
    fn wants_file(&self, bytes: u64) -> bool {
        let is_worth_it = bytes > SMALL_BYTES && self.is_shared.load(Ordering::Relaxed);
        is_worth_it && self.files.load(Ordering::Relaxed) < self.most_files
    }
}

/// Bytes that lie where they are until nobody holds them any more, also when their object is deleted.
#[derive(Debug)]
pub struct Memory {
    start: NonNull<u8>,
    bytes: usize,
    room: Arc<Room>,
    /// In which it lies; none: on the heap.
    file: Option<Mapped>,
    /// It takes room here: it was made here, or written.
    counts: AtomicBool,
}

// SAFETY: plain bytes; who may read and write which of them is the contract of `read` and `write`.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Zeros, which take no memory before they are written. `None`: more than the store may ever hold, or than the system
    /// gives. It counts as used, whether there is room or not.
    pub(super) fn new(bytes: u64, room: &Arc<Room>) -> Option<Arc<Memory>> {
        let length = usize::try_from(bytes).ok().filter(|_| bytes <= room.most)?;
        // Where no file can be made, the heap does, and neighbours get blocks.
        let file = room.wants_file(bytes).then(|| Mapped::make(length).ok()).flatten();
        let start = match &file {
            Some(file) => file.start,
            // SAFETY: the layout has a size above 0.
            None => NonNull::new(unsafe { alloc_zeroed(layout(length)?) })?,
        };
        room.used.fetch_add(bytes, Ordering::Relaxed);
        Some(Memory::over(start, length, file, true, room))
    }

    /// What process `pid` has under that number. It counts as used there.
    pub(super) fn open(pid: u32, id: FileId, bytes: u64, room: &Arc<Room>) -> Option<Arc<Memory>> {
        let file = Mapped::open(pid, id, bytes).ok().filter(|_| room.wants_file(bytes))?;
        Some(Memory::over(file.start, bytes as usize, Some(file), false, room))
    }

    fn over(
        start: NonNull<u8>,
        bytes: usize,
        file: Option<Mapped>,
        counts: bool,
        room: &Arc<Room>,
    ) -> Arc<Memory> {
        room.files.fetch_add(u64::from(file.is_some()), Ordering::Relaxed);
        Arc::new(Memory { start, bytes, room: Arc::clone(room), file, counts: AtomicBool::new(counts) })
    }

    /// By which neighbours map it; none: its bytes lie in no file, or not all of them.
    pub(super) fn file(&self) -> Option<FileId> {
        let is_in_file = |file: &&Mapped| file.is_made_here() || !self.counts.load(Ordering::Relaxed);
        self.file.as_ref().filter(is_in_file).map(Mapped::id)
    }

    /// From now on it is written here. What was mapped takes memory of this process's own then, and its file is not all of it.
    pub(super) fn own(&self) {
        if !self.counts.swap(true, Ordering::Relaxed) {
            self.room.used.fetch_add(self.bytes as u64, Ordering::Relaxed);
        }
    }

    /// Where it begins, for as long as it is held.
    pub fn address(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Some of them, if there are that many.
    ///
    /// # Safety
    /// Nobody writes these while they are read.
    pub(super) unsafe fn read(&self, range: Range<u64>) -> Option<&[u8]> {
        let length = range.end.checked_sub(range.start)?;
        let at = self.at(range.start, length)?;
        // SAFETY: within the allocation, initialised, and not written meanwhile.
        Some(unsafe { std::slice::from_raw_parts(at, length as usize) })
    }

    /// Writes some of them; `false` if there are not that many.
    ///
    /// # Safety
    /// Nobody reads or writes these meanwhile.
    pub(super) unsafe fn write(&self, begin: u64, bytes: &[u8]) -> bool {
        let Some(at) = self.at(begin, bytes.len() as u64) else { return false };
        // SAFETY: within the allocation, and nobody else's meanwhile.
        unsafe { at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        true
    }

    /// Where so many bytes begin, if all of them are in here.
    pub(super) fn at(&self, begin: u64, length: u64) -> Option<*mut u8> {
        let end = begin.checked_add(length).filter(|&end| end <= self.bytes as u64);
        // SAFETY: within the allocation.
        end.map(|_| unsafe { self.start.as_ptr().add(begin as usize) })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            self.room.files.fetch_sub(1, Ordering::Relaxed);
        } else if let Some(layout) = layout(self.bytes) {
            // SAFETY: allocated in `new`, with this layout.
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
        if *self.counts.get_mut() {
            self.room.used.fetch_sub(self.bytes as u64, Ordering::Relaxed);
        }
    }
}

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes.max(1), ALIGN).ok()
}

/// Bytes behind the mark, on their way to another process: nobody writes them any more.
pub(super) struct Piece {
    pub(super) memory: Arc<Memory>,
    pub(super) range: Range<u64>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: what is behind the mark of a buffer is not written again; one that begins anew gets new memory.
        unsafe { self.memory.read(self.range.clone()) }.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_counts_until_the_last_holder_lets_go() {
        let room = Room::new(100);
        let memory = Memory::new(60, &room).unwrap();
        let reader = Arc::clone(&memory);
        assert!(!room.has(41) && room.has(40));
        drop(memory);
        assert_eq!(room.used(), 60);
        drop(reader);
        assert_eq!(room.used(), 0);
        assert!(Memory::new(101, &room).is_none());
    }

    #[test]
    fn what_is_mapped_counts_once_and_what_is_written_there_is_not_passed_on() {
        let (maker, reader) = (Room::new(1 << 20), Room::new(1 << 20));
        let before = Memory::new(SMALL_BYTES + 1, &maker).unwrap();
        assert_eq!(before.file(), None, "there is no neighbour");
        [&maker, &reader].into_iter().for_each(|room| room.is_shared.store(true, Ordering::Relaxed));
        let made = Memory::new(SMALL_BYTES + 1, &maker).unwrap();
        let id = made.file().unwrap();
        let mapped = Memory::open(std::process::id(), id, SMALL_BYTES + 1, &reader).unwrap();
        assert_eq!((mapped.file().map(|of| of.inode), reader.used()), (Some(id.inode), 0));
        mapped.own();
        assert_eq!((mapped.file(), reader.used()), (None, SMALL_BYTES + 1));
        drop((mapped, made, before));
        assert_eq!((maker.used(), reader.used()), (0, 0));
    }

    #[test]
    fn nothing_outside_is_read_or_written() {
        let memory = Memory::new(10, &Room::new(10)).unwrap();
        // SAFETY: nobody else has it.
        unsafe {
            assert!(memory.write(6, &[1; 4]) && !memory.write(7, &[1; 4]) && !memory.write(u64::MAX, &[1]));
            assert_eq!(memory.read(5..8), Some(&[0, 1, 1][..]));
            assert_eq!(memory.read(5..11), None);
        }
    }
}
