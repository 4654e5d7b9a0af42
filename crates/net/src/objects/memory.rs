//! Memory for objects: many read what is behind the mark while one writes beyond it.

use std::alloc::{alloc_zeroed, dealloc, Layout};
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use tweed_proto::objects::{FileId, Spare, SMALL_BYTES};

use super::file::{most_files, Mapped};
use crate::sync::{LockRank, Mutex};

/// Where a cache line begins, and a vector register may be loaded from.
const ALIGN: usize = 64;

/// How much memory the objects of a process may take, and do.
pub(super) struct Room {
    pub(super) most: u64,
    used: AtomicU64,
    /// So many memories there have been.
    made: AtomicU64,
    /// There are neighbours, who map what is made from now on.
    pub(super) is_shared: AtomicBool,
    /// So many files are open, and so many may be.
    files: AtomicU64,
    most_files: u64,
    /// Files that nobody reads here, for what is made or mapped next. They do not count as used, and are given up for what does.
    spare: Mutex<Spare<Mapped>>,
    /// No more of them are kept.
    is_closed: AtomicBool,
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes", self.used(), self.most)
    }
}

impl Room {
    pub(super) fn new(most: u64) -> Arc<Room> {
        let [used, made, files] = [0; 3].map(AtomicU64::new);
        Arc::new(Room {
            most,
            used,
            made,
            is_shared: AtomicBool::new(false),
            files,
            most_files: most_files(),
            spare: Mutex::new(LockRank::Spare, Spare::default()),
            is_closed: AtomicBool::new(false),
        })
    }

    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    pub(super) fn has(&self, bytes: u64) -> bool {
        self.used().saturating_add(bytes) <= self.most
    }

    /// Of the files that are kept so much stays: a quarter of the room, as far as it is free.
    fn trim(&self) {
        let free = self.most.saturating_sub(self.used());
        let most = if self.is_closed.load(Ordering::Relaxed) { 0 } else { free.min(self.most / 4) };
        let given_up = self.spare.lock().trim(most, self.most_files as usize / 4);
        drop(given_up); // no longer under the lock
    }

    /// Keeps no files: who wrote or read them may be gone.
    pub(super) fn give_up(&self) {
        let given_up = self.spare.lock().trim(0, 0);
        drop(given_up);
    }

    /// Keeps none from now on.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.give_up();
    }

    /// So many bytes count as used, whether there is room or not, for as long as what is returned is held.
    pub(super) fn take(self: &Arc<Self>, bytes: u64) -> Taken {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Taken { bytes, room: Arc::clone(self) }
    }

    /// Whether so many bytes are to lie in a file.
    fn wants_file(&self, bytes: u64) -> bool {
        let is_worth_it = bytes > SMALL_BYTES && self.is_shared.load(Ordering::Relaxed);
        is_worth_it && self.files.load(Ordering::Relaxed) < self.most_files
    }
}

/// Bytes that count as used.
#[derive(Debug)]
pub(super) struct Taken {
    bytes: u64,
    room: Arc<Room>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Bytes that lie where they are until nobody holds them any more, also when their object is deleted.
#[derive(Debug)]
pub struct Memory {
    start: NonNull<u8>,
    bytes: usize,
    /// No other one of this process ever has it, while addresses are used again.
    number: u64,
    /// What is mapped counts as a copy would: its maker may let go of it first.
    taken: Taken,
    /// In which it lies; none: on the heap.
    file: Option<Mapped>,
    /// It was mapped, and has been written since: the file is not all of it.
    is_own: AtomicBool,
}

// SAFETY: plain bytes; who may read and write which of them is the contract of `read` and `write`.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// What is in it is zeros, or what an object had that is deleted. `None`: more than the store may ever hold, or than the
    /// system gives. It counts as used, whether there is room or not.
    pub(super) fn new(bytes: u64, room: &Arc<Room>) -> Option<Arc<Memory>> {
        let length = usize::try_from(bytes).ok().filter(|_| bytes <= room.most)?;
        // Where no file can be made, the heap does, and neighbours get blocks.
        let again = || room.spare.lock().take(bytes, Mapped::renew);
        let file = room.wants_file(bytes).then(|| again().or_else(|| Mapped::make(length).ok())).flatten();
        let start = match &file {
            Some(file) => file.start,
            // SAFETY: the layout has a size above 0.
            None => NonNull::new(unsafe { alloc_zeroed(layout(length)?) })?,
        };
        Some(Memory::over(start, length, file, room))
    }

    /// What process `pid` has under that number. It counts as used here, too.
    pub(super) fn open(pid: u32, id: FileId, bytes: u64, room: &Arc<Room>) -> Option<Arc<Memory>> {
        let again = || room.spare.lock().take(bytes, |kept| kept.reopen(id));
        let open = || again().or_else(|| Mapped::open(pid, id, bytes).ok());
        let file = room.wants_file(bytes).then(open).flatten()?;
        Some(Memory::over(file.start, bytes as usize, Some(file), room))
    }

    fn over(start: NonNull<u8>, bytes: usize, file: Option<Mapped>, room: &Arc<Room>) -> Arc<Memory> {
        room.files.fetch_add(u64::from(file.is_some()), Ordering::Relaxed);
        let number = room.made.fetch_add(1, Ordering::Relaxed);
        let (taken, is_own) = (room.take(bytes as u64), AtomicBool::new(false));
        room.trim();
        Arc::new(Memory { start, bytes, number, taken, file, is_own })
    }

    /// By which neighbours map it; none: its bytes lie in no file, or not all of them.
    pub(super) fn file(&self) -> Option<FileId> {
        let is_all = |file: &&Mapped| file.is_made_here() || !self.is_own.load(Ordering::Relaxed);
        self.file.as_ref().filter(is_all).map(Mapped::id)
    }

    /// By which this process finds it itself.
    pub(super) fn here(&self) -> FileId {
        FileId { descriptor: 0, tag: self.number.into() }
    }

    /// From now on it is written here.
    pub(super) fn own(&self) {
        self.is_own.store(true, Ordering::Relaxed);
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
        // SAFETY: within the file, and nobody else's meanwhile.
        if !self.file.as_ref().is_some_and(|file| unsafe { file.write(begin, bytes) }) {
            // SAFETY: within the allocation, and nobody else's meanwhile.
            unsafe { at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
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
        if let Some(file) = self.file.take() {
            let room = &self.taken.room;
            room.files.fetch_sub(1, Ordering::Relaxed);
            if file.retire() {
                room.spare.lock().keep(file.len(), file);
                room.trim();
            }
        } else if let Some(layout) = layout(self.bytes) {
            // SAFETY: allocated in `new`, with this layout.
            unsafe { dealloc(self.start.as_ptr(), layout) };
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

    fn shared(most: u64) -> Arc<Room> {
        let room = Room::new(most);
        room.is_shared.store(true, Ordering::Relaxed);
        room
    }

    #[test]
    fn what_is_mapped_counts_at_both_and_what_is_written_there_is_not_passed_on() {
        let (maker, reader, pid) = (shared(1 << 20), shared(1 << 20), std::process::id());
        let size = SMALL_BYTES + 1;
        let made = Memory::new(size, &maker).unwrap();
        let mapped = Memory::open(pid, made.file().unwrap(), size, &reader).unwrap();
        assert_eq!((maker.used(), reader.used()), (size, size));
        // SAFETY: nobody else has it.
        assert!(unsafe { made.write(0, &[7]) });
        assert!(Memory::open(pid, mapped.file().unwrap(), size, &reader).is_some(), "it is passed on");
        drop(made);
        assert_eq!((maker.used(), reader.used()), (0, size));
        // SAFETY: as above.
        assert_eq!(unsafe { mapped.read(0..2) }, Some(&[7, 0][..]));
        mapped.own();
        assert_eq!(mapped.file(), None);
        drop(mapped);
        assert_eq!((reader.used(), reader.files.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn what_nobody_reads_at_either_end_is_used_again() {
        let (maker, reader, pid) = (shared(1 << 20), shared(1 << 20), std::process::id());
        let size = SMALL_BYTES + 1;
        let round = |value: u8| {
            let made = Memory::new(size, &maker).unwrap();
            // SAFETY: nobody else has it.
            assert!(unsafe { made.write(size - 1, &[value]) });
            let mapped = Memory::open(pid, made.file().unwrap(), size, &reader).unwrap();
            // SAFETY: nobody writes it any more.
            assert_eq!(unsafe { mapped.read(size - 1..size) }, Some(&[value][..]));
            (made, mapped)
        };
        let places = |(made, mapped): (Arc<Memory>, Arc<Memory>)| [made.address(), mapped.address()];
        let before = places(round(1));
        assert_eq!((maker.used(), reader.used()), (0, 0));
        assert_eq!(places(round(2)), before);
        let held = round(3).1;
        assert_ne!(places(round(4))[0], before[0], "it is read");
        // SAFETY: nobody writes it any more.
        assert_eq!(unsafe { held.read(size - 1..size) }, Some(&[3][..]));
    }

    #[test]
    fn a_quarter_of_the_room_is_kept_and_nothing_where_it_is_needed_or_at_the_end() {
        let size = SMALL_BYTES + 1;
        let room = shared(8 * size);
        let kept = || room.spare.lock().bytes() / size;
        let some = |count| (0..count).map(|_| Memory::new(size, &room).unwrap()).collect::<Vec<_>>();
        drop(some(4));
        assert_eq!(kept(), 1, "two are larger than a quarter, as files are of whole pages");
        let held = some(8);
        assert_eq!(kept(), 0);
        drop(held);
        assert_eq!(kept(), 1);
        room.give_up();
        assert_eq!(kept(), 0);
        room.close();
        drop(some(1));
        assert_eq!(kept(), 0);
    }

    #[test]
    fn what_is_small_or_has_no_neighbour_or_one_file_too_many_lies_on_the_heap() {
        let (alone, room) = (Room::new(1 << 20), shared(1 << 20));
        assert_eq!(Memory::new(SMALL_BYTES + 1, &alone).unwrap().file(), None);
        assert_eq!(Memory::new(SMALL_BYTES, &room).unwrap().file(), None);
        room.files.store(room.most_files, Ordering::Relaxed);
        assert_eq!(Memory::new(SMALL_BYTES + 1, &room).unwrap().file(), None);
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
