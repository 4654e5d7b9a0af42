//! Lanes of vector registers. Loads and stores take any address; streaming ones whole lines.
//!
//! No fused multiply-add and no AVX512-BF16 here: they round differently from the plain code.

use crate::ops::Number;

/// Implements [`Number`] for a register.
///
/// The instructions for min and max give their second operand where either is NaN or the two are equal, so
/// operands are swapped; `or_nan` then picks the second value where that is NaN.
macro_rules! number {
    ($vector:ty: $add:ident $mul:ident $min:ident $max:ident, or_nan($result:ident, $other:ident) $or_nan:block) => {
        impl $crate::ops::Number for $vector {
            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                // SAFETY: by contract.
                unsafe { $add(self, other) }
            }

            #[inline(always)]
            unsafe fn mul(self, other: Self) -> Self {
                // SAFETY: by contract.
                unsafe { $mul(self, other) }
            }

            #[inline(always)]
            unsafe fn min(self, $other: Self) -> Self {
                // SAFETY: by contract.
                unsafe {
                    let $result = $min($other, self);
                    $or_nan
                }
            }

            #[inline(always)]
            unsafe fn max(self, $other: Self) -> Self {
                // SAFETY: by contract.
                unsafe {
                    let $result = $max($other, self);
                    $or_nan
                }
            }
        }
    };
}

/// Defines a [`Lane`](crate::body::Lane) from its five parts.
macro_rules! lane {
    (
        $(#[$doc:meta])* $name:ident: $value:ty, $bytes:literal bytes;
        load($from:ident) $load:block
        store($to:ident, $stored:ident) $store:block
        stream($line:ident, $streamed:ident) $stream:block
        scale($scaled:ident, $factor:ident) $scale:block
    ) => {
        $(#[$doc])*
        pub(crate) struct $name;

        impl $crate::body::Lane for $name {
            type Value = $value;
            const BYTES: usize = $bytes;

            #[inline(always)]
            unsafe fn load($from: *const u8) -> $value {
                // SAFETY: by contract.
                unsafe { $load }
            }

            #[inline(always)]
            unsafe fn store($to: *mut u8, $stored: $value) {
                // SAFETY: by contract.
                unsafe { $store }
            }

            #[inline(always)]
            unsafe fn stream<const ROWS: usize>(to: *mut u8, block: &[$value; ROWS]) {
                for (row, &$streamed) in block.iter().enumerate() {
                    // SAFETY: by contract; values of `$bytes` bytes fill a line without a rest.
                    unsafe {
                        let $line = to.add(row * $bytes);
                        $stream
                    }
                }
            }

            #[inline(always)]
            unsafe fn scale($scaled: $value, by: &$crate::fold::Scale) -> $value {
                let $factor = by.factor;
                // SAFETY: by contract.
                unsafe { $scale }
            }
        }
    };
}

pub(crate) mod avx2;
pub(crate) mod avx512;

/// bf16 in `f32` registers: elements of even index in one, those of odd index in the other.
///
/// So widening is one shift or one mask, and nothing has to move between the parts of a register.
#[derive(Clone, Copy)]
pub(crate) struct Pair<V> {
    pub(crate) even: V,
    pub(crate) odd: V,
}

macro_rules! both {
    ($($method:ident),*) => {
        impl<V: Number> Number for Pair<V> {$(
            #[inline(always)]
            unsafe fn $method(self, other: Self) -> Self {
                // SAFETY: by contract.
                unsafe { Self { even: self.even.$method(other.even), odd: self.odd.$method(other.odd) } }
            }
        )*}
    };
}

both!(add, mul, min, max);
