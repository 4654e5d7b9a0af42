//! Numbers, lists and choices as bytes.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::objects::ObjectId;

/// What has not been read yet.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl Reader<'_> {
    pub(super) fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn slice(&mut self, length: usize) -> Option<&[u8]> {
        let (first, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(first)
    }
}

/// A value as bytes.
pub(super) trait Wire: Sized {
    fn put(&self, into: &mut Vec<u8>);
    /// `None`: the next bytes are no such value.
    fn take(from: &mut Reader<'_>) -> Option<Self>;
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Wire for $number {
            fn put(&self, into: &mut Vec<u8>) {
                into.extend_from_slice(&self.to_le_bytes());
            }

            fn take(from: &mut Reader<'_>) -> Option<Self> {
                from.bytes().map(<$number>::from_le_bytes)
            }
        }
    )*};
}

numbers!(u8, u32, u64, u128);

impl Wire for bool {
    fn put(&self, into: &mut Vec<u8>) {
        u8::from(*self).put(into);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        match u8::take(from)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

/// In nanoseconds; those that do not fit last for centuries.
impl Wire for Duration {
    fn put(&self, into: &mut Vec<u8>) {
        u64::try_from(self.as_nanos()).unwrap_or(u64::MAX).put(into);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        u64::take(from).map(Duration::from_nanos)
    }
}

impl Wire for Range<u64> {
    fn put(&self, into: &mut Vec<u8>) {
        self.start.put(into);
        self.end.put(into);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let range = u64::take(from)?..u64::take(from)?;
        (range.start <= range.end).then_some(range)
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, into: &mut Vec<u8>) {
        self.is_some().put(into);
        self.iter().for_each(|value| value.put(into));
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        match bool::take(from)? {
            true => T::take(from).map(Some),
            false => Some(None),
        }
    }
}

/// Every item takes bytes, so no more are kept than have come.
impl<T: Wire> Wire for Vec<T> {
    fn put(&self, into: &mut Vec<u8>) {
        (self.len() as u32).put(into);
        self.iter().for_each(|value| value.put(into));
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let count = u32::take(from)?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(T::take(from)?);
        }
        Some(items)
    }
}

impl Wire for Arc<[ObjectId]> {
    fn put(&self, into: &mut Vec<u8>) {
        (self.len() as u32).put(into);
        self.iter().for_each(|value| value.put(into));
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        Vec::take(from).map(Arc::from)
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, into: &mut Vec<u8>) {
        self.0.put(into);
        self.1.put(into);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        Some((A::take(from)?, B::take(from)?))
    }
}

impl<T: Wire, const N: usize> Wire for [T; N] {
    fn put(&self, into: &mut Vec<u8>) {
        self.iter().for_each(|value| value.put(into));
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let mut items = Vec::new();
        for _ in 0..N {
            items.push(T::take(from)?);
        }
        items.try_into().ok()
    }
}

/// The fields of a struct in order; a value for which the last expression does not hold is none.
macro_rules! fields {
    ($name:ident { $($field:ident),* } $(if |$value:ident| $holds:expr)?) => {
        impl Wire for $name {
            fn put(&self, into: &mut Vec<u8>) {
                $(self.$field.put(into);)*
            }

            fn take(from: &mut Reader<'_>) -> Option<Self> {
                let value = $name { $($field: Wire::take(from)?),* };
                $({ let $value = &value; if !$holds { return None; } })?
                Some(value)
            }
        }
    };
}

/// The number of a variant, and its fields in order.
macro_rules! variants {
    ($name:ident { $($number:literal = $variant:ident $({ $($field:ident),* })? $(($($inner:ident),*))?),* $(,)? }) => {
        impl Wire for $name {
            fn put(&self, into: &mut Vec<u8>) {
                match self {
                    $($name::$variant $({ $($field),* })? $(($($inner),*))? => {
                        $number.put(into);
                        $($($field.put(into);)*)?
                        $($($inner.put(into);)*)?
                    })*
                }
            }

            fn take(from: &mut Reader<'_>) -> Option<Self> {
                Some(match u8::take(from)? {
                    $($number => {
                        $($(let $field = Wire::take(from)?;)*)?
                        $($(let $inner = Wire::take(from)?;)*)?
                        $name::$variant $({ $($field),* })? $(($($inner),*))?
                    })*
                    _ => return None,
                })
            }
        }
    };
}

pub(super) use {fields, variants};
