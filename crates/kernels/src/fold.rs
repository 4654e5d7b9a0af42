//! The two operations: [`fold`] and [`copy`].

use std::num::NonZeroU64;

use crate::body::Job;
use crate::dtype::{DType, ReduceOp};
use crate::isa::Isa;

/// Where a result goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The first byte, at any alignment.
    pub ptr: *mut u8,
    /// Write past the cache: right for results of several MB that nobody reads soon, wrong for small ones.
    ///
    /// A hint. It needs elements at their natural alignment, and a target whose address differs from
    /// the first streaming target's by no multiple of 64 is written the ordinary way.
    pub streaming: bool,
}

/// What results are multiplied with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) factor: f64,
    /// For averages of integers: what to divide by in its place.
    pub(crate) divisor: Option<NonZeroU64>,
}

impl Scale {
    /// `1 / n` as a double gives back `n` for every `n` up to 2^26; rank counts are far below.
    fn new(op: ReduceOp, factor: f64) -> Self {
        let divisor = (op == ReduceOp::Avg).then(|| NonZeroU64::new((1.0 / factor).round() as u64));
        Self { factor, divisor: divisor.flatten() }
    }
}

/// Reduces `sources` element by element into every target.
///
/// `into[j][i] = scale * (sources[0][i] op sources[1][i] op ...)` for all `i < numel`, strictly from the first
/// source to the last. `numel` counts elements of `dtype`. One source gives a scaled copy, which is also how a
/// contribution to `PREMUL_SUM` is multiplied; without a scale it is [`copy`], bit for bit.
///
/// * **f16, bf16** are computed in f32 and rounded once, at the end, to nearest even. Splitting one fold into
///   two therefore rounds twice; splitting its buffer changes nothing.
/// * **Scale** multiplies in f32 (f16, bf16, f32) or f64. AVG and PREMUL_SUM add as SUM does; the caller gives
///   the scale, and for AVG gives it once, in the last fold.
/// * **Integers** wrap around. For AVG the scale must be `1 / n`: the sum is divided by `n`, truncating towards zero
///   like C. For other reductions the result is multiplied as f64, truncated and saturated; above 2^53 that loses
///   digits. Bool ignores the scale.
/// * **NaN** in gives NaN out, for MIN and MAX too; its payload and sign are not defined. MIN and MAX hold -0.0 and
///   +0.0 for equal and keep the first.
///
/// Cost: each source is read once and each target written once, in one pass.
///
/// # Panics
/// If `sources` is empty, or `op` does not [support](ReduceOp::supports) `dtype`.
///
/// # Safety
/// Every pointer is valid for `numel` elements, at any alignment. A target is equal to a source or overlaps none, and
/// overlaps no other target. Nobody else writes to a source or touches a target meanwhile.
pub unsafe fn fold(
    dtype: DType,
    op: ReduceOp,
    sources: &[*const u8],
    into: &[Target],
    numel: usize,
    scale: Option<f64>,
) {
    // SAFETY: the same contract; the CPU has its best instruction set.
    unsafe { fold_with(Isa::best(), (dtype, op), sources, into, numel, scale) }
}

/// Copies `bytes` from `src` to every target, reading the source once.
///
/// Ordinary and streaming targets may be mixed.
///
/// # Safety
/// As [`fold`], for `bytes` bytes.
pub unsafe fn copy(src: *const u8, dst: &[Target], bytes: usize) {
    // SAFETY: the same contract; the CPU has its best instruction set.
    unsafe { copy_with(Isa::best(), DType::Bytes, src, dst, bytes) }
}

/// [`fold`] with the code of a certain instruction set.
///
/// Safety: as [`fold`], and the CPU must have `isa`.
pub(crate) unsafe fn fold_with(
    isa: Isa,
    (dtype, op): (DType, ReduceOp),
    sources: &[*const u8],
    into: &[Target],
    numel: usize,
    scale: Option<f64>,
) {
    if let Err(error) = op.supports(dtype) {
        panic!("{error}");
    }
    let scale = scale.filter(|_| dtype != DType::Bool).map(|factor| Scale::new(op, factor));
    let job = Job { sources, targets: into, bytes: numel * dtype.size(), element: dtype.size(), scale };
    match (sources, scale) {
        ([], _) => panic!("a fold needs at least one source"),
        // SAFETY: by contract.
        (&[only], None) => unsafe { copy_with(isa, dtype, only, into, job.bytes) },
        // SAFETY: by contract.
        _ => unsafe { isa.kernel(dtype, op)(&job) },
    }
}

/// [`copy`] with the code of a certain instruction set. `dtype` tells where elements end.
///
/// Safety: as [`copy`], and the CPU must have `isa`.
pub(crate) unsafe fn copy_with(isa: Isa, dtype: DType, src: *const u8, dst: &[Target], bytes: usize) {
    if let [Target { ptr, streaming: false }] = *dst {
        // The C library's copy is as good as ours. The two may be the same memory, hence no memcpy.
        // SAFETY: by contract.
        return unsafe { ptr.copy_from(src, bytes) };
    }
    let job = Job { sources: &[src], targets: dst, bytes, element: dtype.size(), scale: None };
    // SAFETY: by contract.
    unsafe { isa.kernel(DType::Bytes, ReduceOp::BitOr)(&job) }
}
