//! Lanes of 256 and 512 bits.

use std::arch::x86_64::*;

use super::lanes::{Lanes, Work, MAGNITUDE};
use crate::isa::lanes;

/// Safety: as [`Work::run`].
#[target_feature(enable = "avx2,popcnt")]
pub(crate) unsafe fn avx2<W: Work>(work: W) -> W::Output {
    // SAFETY: by contract.
    unsafe { work.run::<Avx2>() }
}

/// Safety: as [`Work::run`].
#[target_feature(enable = "avx2,popcnt,avx512f")]
pub(crate) unsafe fn avx512<W: Work>(work: W) -> W::Output {
    // SAFETY: by contract.
    unsafe { work.run::<Avx512>() }
}

pub(crate) struct Avx2;

/// For each mask of 8 lanes: which lane goes to each place, a byte per place.
static ORDER: [u64; 256] = order();

const fn order() -> [u64; 256] {
    let mut orders = [0; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut lane, mut place) = (0, 0);
        while lane < 8 {
            if mask >> lane & 1 == 1 {
                orders[mask] |= (lane as u64) << (8 * place);
                place += 1;
            }
            lane += 1;
        }
        mask += 1;
    }
    orders
}

lanes! { Lanes for Avx2:
    const WIDTH: usize = 8;
    type Row = __m256i;

    fn load(from: *const f32) -> __m256i { _mm256_loadu_si256(from.cast()) }
    fn store(to: *mut f32, row: __m256i) { _mm256_storeu_si256(to.cast(), row) }
    fn add(a: __m256i, b: __m256i) -> __m256i {
        _mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b)))
    }
    fn count_from(first: i32) -> __m256i {
        _mm256_add_epi32(_mm256_set1_epi32(first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
    }
    fn above(row: __m256i, magnitude: i32) -> u32 {
        let keys = _mm256_and_si256(row, _mm256_set1_epi32(MAGNITUDE as i32));
        let above = _mm256_cmpgt_epi32(keys, _mm256_set1_epi32(magnitude));
        _mm256_movemask_ps(_mm256_castsi256_ps(above)) as u32
    }
    fn without(row: __m256i, mask: u32) -> __m256i {
        let bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
        let set = _mm256_and_si256(_mm256_set1_epi32(mask as i32), bits);
        _mm256_andnot_si256(_mm256_cmpeq_epi32(set, bits), row)
    }
    fn pack(to: *mut f32, row: __m256i, mask: u32) {
        // A mask has 8 bits.
        let order = _mm_cvtsi64_si128(*ORDER.get_unchecked(mask as usize) as i64);
        let packed = _mm256_permutevar8x32_epi32(row, _mm256_cvtepu8_epi32(order));
        _mm256_storeu_si256(to.cast(), packed);
    }
}

pub(crate) struct Avx512;

lanes! { Lanes for Avx512:
    const WIDTH: usize = 16;
    type Row = __m512i;

    fn load(from: *const f32) -> __m512i { _mm512_loadu_si512(from.cast()) }
    fn store(to: *mut f32, row: __m512i) { _mm512_storeu_si512(to.cast(), row) }
    fn add(a: __m512i, b: __m512i) -> __m512i {
        _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b)))
    }
    fn count_from(first: i32) -> __m512i {
        let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        _mm512_add_epi32(_mm512_set1_epi32(first), lanes)
    }
    fn above(row: __m512i, magnitude: i32) -> u32 {
        let keys = _mm512_and_si512(row, _mm512_set1_epi32(MAGNITUDE as i32));
        u32::from(_mm512_cmpgt_epi32_mask(keys, _mm512_set1_epi32(magnitude)))
    }
    fn without(row: __m512i, mask: u32) -> __m512i { _mm512_maskz_mov_epi32(!mask as __mmask16, row) }
    fn pack(to: *mut f32, row: __m512i, mask: u32) {
        // The instruction that packs into memory is slow on some CPUs, so it packs into a register.
        _mm512_storeu_si512(to.cast(), _mm512_maskz_compress_epi32(mask as __mmask16, row));
    }
}
