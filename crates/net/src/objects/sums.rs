//! The thread that adds. It holds nothing but the memory of its job.

use std::sync::Arc;

use tweed_kernels::{fold, DType, ReduceOp, Target};
use tweed_proto::objects::{Bytes, Fold};

use super::memory::Memory;

/// Memory with bytes to be added, and the byte of the sum that its first one belongs to.
pub(super) type Part = (Arc<Memory>, u64);

/// A range of a sum, and where its parts are.
pub(super) struct Sum {
    pub(super) fold: Fold,
    pub(super) dtype: DType,
    pub(super) op: ReduceOp,
    pub(super) into: Arc<Memory>,
    pub(super) parts: Vec<Part>,
}

impl Sum {
    /// Adds. `false`: something is not where it should be.
    pub(super) fn make(&self) -> bool {
        let range = &self.fold.range;
        let length = range.end - range.start;
        let place = |(memory, base): &Part| {
            memory.at(range.start.checked_sub(*base)?, length).map(|at| at.cast_const())
        };
        let parts: Option<Vec<*const u8>> = self.parts.iter().map(place).collect();
        let (Some(parts), Some(into)) = (parts, self.into.at(range.start, length)) else { return false };
        if parts.is_empty() || self.op.supports(self.dtype).is_err() {
            return false;
        }
        let into = [Target { ptr: into, streaming: false }];
        let numel = length as usize / self.dtype.size();
        // SAFETY: all lie within memory that this job holds. What is behind the marks of the parts is not written any more,
        // and of the sum this range is nobody's but ours until it is reported.
        unsafe { fold(self.dtype, self.op, &parts, &into, numel, None) };
        true
    }
}

/// The sum of small objects of one format. `None`: they do not go with the operator.
pub(super) fn sum_small(dtype: DType, op: ReduceOp, parts: &[Bytes]) -> Option<Bytes> {
    op.supports(dtype).ok()?;
    let length = parts.first()?.len();
    if parts.iter().any(|part| part.len() != length) {
        return None;
    }
    let mut sum = vec![0u8; length];
    let parts: Vec<*const u8> = parts.iter().map(|part| part.as_ptr()).collect();
    let into = [Target { ptr: sum.as_mut_ptr(), streaming: false }];
    // SAFETY: parts and sum are all as long.
    unsafe { fold(dtype, op, &parts, &into, length / dtype.size(), None) };
    Some(sum.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_objects_are_summed_if_they_may_be() {
        let part = |x: f32| Bytes::from([x, 2.0 * x].map(f32::to_le_bytes).concat());
        let parts = [part(1.0), part(2.5)];
        assert_eq!(sum_small(DType::F32, ReduceOp::Sum, &parts), Some(part(3.5)));
        assert_eq!(sum_small(DType::F32, ReduceOp::Max, &parts), Some(part(2.5)));
        assert_eq!(sum_small(DType::F32, ReduceOp::BitAnd, &parts), None);
        assert_eq!(sum_small(DType::F32, ReduceOp::Sum, &[part(1.0), Bytes::from([0; 4])]), None);
    }
}
