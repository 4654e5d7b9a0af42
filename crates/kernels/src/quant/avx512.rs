//! Sixteen numbers in a register of 512 bits.

use std::arch::x86_64::*;

use super::lanes::{low_bits, Lanes, Work};
use crate::isa::lanes;

/// Safety: the CPU must have AVX-512 F, AVX2 and BMI2.
#[target_feature(enable = "avx2,bmi2,avx512f")]
pub(super) unsafe fn run<W: Work>(work: W) {
    // SAFETY: by contract.
    unsafe { work.run::<Avx512>() }
}

struct Avx512;

lanes! { Lanes for Avx512:
    type F = __m512;
    type I = __m512i;
    type D = [__m512d; 2];

    fn load(from: *const f32) -> __m512 { _mm512_loadu_ps(from) }
    fn store(to: *mut f32, value: __m512) { _mm512_storeu_ps(to, value) }
    fn splat(value: f32) -> __m512 { _mm512_set1_ps(value) }
    fn add(a: __m512, b: __m512) -> __m512 { _mm512_add_ps(a, b) }
    fn sub(a: __m512, b: __m512) -> __m512 { _mm512_sub_ps(a, b) }
    fn mul(a: __m512, b: __m512) -> __m512 { _mm512_mul_ps(a, b) }
    fn min(a: __m512, b: __m512) -> __m512 { _mm512_min_ps(a, b) }
    fn max(a: __m512, b: __m512) -> __m512 { _mm512_max_ps(a, b) }
    fn abs(a: __m512) -> __m512 { _mm512_abs_ps(a) }
    fn largest(a: __m512) -> f32 { _mm512_reduce_max_ps(a) }

    fn zeros() -> [__m512d; 2] { [_mm512_setzero_pd(); 2] }
    fn widened(a: __m512) -> [__m512d; 2] { widened(a) }
    fn sum_squares(sums: [__m512d; 2], a: __m512) -> [__m512d; 2] {
        let wide = widened(a);
        [_mm512_fmadd_pd(wide[0], wide[0], sums[0]), _mm512_fmadd_pd(wide[1], wide[1], sums[1])]
    }
    fn add_sums(a: [__m512d; 2], b: [__m512d; 2]) -> [__m512d; 2] {
        [_mm512_add_pd(a[0], b[0]), _mm512_add_pd(a[1], b[1])]
    }
    fn total(sums: [__m512d; 2]) -> f64 {
        let eight = _mm512_add_pd(sums[0], sums[1]);
        let four = _mm256_add_pd(_mm512_castpd512_pd256(eight), _mm512_extractf64x4_pd::<1>(eight));
        let two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd::<1>(four));
        _mm_cvtsd_f64(two) + _mm_cvtsd_f64(_mm_unpackhi_pd(two, two))
    }

    fn signs(a: __m512) -> u32 {
        u32::from(_mm512_cmplt_epi32_mask(_mm512_castps_si512(a), _mm512_setzero_si512()))
    }
    fn turn(a: __m512, bits: u32) -> __m512 {
        let a = _mm512_castps_si512(a);
        _mm512_castsi512_ps(_mm512_mask_xor_epi32(a, bits as u16, a, _mm512_set1_epi32(i32::MIN)))
    }

    fn nearest(a: __m512) -> __m512i { _mm512_cvtps_epi32(a) }
    fn floor(a: __m512) -> __m512i {
        _mm512_cvt_roundps_epi32::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(a)
    }
    fn float(a: __m512i) -> __m512 { _mm512_cvtepi32_ps(a) }

    fn splat_integer(value: u32) -> __m512i { _mm512_set1_epi32(value as i32) }
    fn count_from(first: u32) -> __m512i {
        let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        _mm512_add_epi32(lanes, _mm512_set1_epi32(first as i32))
    }
    fn add_integers(a: __m512i, b: __m512i) -> __m512i { _mm512_add_epi32(a, b) }
    fn mul_integers(a: __m512i, b: __m512i) -> __m512i { _mm512_mullo_epi32(a, b) }
    fn xor(a: __m512i, b: __m512i) -> __m512i { _mm512_xor_si512(a, b) }
    fn shift_right<const BY>(a: __m512i) -> __m512i { _mm512_srli_epi32::<BY>(a) }

    fn store_bytes(to: *mut u8, a: __m512i) { _mm_storeu_si128(to.cast(), _mm512_cvtepi32_epi8(a)) }
    fn load_bytes(from: *const u8) -> __m512i { _mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast())) }

    fn squeeze<const BITS>(bytes: u64) -> u64 { _pext_u64(bytes, low_bits(BITS)) }
    fn spread<const BITS>(word: u64) -> u64 { _pdep_u64(word, low_bits(BITS)) }
    fn prefetch(at: *const f32) { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
}

/// Safety: needs AVX-512 F.
#[inline(always)]
unsafe fn widened(a: __m512) -> [__m512d; 2] {
    // SAFETY: by contract.
    unsafe {
        let high = _mm512_extractf64x4_pd::<1>(_mm512_castps_pd(a));
        [_mm512_cvtps_pd(_mm512_castps512_ps256(a)), _mm512_cvtps_pd(_mm256_castpd_ps(high))]
    }
}
