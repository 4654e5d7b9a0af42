//! Rounding, NaN, zeros, wrapping: the choices the documentation states.

use half::{bf16, f16};

use crate::dtype::{DType, ReduceOp};
use crate::fold::{fold_with, Target};
use crate::isa::Isa;

/// Folds one element per source, on every instruction set, and gives the one result.
fn fold<T: Copy + PartialOrd + std::fmt::Debug>(
    dtype: DType,
    op: ReduceOp,
    values: &[T],
    scale: Option<f64>,
) -> T {
    let results = Isa::available().map(|isa| {
        let mut result = values[0];
        let sources: Vec<_> = values.iter().map(|value| std::ptr::from_ref(value).cast()).collect();
        let into = [Target { ptr: std::ptr::from_mut(&mut result).cast(), streaming: false }];
        assert_eq!(size_of::<T>(), dtype.size());
        // SAFETY: every pointer is to one element.
        unsafe { fold_with(isa, (dtype, op), &sources, &into, 1, scale) };
        result
    });
    let results: Vec<_> = results.collect();
    let same = |a: T, b: T| a == b || (a.partial_cmp(&a).is_none() && b.partial_cmp(&b).is_none());
    assert!(results.iter().all(|&result| same(result, results[0])), "{results:?}");
    results[0]
}

fn sum_f16(values: &[f32]) -> f32 {
    let values: Vec<_> = values.iter().map(|&x| f16::from_f32(x)).collect();
    fold(DType::F16, ReduceOp::Sum, &values, None).to_f32()
}

fn sum_bf16(values: &[f32]) -> f32 {
    let values: Vec<_> = values.iter().map(|&x| bf16::from_f32(x)).collect();
    fold(DType::BF16, ReduceOp::Sum, &values, None).to_f32()
}

#[test]
fn halves_round_once_at_the_end() {
    // Each step of 1 alone would be a tie that falls back to even.
    assert_eq!(sum_f16(&[2048.0, 1.0, 1.0]), 2050.0);
    assert_eq!(sum_bf16(&[256.0, 1.0, 1.0]), 258.0);
}

#[test]
fn ties_go_to_even() {
    assert_eq!(sum_f16(&[2048.0, 1.0]), 2048.0);
    assert_eq!(sum_f16(&[2050.0, 1.0]), 2052.0);
    assert_eq!(sum_bf16(&[256.0, 1.0]), 256.0);
    assert_eq!(sum_bf16(&[258.0, 1.0]), 260.0);
}

#[test]
fn halves_overflow_to_infinity_and_underflow_gradually() {
    assert_eq!(sum_f16(&[65504.0, 15.0]), 65504.0);
    assert_eq!(sum_f16(&[65504.0, 16.0]), f32::INFINITY);
    assert_eq!(sum_bf16(&[f32::from_bits(0x7f7f_0000), f32::from_bits(0x7f00_0000)]), f32::INFINITY);
    assert_eq!(fold(DType::F16, ReduceOp::Sum, &[f16::from_bits(2)], Some(0.5)).to_bits(), 1);
    assert_eq!(fold(DType::BF16, ReduceOp::Sum, &[bf16::from_bits(2)], Some(0.5)).to_bits(), 1);
}

#[test]
fn every_half_survives_the_way_through_f32() {
    for bits in 0..=u16::MAX {
        let back = fold(DType::F16, ReduceOp::Sum, &[f16::from_bits(bits)], Some(1.0));
        assert!(back.to_bits() == bits || (back.is_nan() && f16::from_bits(bits).is_nan()), "{bits:#x}");
        let back = fold(DType::BF16, ReduceOp::Sum, &[bf16::from_bits(bits)], Some(1.0));
        assert!(back.to_bits() == bits || (back.is_nan() && bf16::from_bits(bits).is_nan()), "{bits:#x}");
    }
}

#[test]
fn nan_in_any_source_gives_nan() {
    for &op in ReduceOp::ALL.iter().filter(|op| op.supports(DType::F64).is_ok()) {
        for place in 0..3 {
            let mut values = [1.0_f64; 3];
            values[place] = f64::NAN;
            assert!(fold(DType::F64, op, &values, None).is_nan(), "{op} {place}");
            assert!(fold(DType::F32, op, &values.map(|x| x as f32), None).is_nan(), "{op} {place}");
            assert!(fold(DType::F16, op, &values.map(f16::from_f64), None).is_nan(), "{op} {place}");
            assert!(fold(DType::BF16, op, &values.map(bf16::from_f64), None).is_nan(), "{op} {place}");
        }
    }
}

#[test]
fn of_equal_zeros_min_and_max_keep_the_first() {
    for op in [ReduceOp::Min, ReduceOp::Max] {
        assert!(fold(DType::F32, op, &[-0.0_f32, 0.0], None).is_sign_negative());
        assert!(fold(DType::F32, op, &[0.0_f32, -0.0], None).is_sign_positive());
        assert!(fold(DType::F64, op, &[-0.0_f64, 0.0], None).is_sign_negative());
    }
}

#[test]
fn negative_zero_survives_a_sum_of_negative_zeros() {
    assert!(fold(DType::F32, ReduceOp::Sum, &[-0.0_f32, -0.0], None).is_sign_negative());
    assert!(fold(DType::F32, ReduceOp::Sum, &[-0.0_f32, 0.0], None).is_sign_positive());
}

#[test]
fn sums_are_taken_from_the_first_source_to_the_last() {
    assert_eq!(fold(DType::F32, ReduceOp::Sum, &[1e8_f32, -1e8, 1.0], None), 1.0);
    assert_eq!(fold(DType::F32, ReduceOp::Sum, &[1.0_f32, 1e8, -1e8], None), 0.0);
}

#[test]
fn integers_wrap_and_their_averages_truncate() {
    assert_eq!(fold(DType::I8, ReduceOp::Sum, &[127_i8, 1], None), -128);
    assert_eq!(fold(DType::U8, ReduceOp::Prod, &[16_u8, 16], None), 0);
    assert_eq!(fold(DType::I32, ReduceOp::Avg, &[-3_i32, -4], Some(0.5)), -3);
    assert_eq!(fold(DType::I64, ReduceOp::Avg, &[i64::MAX - 5, 2, 3], Some(1.0 / 3.0)), i64::MAX / 3);
    assert_eq!(fold(DType::I8, ReduceOp::Avg, &[100_i8], Some(1.0 / 200.0)), 0);
}

#[test]
fn averages_of_integers_are_exact_for_any_number_of_ranks() {
    for n in (1..100_000_u64).step_by(7) {
        assert_eq!(fold(DType::U64, ReduceOp::Avg, &[n * 12_345], Some(1.0 / n as f64)), 12_345);
    }
}

#[test]
fn scaled_integers_truncate_and_saturate() {
    assert_eq!(fold(DType::I16, ReduceOp::PremulSum, &[7_i16], Some(-0.5)), -3);
    assert_eq!(fold(DType::I16, ReduceOp::PremulSum, &[7_i16], Some(1e9)), i16::MAX);
    assert_eq!(fold(DType::U16, ReduceOp::PremulSum, &[7_u16], Some(-1.0)), 0);
}

#[test]
fn any_byte_but_zero_is_true_and_results_are_zero_or_one() {
    assert_eq!(fold(DType::Bool, ReduceOp::Sum, &[0_u8, 2], None), 1);
    assert_eq!(fold(DType::Bool, ReduceOp::Prod, &[1_u8, 2], None), 1);
    assert_eq!(fold(DType::Bool, ReduceOp::BitXor, &[4_u8, 2], None), 0);
}
