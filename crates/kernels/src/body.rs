//! The one loop behind every reduction.

use crate::fold::{Scale, Target};
use crate::ops::Op;
use crate::stream;

/// How elements of one dtype lie in memory, and the value they are computed in.
///
/// For plain code a value is one number; with SIMD it is a register (or a pair) of them.
///
/// Safety: pointers must be valid for `BYTES` bytes, at any alignment; the CPU must have the lane's instruction set.
pub(crate) trait Lane {
    type Value: Copy;
    /// Bytes of memory that one value stands for.
    const BYTES: usize;

    unsafe fn load(from: *const u8) -> Self::Value;
    unsafe fn store(to: *mut u8, value: Self::Value);
    unsafe fn scale(value: Self::Value, by: &Scale) -> Self::Value;

    /// Stores a block past the cache. `to` is aligned to [`stream::LINE`].
    #[inline(always)]
    unsafe fn stream<const ROWS: usize>(to: *mut u8, block: &[Self::Value; ROWS]) {
        let mut pad = Pad::zeroed();
        // SAFETY: a block fits a pad, and `to` has room for a block by contract.
        unsafe {
            store_block::<Self, ROWS>(pad.start(), block);
            stream::lines(to, &pad.0[..ROWS * Self::BYTES]);
        }
    }
}

/// The work of one call.
pub(crate) struct Job<'a> {
    pub(crate) sources: &'a [*const u8],
    pub(crate) targets: &'a [Target],
    pub(crate) bytes: usize,
    /// Bytes of one element; `bytes` is a multiple.
    pub(crate) element: usize,
    pub(crate) scale: Option<Scale>,
}

impl Job<'_> {
    /// Bytes up to the first place where streaming can start: a line of the first streaming target.
    fn head(&self) -> usize {
        let first = self.targets.iter().find(|target| target.streaming);
        let head = first.map_or(0, |target| target.ptr.addr().wrapping_neg() % stream::LINE);
        if head % self.element == 0 {
            head
        } else {
            0
        }
    }
}

/// Room for one block, where the ends of a buffer are completed to a full one.
#[repr(align(64))]
struct Pad([u8; PAD_BYTES]);

const PAD_BYTES: usize = 512;

impl Pad {
    #[inline(always)]
    fn zeroed() -> Self {
        Self([0; PAD_BYTES])
    }

    #[inline(always)]
    fn start(&mut self) -> *mut u8 {
        self.0.as_mut_ptr()
    }
}

/// Folds all sources into all targets, a block of `ROWS` values at a time.
///
/// A block stays in registers from the first source to the last target. Streaming targets that share the
/// alignment of the first one are written past the cache.
///
/// Safety: as [`fold`](crate::fold), and the CPU must have the lane's instruction set.
#[inline(always)]
pub(crate) unsafe fn body<L: Lane, O: Op<L::Value>, const ROWS: usize>(job: &Job<'_>) {
    const { assert!(ROWS * L::BYTES <= PAD_BYTES && (ROWS * L::BYTES).is_multiple_of(stream::LINE)) };
    let block_bytes = ROWS * L::BYTES;
    let head = job.head().min(job.bytes);
    let mut at = 0;
    while at < job.bytes {
        let bytes = if at < head { head } else { block_bytes.min(job.bytes - at) };
        // SAFETY: `at + bytes <= job.bytes`, and all pointers are valid for that many bytes.
        unsafe {
            if bytes == block_bytes {
                whole::<L, O, ROWS>(job, at);
            } else {
                part::<L, O, ROWS>(job, at, bytes);
            }
        }
        at += bytes;
    }
    if job.targets.iter().any(|target| target.streaming) {
        stream::fence();
    }
}

/// Safety: a whole block lies at `at` in every source and target.
#[inline(always)]
unsafe fn whole<L: Lane, O: Op<L::Value>, const ROWS: usize>(job: &Job<'_>, at: usize) {
    // SAFETY: by contract.
    unsafe {
        let mut block = load_block::<L, ROWS>(job.sources[0].add(at));
        for source in &job.sources[1..] {
            combine::<L, O, ROWS>(&mut block, source.add(at));
        }
        rescale::<L, ROWS>(&mut block, job);
        for target in job.targets {
            let to = target.ptr.add(at);
            if target.streaming && to.addr().is_multiple_of(stream::LINE) {
                L::stream(to, &block);
            } else {
                store_block::<L, ROWS>(to, &block);
            }
        }
    }
}

/// As [`whole`], for fewer bytes than a block: the rest of the block is zeros that are never stored.
///
/// Safety: `bytes` lie at `at` in every source and target; fewer than a block.
#[inline(always)]
unsafe fn part<L: Lane, O: Op<L::Value>, const ROWS: usize>(job: &Job<'_>, at: usize, bytes: usize) {
    let mut pad = Pad::zeroed();
    let pad = pad.start();
    // SAFETY: by contract; the pad holds a block.
    unsafe {
        job.sources[0].add(at).copy_to_nonoverlapping(pad, bytes);
        let mut block = load_block::<L, ROWS>(pad);
        for source in &job.sources[1..] {
            source.add(at).copy_to_nonoverlapping(pad, bytes);
            combine::<L, O, ROWS>(&mut block, pad);
        }
        rescale::<L, ROWS>(&mut block, job);
        store_block::<L, ROWS>(pad, &block);
        for target in job.targets {
            pad.copy_to_nonoverlapping(target.ptr.add(at), bytes);
        }
    }
}

/// Safety: `from` is valid for a block.
#[inline(always)]
unsafe fn load_block<L: Lane, const ROWS: usize>(from: *const u8) -> [L::Value; ROWS] {
    // SAFETY: `row < ROWS`.
    std::array::from_fn(
        #[inline(always)]
        |row| unsafe { L::load(from.add(row * L::BYTES)) },
    )
}

/// Safety: `from` is valid for a block.
#[inline(always)]
unsafe fn combine<L: Lane, O: Op<L::Value>, const ROWS: usize>(
    block: &mut [L::Value; ROWS],
    from: *const u8,
) {
    for (row, value) in block.iter_mut().enumerate() {
        // SAFETY: `row < ROWS`.
        *value = unsafe { O::apply(*value, L::load(from.add(row * L::BYTES))) };
    }
}

/// Safety: as [`Lane`].
#[inline(always)]
unsafe fn rescale<L: Lane, const ROWS: usize>(block: &mut [L::Value; ROWS], job: &Job<'_>) {
    let Some(scale) = &job.scale else { return };
    for value in block {
        // SAFETY: by contract.
        *value = unsafe { L::scale(*value, scale) };
    }
}

/// Safety: `to` is valid for a block.
#[inline(always)]
unsafe fn store_block<L: Lane + ?Sized, const ROWS: usize>(to: *mut u8, block: &[L::Value; ROWS]) {
    for (row, value) in block.iter().enumerate() {
        // SAFETY: `row < ROWS`.
        unsafe { L::store(to.add(row * L::BYTES), *value) };
    }
}
