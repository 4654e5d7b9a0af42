//! Indices as the gaps between them: each block with as many bits per gap as its largest needs.
//!
//! A gap is the number of indices left out. First come the widths, a byte per block; then the bits of the blocks, low
//! ones first, each block beginning with a byte.
//!
//! Source: binary packing in blocks, as in Lemire and Boytsov, "Decoding billions of integers per second through
//! vectorization", 2015.

use crate::isa::Isa;

/// Gaps that share a width.
pub const GAPS: usize = 32;
/// What may be read or written beyond the end of a block's bits.
pub(super) const BEYOND: usize = 16;
const WORD_BYTES: usize = 8;
const WIDEST: u32 = 31;

/// One block's gaps, zeros behind the last.
pub(super) type Block = [u32; GAPS];

/// The most bytes that `count` indices take, and what is written beyond them.
pub fn gaps_room(count: usize) -> usize {
    count.div_ceil(GAPS) + 4 * count.next_multiple_of(GAPS) + BEYOND
}

/// Codes indices; gives the number of bytes, or None unless they ascend from 0 to `numel - 1`, no two equal.
///
/// Cost: one pass.
///
/// # Panics
/// If `out` is shorter than [`gaps_room`].
pub fn encode_gaps(indices: &[i32], numel: usize, out: &mut [u8]) -> Option<usize> {
    encode_gaps_with(Isa::best(), indices, numel, out)
}

pub(super) fn encode_gaps_with(isa: Isa, indices: &[i32], numel: usize, out: &mut [u8]) -> Option<usize> {
    assert!(out.len() >= gaps_room(indices.len()), "too little room");
    let (widths, mut rest) = out.split_at_mut(indices.len().div_ceil(GAPS));
    let (mut bytes, mut before, mut room) = (widths.len(), -1, [0; GAPS]);
    for (block, width) in indices.chunks(GAPS).zip(widths) {
        let used = gaps(isa, block, before, &mut room)?;
        before = block[block.len() - 1];
        *width = (u32::BITS - used.leading_zeros()) as u8;
        pack(isa, &room, u32::from(*width), rest);
        let selection = block_bytes(u32::from(*width), block.len());
        rest = &mut rest[selection..];
        bytes += selection;
    }
    indices.last().is_none_or(|&last| (last as usize) < numel).then_some(bytes)
}

/// Writes the gap before each index, and gives the bits that any of them has; None if one is not above that before it.
#[inline(always)]
fn gaps(isa: Isa, block: &[i32], before: i32, gaps: &mut Block) -> Option<u32> {
    match (isa, <&[i32; GAPS]>::try_from(block)) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the CPU has AVX2.
        (Isa::Avx2 | Isa::Avx512, Ok(whole)) => unsafe { super::gaps_x86::gaps(whole, before, gaps) },
        _ => gaps_plain(block, before, gaps),
    }
}

fn gaps_plain(block: &[i32], mut before: i32, gaps: &mut Block) -> Option<u32> {
    *gaps = [0; GAPS];
    let (mut used, mut ascends) = (0, true);
    for (gap, &index) in gaps.iter_mut().zip(block) {
        ascends &= index > before;
        *gap = (index as u32).wrapping_sub(before as u32).wrapping_sub(1);
        used |= *gap;
        before = index;
    }
    ascends.then_some(used)
}

/// Bytes of `count` gaps.
fn block_bytes(width: u32, count: usize) -> usize {
    (width as usize * count).div_ceil(8)
}

/// Writes the bits of a whole block; what lies beyond them is undefined.
#[inline(always)]
fn pack(isa: Isa, gaps: &Block, width: u32, out: &mut [u8]) {
    assert!(out.len() >= block_bytes(width, GAPS) + BEYOND, "a block and what is written beyond it");
    match (isa, width) {
        (_, 0) => {}
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the CPU has AVX2, and there is room.
        (Isa::Avx2 | Isa::Avx512, 1..=super::gaps_x86::PACKED) => unsafe {
            super::gaps_x86::pack(gaps, width, out.as_mut_ptr());
        },
        (_, 1..=28) => pack_by::<2>(gaps, width, out),
        _ => pack_by::<1>(gaps, width, out),
    }
}

/// Packs `TOGETHER` gaps at once: 57 bits at most, which fit a word wherever in a byte they begin.
fn pack_by<const TOGETHER: usize>(gaps: &Block, width: u32, out: &mut [u8]) {
    let (mut word, mut filled, mut at) = (0_u64, 0_u32, 0);
    for some in gaps.chunks_exact(TOGETHER) {
        let bits = some.iter().rev().fold(0, |bits, &gap| bits << width | u64::from(gap));
        word |= bits << filled;
        filled += width * TOGETHER as u32;
        out[at..at + WORD_BYTES].copy_from_slice(&word.to_le_bytes());
        let whole = filled / 8;
        at += whole as usize;
        word >>= 8 * whole;
        filled %= 8;
    }
}

/// Decodes as many indices as `out` has; false if `data` does not code so many, all below `numel`.
///
/// Cost: one pass.
pub fn decode_gaps(data: &[u8], numel: usize, out: &mut [i32]) -> bool {
    decode_gaps_with(Isa::best(), data, numel, out)
}

pub(super) fn decode_gaps_with(isa: Isa, data: &[u8], numel: usize, out: &mut [i32]) -> bool {
    let Some((widths, mut rest)) = data.split_at_checked(out.len().div_ceil(GAPS)) else { return false };
    let mut next = 0;
    for (block, &width) in out.chunks_mut(GAPS).zip(widths) {
        let width = u32::from(width);
        let bytes = block_bytes(width, block.len());
        if width > WIDEST || rest.len() < bytes {
            return false;
        }
        next = match <&mut [i32; GAPS]>::try_from(&mut *block) {
            Ok(whole) if rest.len() >= bytes + BEYOND => unpack(isa, rest, width, next, whole),
            _ => unpack_last(&rest[..bytes], width, next, block),
        };
        if next > numel as u64 {
            return false;
        }
        rest = &rest[bytes..];
    }
    rest.is_empty()
}

/// Unpacks a block that is not whole, or has nothing behind it.
fn unpack_last(bits: &[u8], width: u32, next: u64, block: &mut [i32]) -> u64 {
    let mut padded = [0; 4 * GAPS + BEYOND];
    padded[..bits.len()].copy_from_slice(bits);
    unpack_plain(&padded, width, next, block)
}

/// Writes the indices of the block that `bits` begins with; gives the least that the next one may begin with.
#[inline(always)]
fn unpack(isa: Isa, bits: &[u8], width: u32, next: u64, block: &mut [i32; GAPS]) -> u64 {
    assert!(bits.len() >= block_bytes(width, GAPS) + BEYOND, "a block and what is read beyond it");
    match (isa, width) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the CPU has AVX2, and so many bytes can be read.
        (Isa::Avx2 | Isa::Avx512, 1..=super::gaps_x86::UNPACKED) => unsafe {
            super::gaps_x86::unpack(bits.as_ptr(), width, next as u32, block)
        },
        _ => unpack_plain(bits, width, next, block),
    }
}

fn unpack_plain(bits: &[u8], width: u32, mut next: u64, block: &mut [i32]) -> u64 {
    let mask = (1_u64 << width) - 1;
    for (i, index) in block.iter_mut().enumerate() {
        let bit = i * width as usize;
        let mut word = [0; WORD_BYTES];
        word.copy_from_slice(&bits[bit / 8..bit / 8 + WORD_BYTES]);
        next += (u64::from_le_bytes(word) >> (bit % 8)) & mask;
        *index = next as i32;
        next += 1;
    }
    next
}
