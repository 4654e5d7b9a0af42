//! Blocks of gaps in registers of 256 bits, eight gaps at a time: their bits begin and end with a byte.

use std::arch::x86_64::*;

use super::gaps::{Block, GAPS};

/// The widest gaps that [`pack`] takes: four of them and half a byte fit 64 bits.
pub(super) const PACKED: u32 = 15;
/// The widest gaps that [`unpack`] takes: wherever in a byte one begins, it ends within 32 bits.
pub(super) const UNPACKED: u32 = 25;
const EIGHT: usize = 8;

/// How eight gaps of one width come out of two times 16 bytes.
struct Way {
    /// The byte of the same half that each byte of the result comes from.
    bytes: [u8; 32],
    /// The bits before each gap in its first byte.
    shifts: [u32; EIGHT],
}

static WAYS: [Way; UNPACKED as usize + 1] = ways();

const fn ways() -> [Way; UNPACKED as usize + 1] {
    let mut ways = [const { Way { bytes: [0; 32], shifts: [0; EIGHT] } }; UNPACKED as usize + 1];
    let mut width = 1;
    while width <= UNPACKED as usize {
        let mut gap = 0;
        while gap < EIGHT {
            // The second half is loaded from the byte that its first gap begins in.
            let half = 4 * (gap / 4) * width / 8;
            let bit = gap * width - 8 * half;
            ways[width].shifts[gap] = (bit % 8) as u32;
            let mut byte = 0;
            while byte < 4 {
                ways[width].bytes[4 * gap + byte] = (bit / 8 + byte) as u8;
                byte += 1;
            }
            gap += 1;
        }
        width += 1;
    }
    ways
}

/// Writes the gap before each index, and gives the bits that any of them has; None if one is not above that before it.
///
/// Safety: the CPU has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn gaps(block: &[i32; GAPS], before: i32, gaps: &mut Block) -> Option<u32> {
    let (mut used, mut ascends) = (_mm256_setzero_si256(), _mm256_set1_epi32(-1));
    for eight in (0..GAPS).step_by(EIGHT) {
        // SAFETY: eight indices lie there; behind the first eight also from the one before on.
        unsafe {
            let each = _mm256_loadu_si256(block.as_ptr().add(eight).cast());
            let previous = if eight == 0 {
                let moved = _mm256_permutevar8x32_epi32(each, _mm256_setr_epi32(0, 0, 1, 2, 3, 4, 5, 6));
                _mm256_insert_epi32::<0>(moved, before)
            } else {
                _mm256_loadu_si256(block.as_ptr().add(eight - 1).cast())
            };
            let gap = _mm256_sub_epi32(_mm256_sub_epi32(each, previous), _mm256_set1_epi32(1));
            ascends = _mm256_and_si256(ascends, _mm256_cmpgt_epi32(each, previous));
            used = _mm256_or_si256(used, gap);
            _mm256_storeu_si256(gaps.as_mut_ptr().add(eight).cast(), gap);
        }
    }
    let ascends = _mm256_movemask_epi8(ascends) == -1;
    if ascends {
        Some(any(used))
    } else {
        None
    }
}

/// The bits that any of eight values has.
#[target_feature(enable = "avx2")]
fn any(x: __m256i) -> u32 {
    let four = _mm_or_si128(_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x));
    let two = _mm_or_si128(four, _mm_srli_si128::<8>(four));
    _mm_cvtsi128_si32(_mm_or_si128(two, _mm_srli_si128::<4>(two))) as u32
}

/// Writes the bits of a block.
///
/// Safety: the CPU has AVX2; `width` is 1 to [`PACKED`], no gap is wider; there is room for a block and
/// [`BEYOND`](super::gaps::BEYOND) bytes at `out`.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn pack(gaps: &Block, width: u32, out: *mut u8) {
    let (single, double) = (_mm_cvtsi32_si128(width as i32), _mm_cvtsi32_si128(2 * width as i32));
    let (half, rest) = (4 * width / 8, 4 * width % 8);
    for eight in 0..GAPS / EIGHT {
        // SAFETY: eight gaps take `width` bytes; two words from their first byte and from `half`, which is below
        // `width`, end at most 16 bytes beyond.
        unsafe {
            let each = _mm256_loadu_si256(gaps.as_ptr().add(EIGHT * eight).cast());
            let odd = _mm256_sll_epi64(_mm256_srli_epi64::<32>(each), single);
            let two = _mm256_or_si256(_mm256_and_si256(each, _mm256_set1_epi64x(0xffff_ffff)), odd);
            let four = _mm256_or_si256(two, _mm256_sll_epi64(_mm256_srli_si256::<8>(two), double));
            let low = _mm256_extract_epi64::<0>(four) as u64;
            let high = _mm256_extract_epi64::<2>(four) as u64;
            let to = out.add(eight * width as usize);
            to.cast::<u64>().write_unaligned(low);
            to.add(half as usize).cast::<u64>().write_unaligned(low >> (8 * half) | high << rest);
        }
    }
}

/// Writes the indices of a block; gives the least that the next one may begin with.
///
/// # Safety
/// The CPU has AVX2; `width` is 1 to [`UNPACKED`]; a block and [`BEYOND`](super::gaps::BEYOND) bytes can be read at
/// `bits`.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn unpack(bits: *const u8, width: u32, next: u32, block: &mut [i32; GAPS]) -> u64 {
    let way = &WAYS[width as usize];
    let mask = _mm256_set1_epi32((1 << width) - 1);
    let mut before = _mm256_set1_epi32(next.wrapping_sub(1) as i32);
    for eight in 0..GAPS / EIGHT {
        // SAFETY: eight gaps take `width` bytes; 16 bytes from the half of them on end at most 16 bytes beyond.
        unsafe {
            let from = bits.add(eight * width as usize);
            let (low, high) = (from.cast(), from.add(4 * width as usize / 8).cast());
            let both = _mm256_loadu2_m128i(high, low);
            let windows = _mm256_shuffle_epi8(both, _mm256_loadu_si256(way.bytes.as_ptr().cast()));
            let shifted = _mm256_srlv_epi32(windows, _mm256_loadu_si256(way.shifts.as_ptr().cast()));
            let steps = _mm256_add_epi32(_mm256_and_si256(shifted, mask), _mm256_set1_epi32(1));
            let indices = _mm256_add_epi32(before, running(steps));
            _mm256_storeu_si256(block.as_mut_ptr().add(EIGHT * eight).cast(), indices);
            before = _mm256_permutevar8x32_epi32(indices, _mm256_set1_epi32(7));
        }
    }
    u64::from(_mm256_cvtsi256_si32(before) as u32) + 1
}

/// The sum of each number and those before it.
#[target_feature(enable = "avx2")]
fn running(x: __m256i) -> __m256i {
    let two = _mm256_add_epi32(x, _mm256_slli_si256::<4>(x));
    let four = _mm256_add_epi32(two, _mm256_slli_si256::<8>(two));
    let low = _mm256_permute2x128_si256::<0x08>(four, four);
    _mm256_add_epi32(four, _mm256_shuffle_epi32::<0xff>(low))
}
