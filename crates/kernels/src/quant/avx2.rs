//! Sixteen numbers in two registers of 256 bits.

use std::arch::x86_64::*;

use super::lanes::{low_bits, Lanes, Work, LANES};
use crate::isa::lanes;

/// Safety: the CPU must have AVX2 and BMI2.
#[target_feature(enable = "avx2,bmi2")]
pub(super) unsafe fn run<W: Work>(work: W) {
    // SAFETY: by contract.
    unsafe { work.run::<Avx2>() }
}

struct Avx2;

#[derive(Clone, Copy)]
struct Two<V>(V, V);

/// Calls the same intrinsic for both halves.
macro_rules! both {
    ($intrinsic:ident($($arg:expr),*)) => { Two($intrinsic($($arg.0),*), $intrinsic($($arg.1),*)) };
}

type Floats = Two<__m256>;
type Integers = Two<__m256i>;

lanes! { Lanes for Avx2:
    type F = Floats;
    type I = Integers;
    type D = [__m256d; 4];

    fn load(from: *const f32) -> Floats { Two(_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))) }
    fn store(to: *mut f32, value: Floats) {
        _mm256_storeu_ps(to, value.0);
        _mm256_storeu_ps(to.add(8), value.1);
    }
    fn splat(value: f32) -> Floats { Two(_mm256_set1_ps(value), _mm256_set1_ps(value)) }
    fn add(a: Floats, b: Floats) -> Floats { both!(_mm256_add_ps(a, b)) }
    fn sub(a: Floats, b: Floats) -> Floats { both!(_mm256_sub_ps(a, b)) }
    fn mul(a: Floats, b: Floats) -> Floats { both!(_mm256_mul_ps(a, b)) }
    fn min(a: Floats, b: Floats) -> Floats { both!(_mm256_min_ps(a, b)) }
    fn max(a: Floats, b: Floats) -> Floats { both!(_mm256_max_ps(a, b)) }
    fn abs(a: Floats) -> Floats {
        let sign = Self::splat(-0.0);
        both!(_mm256_andnot_ps(sign, a))
    }
    fn largest(a: Floats) -> f32 {
        let mut numbers = [0.0; LANES];
        Self::store(numbers.as_mut_ptr(), a);
        numbers.into_iter().fold(0.0, f32::max)
    }

    fn zeros() -> [__m256d; 4] { [_mm256_setzero_pd(); 4] }
    fn widened(a: Floats) -> [__m256d; 4] { widened(a) }
    fn sum_squares(sums: [__m256d; 4], a: Floats) -> [__m256d; 4] {
        let wide = widened(a);
        std::array::from_fn(
            #[inline(always)]
            |part| _mm256_add_pd(sums[part], _mm256_mul_pd(wide[part], wide[part])),
        )
    }
    fn add_sums(a: [__m256d; 4], b: [__m256d; 4]) -> [__m256d; 4] {
        std::array::from_fn(#[inline(always)] |part| _mm256_add_pd(a[part], b[part]))
    }
    fn total(sums: [__m256d; 4]) -> f64 {
        let eight = [_mm256_add_pd(sums[0], sums[2]), _mm256_add_pd(sums[1], sums[3])];
        let four = _mm256_add_pd(eight[0], eight[1]);
        let two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd::<1>(four));
        _mm_cvtsd_f64(two) + _mm_cvtsd_f64(_mm_unpackhi_pd(two, two))
    }

    fn signs(a: Floats) -> u32 {
        (_mm256_movemask_ps(a.0) | _mm256_movemask_ps(a.1) << 8) as u32
    }
    fn turn(a: Floats, bits: u32) -> Floats {
        let places = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
        let sign = _mm256_set1_epi32(i32::MIN);
        let of = |bits: u32| {
            let shifted = _mm256_sllv_epi32(_mm256_set1_epi32(bits as i32), places);
            _mm256_castsi256_ps(_mm256_and_si256(shifted, sign))
        };
        Two(_mm256_xor_ps(a.0, of(bits)), _mm256_xor_ps(a.1, of(bits >> 8)))
    }

    fn nearest(a: Floats) -> Integers { both!(_mm256_cvtps_epi32(a)) }
    fn floor(a: Floats) -> Integers {
        let low = both!(_mm256_floor_ps(a));
        both!(_mm256_cvttps_epi32(low))
    }
    fn float(a: Integers) -> Floats { both!(_mm256_cvtepi32_ps(a)) }

    fn splat_integer(value: u32) -> Integers {
        Two(_mm256_set1_epi32(value as i32), _mm256_set1_epi32(value as i32))
    }
    fn count_from(first: u32) -> Integers {
        let eight = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        let first = Self::splat_integer(first);
        Two(
            _mm256_add_epi32(eight, first.0),
            _mm256_add_epi32(_mm256_add_epi32(eight, _mm256_set1_epi32(8)), first.1),
        )
    }
    fn add_integers(a: Integers, b: Integers) -> Integers { both!(_mm256_add_epi32(a, b)) }
    fn mul_integers(a: Integers, b: Integers) -> Integers { both!(_mm256_mullo_epi32(a, b)) }
    fn xor(a: Integers, b: Integers) -> Integers { both!(_mm256_xor_si256(a, b)) }
    fn shift_right<const BY>(a: Integers) -> Integers {
        let by = _mm_cvtsi32_si128(BY as i32);
        Two(_mm256_srl_epi32(a.0, by), _mm256_srl_epi32(a.1, by))
    }

    fn store_bytes(to: *mut u8, a: Integers) {
        let mixed = _mm256_packs_epi32(a.0, a.1);
        let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(mixed);
        let bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
        _mm_storeu_si128(to.cast(), bytes);
    }
    fn load_bytes(from: *const u8) -> Integers {
        let bytes = _mm_loadu_si128(from.cast());
        Two(_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128::<8>(bytes)))
    }

    fn squeeze<const BITS>(bytes: u64) -> u64 { _pext_u64(bytes, low_bits(BITS)) }
    fn spread<const BITS>(word: u64) -> u64 { _pdep_u64(word, low_bits(BITS)) }
    fn prefetch(at: *const f32) { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
}

/// Safety: needs AVX2.
#[inline(always)]
unsafe fn widened(a: Floats) -> [__m256d; 4] {
    // SAFETY: by contract.
    unsafe {
        [
            _mm256_cvtps_pd(_mm256_castps256_ps128(a.0)),
            _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(a.0)),
            _mm256_cvtps_pd(_mm256_castps256_ps128(a.1)),
            _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(a.1)),
        ]
    }
}
