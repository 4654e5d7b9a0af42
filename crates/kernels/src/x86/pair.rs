//! Two registers as one value.

use crate::ops::Number;

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
