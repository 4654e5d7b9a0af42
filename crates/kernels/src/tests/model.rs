//! The model: one element at a time, integers in `i128`.

use half::{bf16, f16};

use crate::dtype::{DType, ReduceOp};

/// What a fold must give.
pub(super) fn fold(dtype: DType, op: ReduceOp, sources: &[Vec<u8>], scale: Option<f64>) -> Vec<u8> {
    let element = |at: usize| {
        let elements = sources.iter().map(|source| &source[at..at + dtype.size()]);
        match dtype {
            DType::F64 => float64(op, elements.map(read_f64).collect(), scale).to_le_bytes().to_vec(),
            _ if dtype.is_float() => {
                write_f32(dtype, float32(op, elements.map(|x| read_f32(dtype, x)).collect(), scale))
            }
            DType::Bool if sources.len() > 1 => {
                vec![u8::from(logic(op, elements.map(|x| x[0] != 0).collect()))]
            }
            DType::Bool => elements.flatten().copied().collect(),
            _ => integer(dtype, op, elements.map(|x| read_integer(dtype, x)).collect(), scale),
        }
    };
    (0..sources[0].len()).step_by(dtype.size()).flat_map(element).collect()
}

/// Whether two results agree: bit for bit, but for what a NaN carries.
pub(super) fn same(dtype: DType, a: &[u8], b: &[u8]) -> bool {
    let equal = |(a, b): (&[u8], &[u8])| a == b || (is_nan(dtype, a) && is_nan(dtype, b));
    a.len() == b.len() && a.chunks(dtype.size()).zip(b.chunks(dtype.size())).all(equal)
}

fn is_nan(dtype: DType, element: &[u8]) -> bool {
    match dtype {
        DType::F64 => read_f64(element).is_nan(),
        _ => dtype.is_float() && read_f32(dtype, element).is_nan(),
    }
}

macro_rules! float {
    ($name:ident, $type:ty) => {
        fn $name(op: ReduceOp, values: Vec<$type>, scale: Option<f64>) -> $type {
            let combine = |a: $type, b: $type| match op {
                ReduceOp::Prod => a * b,
                ReduceOp::Min | ReduceOp::Max if a.is_nan() || b.is_nan() => <$type>::NAN,
                ReduceOp::Min if b < a => b,
                ReduceOp::Max if b > a => b,
                ReduceOp::Min | ReduceOp::Max => a,
                _ => a + b,
            };
            let result = values.into_iter().reduce(combine).expect("a case has a source");
            scale.map_or(result, |scale| result * scale as $type)
        }
    };
}

float!(float32, f32);
float!(float64, f64);

fn logic(op: ReduceOp, values: Vec<bool>) -> bool {
    match op {
        ReduceOp::Prod | ReduceOp::Min | ReduceOp::BitAnd => values.into_iter().all(|x| x),
        ReduceOp::BitXor => values.into_iter().fold(false, |a, b| a ^ b),
        _ => values.into_iter().any(|x| x),
    }
}

fn integer(dtype: DType, op: ReduceOp, values: Vec<i128>, scale: Option<f64>) -> Vec<u8> {
    let combine = |a: i128, b: i128| match op {
        ReduceOp::Prod => a.wrapping_mul(b),
        ReduceOp::Min => a.min(b),
        ReduceOp::Max => a.max(b),
        ReduceOp::BitAnd => a & b,
        ReduceOp::BitOr => a | b,
        ReduceOp::BitXor => a ^ b,
        _ => a + b,
    };
    let wrap = |x: i128| read_integer(dtype, &x.to_le_bytes()[..dtype.size()]);
    let result = values.into_iter().reduce(|a, b| wrap(combine(a, b))).expect("a case has a source");
    let (low, high) = range(dtype);
    let result = match scale {
        None => result,
        Some(scale) if op == ReduceOp::Avg => result / (1.0 / scale).round() as i128,
        Some(scale) => ((result as f64 * scale) as i128).clamp(low, high),
    };
    result.to_le_bytes()[..dtype.size()].to_vec()
}

fn is_signed(dtype: DType) -> bool {
    matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64)
}

fn range(dtype: DType) -> (i128, i128) {
    let bits = dtype.size() as u32 * 8;
    if is_signed(dtype) {
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    } else {
        (0, (1 << bits) - 1)
    }
}

fn read_integer(dtype: DType, element: &[u8]) -> i128 {
    let negative = is_signed(dtype) && element[element.len() - 1] >= 0x80;
    let mut bytes = [if negative { 0xff } else { 0 }; 16];
    bytes[..element.len()].copy_from_slice(element);
    i128::from_le_bytes(bytes)
}

fn read_f64(element: &[u8]) -> f64 {
    f64::from_le_bytes(element.try_into().expect("eight bytes"))
}

fn read_f32(dtype: DType, element: &[u8]) -> f32 {
    match dtype {
        DType::F16 => f16::from_le_bytes(element.try_into().expect("two bytes")).to_f32(),
        DType::BF16 => bf16::from_le_bytes(element.try_into().expect("two bytes")).to_f32(),
        _ => f32::from_le_bytes(element.try_into().expect("four bytes")),
    }
}

fn write_f32(dtype: DType, value: f32) -> Vec<u8> {
    match dtype {
        DType::F16 => f16::from_f32(value).to_le_bytes().to_vec(),
        DType::BF16 => bf16::from_f32(value).to_le_bytes().to_vec(),
        _ => value.to_le_bytes().to_vec(),
    }
}
