//! The thread that adds. It holds nothing but the memory of its job.

use std::ops::Range;
use std::sync::{Arc, LazyLock};
use std::thread::{available_parallelism, scope, Builder};

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

/// A thread more is worth so many bytes of a sum; and beyond so many threads memory has no more to give.
const SHARE_BYTES: u64 = 256 << 10;
const MOST_THREADS: usize = 4;
static THREADS: LazyLock<u64> =
    LazyLock::new(|| available_parallelism().map_or(1, usize::from).min(MOST_THREADS) as u64);

impl Sum {
    /// Adds, as many threads as there are processors for, and shares of the range. `false`: something is not where it should be.
    pub(super) fn make(&self) -> bool {
        let Range { start, end } = self.fold.range;
        let parts = ((end - start) / SHARE_BYTES).clamp(1, *THREADS);
        // Where elements of any type begin, and cache lines.
        let cut = |part| start + (end - start) * part / parts / 64 * 64;
        let share = |part| cut(part)..if part + 1 == parts { end } else { cut(part + 1) };
        scope(|scope| {
            let others: Vec<_> = (1..parts)
                .map(|part| (Builder::new().spawn_scoped(scope, move || self.add(share(part))), share(part)))
                .collect();
            let first = self.add(share(0));
            others.into_iter().fold(first, |all, (thread, share)| {
                // Where no thread can be had, this one does its share.
                let is_made =
                    thread.map_or_else(|_| self.add(share), |thread| thread.join().is_ok_and(|made| made));
                all && is_made
            })
        })
    }

    fn add(&self, range: Range<u64>) -> bool {
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
    use tweed_proto::objects::ObjectId;

    use super::super::memory::Room;
    use super::*;

    #[test]
    fn a_range_is_summed_however_many_threads_share_it() {
        let (room, base) = (Room::new(1 << 30), 64);
        for bytes in [8, SHARE_BYTES, 2 * SHARE_BYTES + 24, 5 * SHARE_BYTES + 8] {
            let memory = || Memory::new(base + bytes, &room).unwrap();
            let (into, part) = (memory(), memory());
            let numbers: Vec<u8> = (0..bytes / 4).flat_map(|i| (i as f32).to_le_bytes()).collect();
            // SAFETY: nobody else has it.
            assert!(unsafe { part.write(base, &numbers) });
            let parts = vec![(Arc::clone(&part), 0), (part, 0)];
            let (target, range) = (ObjectId(1), base..base + bytes);
            let fold = Fold { target, slot: 0, generation: 0, own: None, streams: Vec::new(), range, op: 0 };
            let (dtype, op) = (DType::F32, ReduceOp::Sum);
            assert!(Sum { fold, dtype, op, into: Arc::clone(&into), parts }.make());
            // SAFETY: as above.
            let sum = unsafe { into.read(0..base + bytes) }.unwrap();
            let right = (0..bytes / 4).flat_map(|i| (2.0 * i as f32).to_le_bytes());
            assert!(sum[base as usize..].iter().copied().eq(right) && sum[..base as usize] == [0; 64]);
        }
    }

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
