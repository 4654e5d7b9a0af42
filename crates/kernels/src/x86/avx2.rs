//! 256-bit registers.

use std::arch::x86_64::*;

use super::Pair;
use crate::body::{body, Job, Lane};
use crate::dtype::{DType, ReduceOp};
use crate::isa::{arithmetic, plain, Compile, Kernel};
use crate::ops::{Op, Sum};

/// The loop for a pair that [`ReduceOp::supports`]. Integers run the plain code, compiled for AVX2.
pub(crate) fn kernel(dtype: DType, op: ReduceOp) -> Kernel {
    match dtype {
        DType::F16 => arithmetic::<Avx2, F16x8, 8>(op),
        DType::BF16 => arithmetic::<Avx2, BF16x16, 4>(op),
        DType::F32 => arithmetic::<Avx2, F32x8, 8>(op),
        DType::F64 => arithmetic::<Avx2, F64x4, 8>(op),
        DType::Bytes => Avx2::run::<F64x4, Sum, 8>,
        _ => plain::<Avx2>(dtype, op),
    }
}

struct Avx2;

impl Compile for Avx2 {
    unsafe fn run<L: Lane, O: Op<L::Value>, const ROWS: usize>(job: &Job<'_>) {
        #[target_feature(enable = "avx2,f16c")]
        unsafe fn run<L: Lane, O: Op<L::Value>, const ROWS: usize>(job: &Job<'_>) {
            // SAFETY: by contract.
            unsafe { body::<L, O, ROWS>(job) }
        }
        // SAFETY: by contract.
        unsafe { run::<L, O, ROWS>(job) }
    }
}

number!(__m256: _mm256_add_ps _mm256_mul_ps _mm256_min_ps _mm256_max_ps, or_nan(result, other) {
    _mm256_blendv_ps(result, other, _mm256_cmp_ps::<_CMP_UNORD_Q>(other, other))
});

number!(__m256d: _mm256_add_pd _mm256_mul_pd _mm256_min_pd _mm256_max_pd, or_nan(result, other) {
    _mm256_blendv_pd(result, other, _mm256_cmp_pd::<_CMP_UNORD_Q>(other, other))
});

lane! {
    F32x8: __m256, 32 bytes;
    load(from) { _mm256_loadu_ps(from.cast()) }
    store(to, value) { _mm256_storeu_ps(to.cast(), value) }
    stream(to, value) { _mm256_stream_ps(to.cast(), value) }
    scale(value, by) { _mm256_mul_ps(value, _mm256_set1_ps(by as f32)) }
}

lane! {
    F64x4: __m256d, 32 bytes;
    load(from) { _mm256_loadu_pd(from.cast()) }
    store(to, value) { _mm256_storeu_pd(to.cast(), value) }
    stream(to, value) { _mm256_stream_pd(to.cast(), value) }
    scale(value, by) { _mm256_mul_pd(value, _mm256_set1_pd(by)) }
}

lane! {
    F16x8: __m256, 16 bytes;
    load(from) { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
    store(to, value) { _mm_storeu_si128(to.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value)) }
    stream(to, value) { _mm_stream_si128(to.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value)) }
    scale(value, by) { _mm256_mul_ps(value, _mm256_set1_ps(by as f32)) }
}

lane! {
    BF16x16: Pair<__m256>, 32 bytes;
    load(from) { widen(_mm256_loadu_si256(from.cast())) }
    store(to, value) { _mm256_storeu_si256(to.cast(), narrow(value)) }
    stream(to, value) { _mm256_stream_si256(to.cast(), narrow(value)) }
    scale(value, by) {
        let by = _mm256_set1_ps(by as f32);
        Pair { even: _mm256_mul_ps(value.even, by), odd: _mm256_mul_ps(value.odd, by) }
    }
}

/// Safety: needs AVX2.
#[inline(always)]
unsafe fn widen(elements: __m256i) -> Pair<__m256> {
    // SAFETY: by contract.
    unsafe {
        let odd = _mm256_and_si256(elements, _mm256_set1_epi32(0xffff_0000_u32 as i32));
        Pair { even: _mm256_castsi256_ps(_mm256_slli_epi32::<16>(elements)), odd: _mm256_castsi256_ps(odd) }
    }
}

/// Safety: needs AVX2.
#[inline(always)]
unsafe fn narrow(value: Pair<__m256>) -> __m256i {
    // SAFETY: by contract.
    unsafe {
        let even = _mm256_srli_epi32::<16>(rounded(value.even));
        _mm256_blend_epi16::<0b1010_1010>(even, rounded(value.odd))
    }
}

/// The bf16 nearest to each `f32`, in the upper half; ties go to even, NaN becomes quiet.
///
/// Safety: needs AVX2.
#[inline(always)]
unsafe fn rounded(value: __m256) -> __m256i {
    // SAFETY: by contract.
    unsafe {
        let bits = _mm256_castps_si256(value);
        let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
        let nearest = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
        let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x0040_0000));
        let is_nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(value, value));
        _mm256_blendv_epi8(nearest, quiet, is_nan)
    }
}
