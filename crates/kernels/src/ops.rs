//! Operations on values, whether a value is one number or a vector register full of them.

/// Arithmetic. Integers wrap around.
///
/// `min` and `max` give the second value if it is smaller (larger) *or NaN*, else the first. Hence a NaN
/// anywhere in a reduction gives NaN, and of -0.0 and +0.0, which compare equal, the first stays.
///
/// Safety: for vector registers, the CPU must have their instruction set.
pub(crate) trait Number: Copy {
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    unsafe fn min(self, other: Self) -> Self;
    unsafe fn max(self, other: Self) -> Self;
}

/// Bitwise arithmetic on one type.
pub(crate) trait Bits: Copy {
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
}

/// A reduction as a type, so that each gets its own loop.
pub(crate) trait Op<V> {
    /// Safety: as [`Number`].
    unsafe fn apply(a: V, b: V) -> V;
}

macro_rules! ops {
    ($trait:ident: $($name:ident = $method:ident),*) => {$(
        pub(crate) struct $name;

        impl<V: $trait> Op<V> for $name {
            #[inline(always)]
            #[allow(unused_unsafe, reason = "the methods of Bits are safe")]
            unsafe fn apply(a: V, b: V) -> V {
                // SAFETY: the caller's promise is the same.
                unsafe { a.$method(b) }
            }
        }
    )*};
}

ops!(Number: Sum = add, Prod = mul, Min = min, Max = max);
ops!(Bits: And = and, Or = or, Xor = xor);
