//! What a fork of the process gets of the engine: private copies of the memory that users hold, and nothing else.
//!
//! # Theory of operation
//!
//! A plain fork would give the child all the engine holds: memory that it shares with the parent and its peers, so that
//! a write or a `free` in the child changes tensors of the parent; and descriptors of its sockets, so that the
//! connections of a dead rank stay open as long as any of its children lives. Users fork without knowing it (a worker
//! of a `DataLoader` is a fork). So one registry knows every mapping, the blocks of it that users hold, and every
//! socket, and three handlers (`pthread_atfork`) act on it:
//!
//! - *prepare* takes the registry's lock: while a fork is under way, nothing is mapped, lent or registered. If users
//!   hold blocks, it makes a pipe.
//! - *child* runs before anything else does in the child. Each block that a user holds becomes private memory at the same
//!   address, with the content at the fork. All other engine memory becomes inaccessible. The socket behind each
//!   descriptor is replaced by `/dev/null`, so that a later drop closes no stranger's descriptor. It may only use what is
//!   safe after a fork of many threads: system calls and walks over the registry, no allocation.
//! - *parent* waits until the child has copied: the pipe's other end is closed, also by the child's death, or [`PATIENCE`]
//!   is over. Else what the forking thread does next would be seen by the child. Then it releases the lock.
//!
//! A fork thus copies what users hold. Beyond [`MOST_COPIED`] that would stop the parent for too long, and the child
//! gets a private mapping of the file instead: its writes stay its own, but a page that it has not written shows what
//! the parent and its peers write there later, and zeros once the parent has freed the block. Objects get such a mapping
//! in any case: each has a file of its own, and what is read of it is not written again. Such a file is used for another
//! object only if there was no fork while it was in use ([`Registry::forks`]).
//!
//! `vfork` and `posix_spawn` (Python's `subprocess`) run no handlers and cost nothing; the kernel closes the
//! descriptors at `exec`. Not registered are the epoll instance, the event descriptors and the descriptors of processes:
//! a child that holds them keeps no connection and no memory alive. A socket that another thread makes during the
//! fork, between `accept` and its registration, is missed.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

mod private_copy;

use crate::sync::{LockRank, Mutex, MutexGuard};
use private_copy::keep_only_lent;

/// A fork copies at most so many bytes.
const MOST_COPIED: usize = 1 << 30;
/// The parent waits at most so long for the child's copy.
const PATIENCE: Duration = Duration::from_secs(10);

static REGISTRY: Mutex<Registry> = Mutex::new(LockRank::ForkRegistry, Registry::new());
static UNDER_WAY: UnderWay = UnderWay(UnsafeCell::new(None));

/// A mapping of the engine.
pub(crate) struct Region {
    bytes: usize,
    /// The file behind it, if users hold blocks of it.
    file: Option<RawFd>,
    /// The blocks that users hold: length by offset.
    lent: BTreeMap<usize, usize>,
    /// What is read there is not written again, so that no copy is needed.
    is_settled: bool,
}

/// What tells an open file from another that has the same descriptor later.
type Identity = (libc::dev_t, libc::ino_t);

pub(crate) struct Registry {
    /// Mappings, by their address.
    regions: BTreeMap<usize, Region>,
    descriptors: BTreeMap<RawFd, Identity>,
    /// What is listed is the parent's, and has been dealt with.
    forked: bool,
    /// How many forks there were, this process's own among them.
    forks: u64,
}

/// A fork between its first handler and its last.
struct Fork {
    registry: MutexGuard<'static, Registry>,
    /// Ends to read from and to write to.
    pipe: Option<[RawFd; 2]>,
}

/// Touched by handlers only.
struct UnderWay(UnsafeCell<Option<Fork>>);

// SAFETY: only the thread that holds the registry's lock, from `prepare` on, touches it.
unsafe impl Sync for UnderWay {}

impl Registry {
    const fn new() -> Registry {
        Registry { regions: BTreeMap::new(), descriptors: BTreeMap::new(), forked: false, forks: 0 }
    }

    /// From now on forks deal with a mapping; with its `file` if blocks of it will be lent.
    pub(crate) fn add(&mut self, base: *mut u8, bytes: u64, file: Option<RawFd>) {
        self.begin_anew();
        let (bytes, lent) = (bytes as usize, BTreeMap::new());
        self.regions.insert(base as usize, Region { bytes, file, lent, is_settled: false });
    }

    /// A mapping of a file of its own, all of which users hold, and of which nobody writes again what is read.
    pub(crate) fn add_settled(&mut self, base: *mut u8, bytes: u64, file: RawFd) {
        self.add(base, bytes, Some(file));
        self.lend(base, 0, bytes);
        self.regions.entry(base as usize).and_modify(|region| region.is_settled = true);
    }

    /// It is about to be unmapped.
    pub(crate) fn remove(&mut self, base: *mut u8) {
        self.regions.remove(&(base as usize));
    }

    /// The mapping at `base` is this process's own, and not what a fork has left of its parent's.
    pub(crate) fn owns(&self, base: *mut u8) -> bool {
        !self.forked && self.regions.contains_key(&(base as usize))
    }

    /// A user holds a block of the mapping at `base`.
    pub(crate) fn lend(&mut self, base: *mut u8, offset: u64, bytes: u64) {
        if let Some(region) = self.regions.get_mut(&(base as usize)) {
            region.lent.insert(offset as usize, bytes as usize);
        }
    }

    /// The user has given it back; `false` if no user of this process holds a block there.
    pub(crate) fn take_back(&mut self, base: *mut u8, offset: u64) -> bool {
        let region = if self.forked { None } else { self.regions.get_mut(&(base as usize)) };
        region.is_some_and(|r| r.lent.remove(&(offset as usize)).is_some())
    }

    /// How often this process, and those that it is a fork of, have been forked. A child holds what was in use when it changed.
    pub(crate) fn forks(&self) -> u64 {
        self.forks
    }

    /// What a fork is to copy.
    fn lent_bytes(&self) -> usize {
        self.regions.values().filter(|r| !r.is_settled).flat_map(|r| r.lent.values()).sum()
    }

    /// An engine that is started in a child has a registry of its own.
    fn begin_anew(&mut self) {
        if self.forked {
            *self = Registry { forks: self.forks, ..Registry::new() };
        }
    }
}

/// Nothing is forked, mapped or lent while the guard lives. No other lock may be taken meanwhile.
pub(crate) fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock()
}

/// Forks of this process give up this socket. To be called where one is made; closing it needs no call.
pub(crate) fn shut_in_children(socket: &impl AsRawFd) {
    let descriptor = socket.as_raw_fd();
    let Some(identity) = identity(descriptor) else { return };
    let mut registry = registry();
    registry.begin_anew();
    registry.descriptors.insert(descriptor, identity);
}

/// Has the handlers called at each fork of this process.
pub(crate) fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<i32> = OnceLock::new();
    // SAFETY: the handlers are functions of this library, which is never unloaded.
    match INSTALLED.get_or_init(|| unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) })
    {
        0 => Ok(()),
        &code => Err(io::Error::from_raw_os_error(code)),
    }
}

extern "C" fn prepare() {
    let mut registry = registry();
    registry.forks += 1;
    let copies = !registry.forked && registry.lent_bytes() > 0;
    let fork = Fork { registry, pipe: copies.then(pipe).flatten() };
    // SAFETY: this thread holds the lock, so no other is between its handlers.
    unsafe { *UNDER_WAY.0.get() = Some(fork) };
}

extern "C" fn parent() {
    // SAFETY: as in `prepare`, whose lock this thread still holds.
    let Some(fork) = (unsafe { (*UNDER_WAY.0.get()).take() }) else { return };
    if let Some([read, write]) = fork.pipe {
        close(write);
        wait_for_hangup(read, Instant::now() + PATIENCE);
        close(read);
    }
}

extern "C" fn child() {
    // SAFETY: as in `prepare`: the child's only thread is the one that held the lock.
    let Some(mut fork) = (unsafe { (*UNDER_WAY.0.get()).take() }) else { return };
    if !fork.registry.forked {
        let copy = fork.registry.lent_bytes() <= MOST_COPIED;
        for (&base, region) in &fork.registry.regions {
            // SAFETY: listed regions are mapped, and nothing else runs in this process.
            unsafe { keep_only_lent(base, region, copy && !region.is_settled) };
        }
        shut(&fork.registry.descriptors);
        fork.registry.forked = true;
    }
    if let Some([read, write]) = fork.pipe {
        close(read);
        close(write);
    }
}

/// Puts `/dev/null` in the place of each descriptor that still is what it was.
fn shut(descriptors: &BTreeMap<RawFd, Identity>) {
    // SAFETY: plain system calls. Where nothing can be opened, the descriptors are closed.
    let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    for (&descriptor, &expected) in descriptors {
        if identity(descriptor) != Some(expected) {
            continue;
        }
        // SAFETY: the descriptor is the engine's.
        if null < 0 || unsafe { libc::dup3(null, descriptor, libc::O_CLOEXEC) } < 0 {
            close(descriptor);
        }
    }
    if null >= 0 {
        close(null);
    }
}

fn identity(descriptor: RawFd) -> Option<Identity> {
    // SAFETY: all zero is a valid `stat` to be filled in.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a plain question; a descriptor that is not open is an error.
    (unsafe { libc::fstat(descriptor, &mut stat) } == 0).then_some((stat.st_dev, stat.st_ino))
}

/// `None` if no descriptors are left: then the parent does not wait.
fn pipe() -> Option<[RawFd; 2]> {
    let mut ends = [-1; 2];
    // SAFETY: room for two descriptors.
    (unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } == 0).then_some(ends)
}

fn wait_for_hangup(read: RawFd, until: Instant) {
    loop {
        let left = until.saturating_duration_since(Instant::now()).as_millis() as i32;
        let mut poll = libc::pollfd { fd: read, events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry.
        let got = unsafe { libc::poll(&mut poll, 1, left) };
        let interrupted = got < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
        if !interrupted {
            return;
        }
    }
}

fn close(descriptor: RawFd) {
    // SAFETY: the caller owns it.
    unsafe { libc::close(descriptor) };
}

#[cfg(test)]
mod tests;
