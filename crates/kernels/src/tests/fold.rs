//! Folds and copies against the model: lengths, alignments, targets, instruction sets, pieces.

use proptest::prelude::*;

use super::buffer::{Buffer, Values};
use super::{model, pairs};
use crate::dtype::{DType, ReduceOp};
use crate::fold::{copy_with, fold_with, Target};
use crate::isa::Isa;

/// One fold, with all that can vary.
#[derive(Clone, Debug)]
struct Case {
    dtype: DType,
    op: ReduceOp,
    numel: usize,
    scale: Option<f64>,
    seed: u64,
    /// Where each source starts, in bytes beyond a multiple of 64.
    sources: Vec<usize>,
    targets: Vec<To>,
}

#[derive(Clone, Debug)]
struct To {
    offset: usize,
    streaming: bool,
    /// Written over the source of the same index, if there is one.
    in_place: bool,
}

impl Case {
    /// One target that streams, all aligned.
    fn simple(dtype: DType, op: ReduceOp, numel: usize) -> Self {
        let to = To { offset: 0, streaming: true, in_place: false };
        Self { dtype, op, numel, scale: None, seed: numel as u64, sources: vec![0; 3], targets: vec![to] }
    }

    fn contents(&self) -> Vec<Vec<u8>> {
        let mut values = Values::new(self.seed);
        self.sources.iter().map(|_| values.elements(self.dtype, self.numel)).collect()
    }

    /// What every target holds after folding the buffers cut at `cuts` (elements).
    fn run(&self, isa: Isa, cuts: &[usize]) -> Vec<Vec<u8>> {
        let contents = self.contents();
        let place = |(content, &offset): (&Vec<u8>, &usize)| Buffer::new(content, offset);
        let mut sources: Vec<_> = contents.iter().zip(&self.sources).map(place).collect();
        let empty = vec![0; self.numel * self.dtype.size()];
        let mut targets: Vec<_> = self.targets.iter().map(|to| Buffer::new(&empty, to.offset)).collect();
        for piece in cuts.windows(2) {
            self.run_piece(isa, &mut sources, &mut targets, piece[0]..piece[1]);
        }
        let contents: Vec<_> = sources.iter().map(Buffer::content).collect();
        let result = |(index, target): (usize, &Buffer)| match contents.get(index) {
            Some(source) if self.targets[index].in_place => source.to_vec(),
            _ => target.content().to_vec(),
        };
        targets.iter().enumerate().map(result).collect()
    }

    fn run_piece(
        &self,
        isa: Isa,
        sources: &mut [Buffer],
        targets: &mut [Buffer],
        piece: std::ops::Range<usize>,
    ) {
        let skip = piece.start * self.dtype.size();
        let from: Vec<*mut u8> = sources.iter_mut().map(|buffer| buffer.ptr().wrapping_add(skip)).collect();
        let into = |(index, (to, buffer)): (usize, (&To, &mut Buffer))| {
            let own = buffer.ptr().wrapping_add(skip);
            let ptr = from.get(index).copied().filter(|_| to.in_place).unwrap_or(own);
            Target { ptr, streaming: to.streaming }
        };
        let into: Vec<_> = self.targets.iter().zip(targets).enumerate().map(into).collect();
        let from: Vec<_> = from.into_iter().map(<*mut u8>::cast_const).collect();
        // SAFETY: all buffers hold `numel` elements; they are apart, or the same at the same place.
        unsafe { fold_with(isa, (self.dtype, self.op), &from, &into, piece.len(), self.scale) };
    }

    fn check(&self) {
        let expected = model::fold(self.dtype, self.op, &self.contents(), self.scale);
        for isa in Isa::available() {
            for result in self.run(isa, &[0, self.numel]) {
                assert!(model::same(self.dtype, &result, &expected), "{isa:?} {self:?}");
            }
        }
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let offset = prop_oneof![Just(0_usize), (0..8_usize).prop_map(|x| x * 8), 0..64_usize];
    let to = (offset.clone(), any::<bool>(), any::<bool>());
    let to = to.prop_map(|(offset, streaming, in_place)| To { offset, streaming, in_place });
    let scale = proptest::option::of(prop_oneof![(1..200_u32).prop_map(|n| 1.0 / f64::from(n)), -3.0..3.0]);
    (
        proptest::sample::select(pairs().collect::<Vec<_>>()),
        0..1200_usize,
        scale,
        any::<u64>(),
        proptest::collection::vec(offset, 1..18),
        proptest::collection::vec(to, 1..4),
    )
        .prop_map(|((dtype, op), numel, scale, seed, sources, targets)| {
            let scale = if op == ReduceOp::Avg {
                scale.map(f64::abs).filter(|&x| x <= 1.0 && x > 0.0)
            } else {
                scale
            };
            Case { dtype, op, numel, scale, seed, sources, targets }
        })
}

proptest! {
    #[test]
    fn any_fold_gives_what_the_model_gives(case in cases()) {
        case.check();
    }

    #[test]
    fn pieces_give_what_one_call_gives(case in cases(), mut cuts in proptest::collection::vec(0..1200_usize, 0..5)) {
        cuts.iter_mut().for_each(|cut| *cut %= case.numel + 1);
        cuts.extend([0, case.numel]);
        cuts.sort_unstable();
        for isa in Isa::available() {
            let (whole, pieces) = (case.run(isa, &[0, case.numel]), case.run(isa, &cuts));
            for (whole, pieces) in whole.iter().zip(&pieces) {
                prop_assert!(model::same(case.dtype, whole, pieces), "{isa:?} {case:?} {cuts:?}");
            }
        }
    }

    #[test]
    fn copies_reach_every_target(
        bytes in 0..3000_usize, seed: u64, offset in 0..64_usize,
        into in proptest::collection::vec((0..64_usize, any::<bool>()), 1..4),
    ) {
        let content = Values::new(seed).elements(DType::U8, bytes);
        for isa in Isa::available() {
            let mut source = Buffer::new(&content, offset);
            let mut buffers: Vec<_> = into.iter().map(|&(offset, _)| Buffer::new(&vec![0; bytes], offset)).collect();
            let targets = buffers.iter_mut().zip(&into).map(|(b, &(_, streaming))| Target { ptr: b.ptr(), streaming });
            let targets: Vec<_> = targets.collect();
            // SAFETY: the buffers are apart and hold `bytes` bytes.
            unsafe { copy_with(isa, DType::Bytes, source.ptr(), &targets, bytes) };
            prop_assert!(buffers.iter().all(|buffer| buffer.content() == content));
        }
    }
}

#[test]
fn every_pair_is_right_at_every_short_length() {
    for (dtype, op) in pairs() {
        for numel in 0..=200 {
            Case::simple(dtype, op, numel).check();
        }
    }
}

#[test]
fn every_pair_is_right_with_a_scale() {
    for (dtype, op) in pairs() {
        for sources in 1..=3 {
            let case = Case::simple(dtype, op, 777);
            Case { scale: Some(1.0 / 3.0), sources: vec![1; sources], ..case }.check();
        }
    }
}

#[test]
fn a_source_that_is_also_a_target_is_overwritten_in_place() {
    for (dtype, op) in pairs() {
        let to = |streaming| To { offset: 0, streaming, in_place: true };
        Case { targets: vec![to(true), to(false)], ..Case::simple(dtype, op, 1000) }.check();
    }
}

#[test]
fn a_single_source_without_scale_keeps_every_bit() {
    let nans: Vec<u8> =
        [0x7f80_0001_u32, 0xffff_ffff, 0x7fc1_2345].iter().flat_map(|x| x.to_le_bytes()).collect();
    let (mut source, mut target) = (Buffer::new(&nans, 0), Buffer::new(&[0; 12], 4));
    let into = [Target { ptr: target.ptr(), streaming: true }];
    // SAFETY: both hold three elements and are apart.
    unsafe { crate::fold(DType::F32, ReduceOp::Sum, &[source.ptr()], &into, 3, None) };
    assert_eq!(target.content(), nans);
}

#[test]
#[should_panic(expected = "BAND of float32 is not supported: bitwise reductions need integers or bool")]
fn an_unsupported_pair_panics_before_touching_memory() {
    // SAFETY: nothing is read or written.
    unsafe { crate::fold(DType::F32, ReduceOp::BitAnd, &[std::ptr::null()], &[], 1, None) };
}

#[test]
#[should_panic(expected = "a fold needs at least one source")]
fn no_source_panics() {
    // SAFETY: nothing is read or written.
    unsafe { crate::fold(DType::F32, ReduceOp::Sum, &[], &[], 1, None) };
}
