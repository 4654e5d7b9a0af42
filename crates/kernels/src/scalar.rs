//! Lanes of single numbers: plain code, which the compiler vectorises.

use half::{bf16, f16};

use crate::body::Lane;
use crate::fold::Scale;
use crate::ops::{Bits, Number};

/// A truth value: any byte but 0 is true. Computed as 0 or 1.
#[repr(transparent)]
pub(crate) struct Flag(u8);

macro_rules! float {
    ($($type:ty),*) => {$(
        impl Number for $type {
            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self { self + other }
            #[inline(always)]
            unsafe fn mul(self, other: Self) -> Self { self * other }
            #[inline(always)]
            unsafe fn min(self, other: Self) -> Self { if other < self || other.is_nan() { other } else { self } }
            #[inline(always)]
            unsafe fn max(self, other: Self) -> Self { if other > self || other.is_nan() { other } else { self } }
        }
    )*};
}

/// `$wide` is the 64-bit type of the same sign, in which averages are divided.
macro_rules! integer {
    ($($type:ty, $wide:ty);*) => {$(
        impl Number for $type {
            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            unsafe fn mul(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline(always)]
            unsafe fn min(self, other: Self) -> Self { Ord::min(self, other) }
            #[inline(always)]
            unsafe fn max(self, other: Self) -> Self { Ord::max(self, other) }
        }

        impl Bits for $type {
            #[inline(always)]
            fn and(self, other: Self) -> Self { self & other }
            #[inline(always)]
            fn or(self, other: Self) -> Self { self | other }
            #[inline(always)]
            fn xor(self, other: Self) -> Self { self ^ other }
        }

        lane!($type, $type, |x| x, |x| x, |x, by| match by.divisor {
            Some(n) => (x as $wide / n.get() as $wide) as $type,
            None => (x as f64 * by.factor) as $type,
        });
    )*};
}

/// A lane of `$type`, computed in `$value`.
macro_rules! lane {
    ($type:ty, $value:ty, $widen:expr, $narrow:expr, $scale:expr) => {
        impl Lane for $type {
            type Value = $value;
            const BYTES: usize = size_of::<Self>();

            #[inline(always)]
            unsafe fn load(from: *const u8) -> $value {
                // SAFETY: by contract; every bit pattern is a number.
                let element = unsafe { from.cast::<Self>().read_unaligned() };
                let widen: fn(Self) -> $value = $widen;
                widen(element)
            }

            #[inline(always)]
            unsafe fn store(to: *mut u8, value: $value) {
                let narrow: fn($value) -> Self = $narrow;
                // SAFETY: by contract.
                unsafe { to.cast::<Self>().write_unaligned(narrow(value)) }
            }

            #[inline(always)]
            unsafe fn scale(value: $value, by: &Scale) -> $value {
                let scale: fn($value, &Scale) -> $value = $scale;
                scale(value, by)
            }
        }
    };
}

float!(f32, f64);
lane!(f32, f32, |x: f32| x, |x: f32| x, |x, by| x * by.factor as f32);
lane!(f64, f64, |x: f64| x, |x: f64| x, |x, by| x * by.factor);
lane!(f16, f32, f16::to_f32, f16::from_f32, |x, by| x * by.factor as f32);
lane!(bf16, f32, bf16::to_f32, bf16::from_f32, |x, by| x * by.factor as f32);
lane!(Flag, u8, |x: Flag| u8::from(x.0 != 0), Flag, |x, _| x);
integer!(i8, i64; i16, i64; i32, i64; i64, i64; u8, u64; u16, u64; u32, u64; u64, u64);
