//! Indices as the gaps between them: each block with as many bits per gap as its largest needs.
//!
//! A gap is the number of indices left out. First come the widths, a byte per block; then the bits of the blocks, low
//! ones first, each block beginning with a byte.
//!
//! Source: binary packing in blocks, as in Lemire and Boytsov, "Decoding billions of integers per second through
//! vectorization", 2015.

/// Gaps that share a width.
pub const GAPS: usize = 32;
/// What may be read or written at once.
const WORD_BYTES: usize = 8;
const WIDEST: u32 = 31;

/// The most bytes that `count` indices take.
pub fn gaps_room(count: usize) -> usize {
    count.div_ceil(GAPS) + 4 * count + WORD_BYTES
}

/// Codes indices; gives the number of bytes, or None unless they ascend from 0 to `numel - 1`, no two equal.
///
/// Cost: one pass.
///
/// # Panics
///
/// If `out` is shorter than [`gaps_room`].
pub fn encode_gaps(indices: &[i32], numel: usize, out: &mut [u8]) -> Option<usize> {
    assert!(out.len() >= gaps_room(indices.len()), "too little room");
    let (widths, mut rest) = out.split_at_mut(indices.len().div_ceil(GAPS));
    let (mut bytes, mut before, mut ascends) = (widths.len(), -1, true);
    for (block, width) in indices.chunks(GAPS).zip(widths) {
        let mut gaps = [0_u32; GAPS];
        for (gap, &index) in gaps.iter_mut().zip(block) {
            ascends &= index > before;
            *gap = (index as u32).wrapping_sub(before as u32).wrapping_sub(1);
            before = index;
        }
        if !ascends {
            return None;
        }
        let used = gaps.iter().fold(0, |all, gap| all | gap);
        *width = (u32::BITS - used.leading_zeros()) as u8;
        let taken = pack(&gaps, u32::from(*width), block.len(), rest);
        rest = &mut rest[taken..];
        bytes += taken;
    }
    indices.last().is_none_or(|&last| (last as usize) < numel).then_some(bytes)
}

/// Bytes of `count` gaps.
fn block_bytes(width: u32, count: usize) -> usize {
    (width as usize * count).div_ceil(8)
}

/// Writes the bits of gaps, and zeros behind them; gives the number of bytes.
#[inline(always)]
fn pack(gaps: &[u32; GAPS], width: u32, count: usize, out: &mut [u8]) -> usize {
    match width {
        0 => {}
        1..=14 => pack_by::<4>(gaps, width, count, out),
        15..=28 => pack_by::<2>(gaps, width, count, out),
        _ => pack_by::<1>(gaps, width, count, out),
    }
    block_bytes(width, count)
}

/// The same, `TOGETHER` gaps at once: 57 bits at most, which fit a word wherever in a byte they begin.
#[inline(always)]
fn pack_by<const TOGETHER: usize>(gaps: &[u32; GAPS], width: u32, count: usize, out: &mut [u8]) {
    let (mut word, mut filled, mut at) = (0_u64, 0_u32, 0);
    for some in gaps[..count.next_multiple_of(TOGETHER)].chunks_exact(TOGETHER) {
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
    let Some((widths, mut rest)) = data.split_at_checked(out.len().div_ceil(GAPS)) else { return false };
    let mut next = 0_u64;
    for (block, &width) in out.chunks_mut(GAPS).zip(widths) {
        let width = u32::from(width);
        if width > WIDEST {
            return false;
        }
        let bytes = block_bytes(width, block.len());
        if rest.len() < bytes {
            return false;
        }
        next = unpack(rest, width, next, block);
        if next > numel as u64 {
            return false;
        }
        rest = &rest[bytes..];
    }
    rest.is_empty()
}

/// Writes the indices of the block that `bits` begins with; gives the least that the next one may begin with.
#[inline(always)]
fn unpack(bits: &[u8], width: u32, next: u64, block: &mut [i32]) -> u64 {
    let bytes = block_bytes(width, block.len());
    if bits.len() >= bytes + WORD_BYTES {
        // SAFETY: just compared.
        return unsafe { unpack_all(bits.as_ptr(), width, next, block) };
    }
    let mut padded = [0; 4 * GAPS + WORD_BYTES];
    padded[..bytes].copy_from_slice(&bits[..bytes]);
    // SAFETY: a block's bits and a word fit the padded copy.
    unsafe { unpack_all(padded.as_ptr(), width, next, block) }
}

/// # Safety
///
/// The bits of the block, and a word behind them, can be read at `from`.
#[inline(always)]
unsafe fn unpack_all(from: *const u8, width: u32, mut next: u64, block: &mut [i32]) -> u64 {
    let mask = (1_u64 << width) - 1;
    for (i, index) in block.iter_mut().enumerate() {
        let bit = i * width as usize;
        // SAFETY: by contract.
        let word = unsafe { from.add(bit / 8).cast::<u64>().read_unaligned() };
        let gap = (u64::from_le(word) >> (bit % 8)) & mask;
        *index = (next + gap) as i32;
        next += gap + 1;
    }
    next
}
