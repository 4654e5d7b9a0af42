//! 512-bit registers.

use std::arch::x86_64::*;

use super::avx2;
use super::Pair;
use crate::body::{body, Job, Lane};
use crate::dtype::{DType, ReduceOp};
use crate::isa::{arithmetic, Compile, Kernel};
use crate::ops::{Op, Sum};

/// The loop for a pair that [`ReduceOp::supports`]. Integers run as with AVX2.
pub(crate) fn kernel(dtype: DType, op: ReduceOp) -> Kernel {
    match dtype {
        DType::F16 => arithmetic::<Avx512, F16x16, 8>(op),
        DType::BF16 => arithmetic::<Avx512, BF16x32, 4>(op),
        DType::F32 => arithmetic::<Avx512, F32x16, 8>(op),
        DType::F64 => arithmetic::<Avx512, F64x8, 8>(op),
        DType::Bytes => Avx512::run::<F64x8, Sum, 8>,
        _ => avx2::kernel(dtype, op),
    }
}

struct Avx512;

impl Compile for Avx512 {
    unsafe fn run<L: Lane, O: Op<L::Value>, const ROWS: usize>(job: &Job<'_>) {
        #[target_feature(enable = "avx2,f16c,avx512f")]
        unsafe fn run<L: Lane, O: Op<L::Value>, const ROWS: usize>(job: &Job<'_>) {
            // SAFETY: by contract.
            unsafe { body::<L, O, ROWS>(job) }
        }
        // SAFETY: by contract.
        unsafe { run::<L, O, ROWS>(job) }
    }
}

number!(__m512: _mm512_add_ps _mm512_mul_ps _mm512_min_ps _mm512_max_ps, or_nan(result, other) {
    _mm512_mask_mov_ps(result, _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(other, other), other)
});

number!(__m512d: _mm512_add_pd _mm512_mul_pd _mm512_min_pd _mm512_max_pd, or_nan(result, other) {
    _mm512_mask_mov_pd(result, _mm512_cmp_pd_mask::<_CMP_UNORD_Q>(other, other), other)
});

lane! {
    F32x16: __m512, 64 bytes;
    load(from) { _mm512_loadu_ps(from.cast()) }
    store(to, value) { _mm512_storeu_ps(to.cast(), value) }
    stream(to, value) { _mm512_stream_ps(to.cast(), value) }
    scale(value, by) { _mm512_mul_ps(value, _mm512_set1_ps(by as f32)) }
}

lane! {
    F64x8: __m512d, 64 bytes;
    load(from) { _mm512_loadu_pd(from.cast()) }
    store(to, value) { _mm512_storeu_pd(to.cast(), value) }
    stream(to, value) { _mm512_stream_pd(to.cast(), value) }
    scale(value, by) { _mm512_mul_pd(value, _mm512_set1_pd(by)) }
}

lane! {
    F16x16: __m512, 32 bytes;
    load(from) { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    store(to, value) { _mm256_storeu_si256(to.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value)) }
    stream(to, value) { _mm256_stream_si256(to.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value)) }
    scale(value, by) { _mm512_mul_ps(value, _mm512_set1_ps(by as f32)) }
}

lane! {
    BF16x32: Pair<__m512>, 64 bytes;
    load(from) { widen(_mm512_loadu_si512(from.cast())) }
    store(to, value) { _mm512_storeu_si512(to.cast(), narrow(value)) }
    stream(to, value) { _mm512_stream_si512(to.cast(), narrow(value)) }
    scale(value, by) {
        let by = _mm512_set1_ps(by as f32);
        Pair { even: _mm512_mul_ps(value.even, by), odd: _mm512_mul_ps(value.odd, by) }
    }
}

/// Safety: needs AVX-512 F.
#[inline(always)]
unsafe fn widen(elements: __m512i) -> Pair<__m512> {
    // SAFETY: by contract.
    unsafe {
        let odd = _mm512_and_si512(elements, _mm512_set1_epi32(0xffff_0000_u32 as i32));
        Pair { even: _mm512_castsi512_ps(_mm512_slli_epi32::<16>(elements)), odd: _mm512_castsi512_ps(odd) }
    }
}

/// Safety: needs AVX-512 F.
#[inline(always)]
unsafe fn narrow(value: Pair<__m512>) -> __m512i {
    // SAFETY: by contract.
    unsafe {
        let even = _mm512_srli_epi32::<16>(rounded(value.even));
        let odd = _mm512_and_si512(rounded(value.odd), _mm512_set1_epi32(0xffff_0000_u32 as i32));
        _mm512_or_si512(even, odd)
    }
}

/// As [`avx2`]'s: bf16 in the upper half, ties to even, NaN quiet.
///
/// Safety: needs AVX-512 F.
#[inline(always)]
unsafe fn rounded(value: __m512) -> __m512i {
    // SAFETY: by contract.
    unsafe {
        let bits = _mm512_castps_si512(value);
        let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
        let nearest = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
        let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(value, value);
        _mm512_mask_or_epi32(nearest, is_nan, bits, _mm512_set1_epi32(0x0040_0000))
    }
}
