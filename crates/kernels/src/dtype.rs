//! What can be reduced, and how: [`DType`], [`ReduceOp`] and which pairs make sense.

use std::fmt;

/// A number that names no dtype or no reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{value} is not the number of a {of}; both sides must be built from the same engine.h")]
pub struct UnknownNumber {
    /// What the number should have named.
    pub of: &'static str,
    /// The number that names nothing.
    pub value: u32,
}

/// A reduction that has no meaning for a dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{op} of {dtype} is not supported: {why}")]
pub struct Unsupported {
    /// The type of the elements.
    pub dtype: DType,
    /// The reduction that has no meaning for it.
    pub op: ReduceOp,
    /// The reason, and what to use in its place.
    pub why: &'static str,
}

/// An enum whose variants have the numbers 0, 1, 2, ... of `engine.h`, and a name.
macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident, $of:literal: $($(#[$variant_doc:meta])* $variant:ident = $text:literal),* $(,)?) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum $name {
            $($(#[$variant_doc])* $variant),*
        }

        impl $name {
            /// Every variant, in order of its number.
            pub const ALL: &[Self] = &[$(Self::$variant),*];
        }

        impl TryFrom<u32> for $name {
            type Error = UnknownNumber;

            fn try_from(value: u32) -> Result<Self, UnknownNumber> {
                Self::ALL.get(value as usize).copied().ok_or(UnknownNumber { of: $of, value })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $(Self::$variant => $text),* })
            }
        }
    };
}

numbered! {
    /// The type of one element. Numbers as `tweed_dtype` in `engine.h`, names as torch's.
    DType, "dtype":
    /// A binary16 of IEEE 754.
    F16 = "float16",
    /// The upper half of a binary32.
    BF16 = "bfloat16",
    /// A binary32 of IEEE 754.
    F32 = "float32",
    /// A binary64 of IEEE 754.
    F64 = "float64",
    /// A signed integer of 1 byte.
    I8 = "int8",
    /// A signed integer of 2 bytes.
    I16 = "int16",
    /// A signed integer of 4 bytes.
    I32 = "int32",
    /// A signed integer of 8 bytes.
    I64 = "int64",
    /// An unsigned integer of 1 byte.
    U8 = "uint8",
    /// An unsigned integer of 2 bytes.
    U16 = "uint16",
    /// An unsigned integer of 4 bytes.
    U32 = "uint32",
    /// An unsigned integer of 8 bytes.
    U64 = "uint64",
    /// One byte; 0 is false, anything else true. Reductions write 0 or 1.
    Bool = "bool",
    /// Opaque bytes: moved, never reduced.
    Bytes = "bytes",
}

numbered! {
    /// How elements are combined. Numbers as `tweed_reduce_op` in `engine.h`.
    ReduceOp, "reduction":
    /// Sum; integers wrap around.
    Sum = "SUM",
    /// As [`Sum`](Self::Sum); the last fold is given the scale `1 / ranks`.
    Avg = "AVG",
    /// Product; integers wrap around.
    Prod = "PRODUCT",
    /// Smallest; NaN if any is NaN.
    Min = "MIN",
    /// Largest; NaN if any is NaN.
    Max = "MAX",
    /// The bitwise and of elements.
    BitAnd = "BAND",
    /// The bitwise or of elements.
    BitOr = "BOR",
    /// The bitwise exclusive or of elements.
    BitXor = "BXOR",
    /// As [`Sum`](Self::Sum), of contributions multiplied beforehand (a fold of one source with a scale).
    PremulSum = "PREMUL_SUM",
}

impl DType {
    /// Bytes of one element.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::Bool | Self::Bytes => 1,
            Self::F16 | Self::BF16 | Self::I16 | Self::U16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 => 8,
        }
    }

    /// Whether elements are floating-point numbers.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::BF16 | Self::F32 | Self::F64)
    }
}

impl ReduceOp {
    /// Whether `op` has a meaning for `dtype`.
    ///
    /// Bitwise operations are for integers and bool. For bool, SUM and MAX are "or", PRODUCT and MIN are
    /// "and", as in torch's Gloo backend; there is no average. [`DType::Bytes`] is never reduced.
    ///
    /// # Errors
    /// [`Unsupported`], with the reason.
    pub fn supports(self, dtype: DType) -> Result<(), Unsupported> {
        let bitwise = matches!(self, Self::BitAnd | Self::BitOr | Self::BitXor);
        let scaled = matches!(self, Self::Avg | Self::PremulSum);
        let why = match dtype {
            DType::Bytes => "opaque bytes can be moved but not reduced",
            DType::Bool if scaled => "a truth value cannot be scaled; use SUM (or) or PRODUCT (and)",
            _ if dtype.is_float() && bitwise => "bitwise reductions need integers or bool",
            _ => return Ok(()),
        };
        Err(Unsupported { dtype, op: self, why })
    }
}
