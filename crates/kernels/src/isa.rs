//! Which code runs where: the choice of a kernel from instruction set, dtype and reduction.

use std::fmt;

use half::{bf16, f16};

use crate::body::{body, Job, Lane};
use crate::dtype::{DType, ReduceOp};
use crate::ops::{And, Bits, Max, Min, Number, Op, Or, Prod, Sum, Xor};
use crate::scalar::Flag;

/// A compiled loop.
///
/// Safety: as [`body`].
pub(crate) type Kernel = unsafe fn(&Job<'_>);

/// The instruction sets there is code for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isa {
    /// What every CPU of the architecture has.
    Baseline,
    /// AVX2, F16C, POPCNT and BMI2: any x86-64 server since 2013.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, beside the above.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Default for Isa {
    fn default() -> Self {
        Self::best()
    }
}

/// An instruction set that this CPU has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InstructionSet(pub(crate) Isa);

impl InstructionSet {
    /// All that there is code for, the best one last.
    pub fn available() -> impl DoubleEndedIterator<Item = Self> {
        Isa::available().map(Self)
    }
}

impl fmt::Display for InstructionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Isa {
    /// All that this CPU has, the best one last.
    pub(crate) fn available() -> impl DoubleEndedIterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let more = {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("f16c")
                && is_x86_feature_detected!("popcnt")
                && is_x86_feature_detected!("bmi2");
            let avx512 = avx2 && is_x86_feature_detected!("avx512f");
            [avx2.then_some(Self::Avx2), avx512.then_some(Self::Avx512)]
        };
        #[cfg(not(target_arch = "x86_64"))]
        let more: [Option<Self>; 0] = [];
        std::iter::once(Self::Baseline).chain(more.into_iter().flatten())
    }

    /// The best that this CPU has.
    pub(crate) fn best() -> Self {
        Self::available().next_back().unwrap_or(Self::Baseline)
    }

    /// The loop for a pair that [`ReduceOp::supports`]; for [`DType::Bytes`], one that moves one source.
    pub(crate) fn kernel(self, dtype: DType, op: ReduceOp) -> Kernel {
        match self {
            Self::Baseline => plain::<Baseline>(dtype, op),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => crate::x86::avx2::kernel(dtype, op),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => crate::x86::avx512::kernel(dtype, op),
        }
    }
}

/// Compiles [`body`] for one instruction set.
pub(crate) trait Compile {
    /// Safety: as [`body`].
    unsafe fn run<L: Lane, O: Op<L::Value>, const ROWS: usize>(job: &Job<'_>);
}

struct Baseline;

impl Compile for Baseline {
    unsafe fn run<L: Lane, O: Op<L::Value>, const ROWS: usize>(job: &Job<'_>) {
        // SAFETY: by contract.
        unsafe { body::<L, O, ROWS>(job) }
    }
}

/// The loop over plain numbers. Blocks have 64 or more: shorter loops the compiler unrolls and does not vectorise.
pub(crate) fn plain<C: Compile>(dtype: DType, op: ReduceOp) -> Kernel {
    match dtype {
        DType::F16 => arithmetic::<C, f16, 128>(op),
        DType::BF16 => arithmetic::<C, bf16, 128>(op),
        DType::F32 => arithmetic::<C, f32, 64>(op),
        DType::F64 => arithmetic::<C, f64, 64>(op),
        DType::I8 => integer::<C, i8, 256>(op),
        DType::I16 => integer::<C, i16, 128>(op),
        DType::I32 => integer::<C, i32, 64>(op),
        DType::I64 => integer::<C, i64, 64>(op),
        DType::U8 => integer::<C, u8, 256>(op),
        DType::U16 => integer::<C, u16, 128>(op),
        DType::U32 => integer::<C, u32, 64>(op),
        DType::U64 => integer::<C, u64, 64>(op),
        DType::Bool => logic::<C, Flag, 256>(op),
        DType::Bytes => C::run::<u64, Or, 64>,
    }
}

/// The loop for numbers of any kind. What is not PRODUCT, MIN or MAX is a sum.
pub(crate) fn arithmetic<C: Compile, L: Lane<Value: Number>, const ROWS: usize>(op: ReduceOp) -> Kernel {
    match op {
        ReduceOp::Prod => C::run::<L, Prod, ROWS>,
        ReduceOp::Min => C::run::<L, Min, ROWS>,
        ReduceOp::Max => C::run::<L, Max, ROWS>,
        _ => C::run::<L, Sum, ROWS>,
    }
}

fn integer<C: Compile, L: Lane<Value: Number + Bits>, const ROWS: usize>(op: ReduceOp) -> Kernel {
    match op {
        ReduceOp::BitAnd | ReduceOp::BitOr | ReduceOp::BitXor => logic::<C, L, ROWS>(op),
        _ => arithmetic::<C, L, ROWS>(op),
    }
}

fn logic<C: Compile, L: Lane<Value: Bits>, const ROWS: usize>(op: ReduceOp) -> Kernel {
    match op {
        ReduceOp::Prod | ReduceOp::Min | ReduceOp::BitAnd => C::run::<L, And, ROWS>,
        ReduceOp::BitXor => C::run::<L, Xor, ROWS>,
        _ => C::run::<L, Or, ROWS>,
    }
}

/// Implements a trait of lanes for an instruction set: each method is inlined, and as safe as the trait says.
macro_rules! lanes {
    ($trait:ident for $name:ident: $($body:tt)*) => {
        impl $trait for $name {
            $crate::isa::lanes! { @ $($body)* }
        }
    };
    (@ const $constant:ident: $type:ty = $value:expr; $($rest:tt)*) => {
        const $constant: $type = $value;
        $crate::isa::lanes! { @ $($rest)* }
    };
    (@ type $kind:ident = $type:ty; $($rest:tt)*) => {
        type $kind = $type;
        $crate::isa::lanes! { @ $($rest)* }
    };
    (@ fn $method:ident $(<const $constant:ident>)? ($($arg:ident: $type:ty),*) $(-> $result:ty)? $body:block $($rest:tt)*) => {
        #[inline(always)]
        unsafe fn $method $(<const $constant: u32>)? ($($arg: $type),*) $(-> $result)? {
            #[allow(unused_unsafe, reason = "some of these are safe")]
            // SAFETY: by contract.
            unsafe { $body }
        }
        $crate::isa::lanes! { @ $($rest)* }
    };
    (@) => {};
}
pub(crate) use lanes;
