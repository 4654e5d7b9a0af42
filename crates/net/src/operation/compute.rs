//! The arithmetic that the engine asks for.

use std::ops::Range;

use tweed_kernels::{copy, fold, DType, ReduceOp, Target};
use tweed_proto::engine::request::{Request, Segment};
use tweed_proto::engine::Job;
use tweed_proto::spans;
use tweed_schedule::Rank;

/// Does a job.
///
/// # Safety
/// Sources and targets are valid for the job's bytes, and nobody writes a source or touches a target meanwhile.
pub(crate) unsafe fn compute(job: &Job) {
    let bytes = job.bytes as usize;
    if bytes == 0 || job.targets.is_empty() {
        return;
    }
    let values: Vec<*const u8> = job.sources.iter().map(|s| s.at.as_ptr().cast_const()).collect();
    let targets = job.targets.iter().map(|t| Target { ptr: t.at.as_ptr(), streaming: t.streaming });
    let targets: Vec<Target> = targets.collect();
    // SAFETY: by the contract.
    unsafe {
        match values[..] {
            [source] if job.scale.is_none() => copy(source, &targets, bytes),
            _ if job.by_delivered => {
                let missing: Vec<&[Range<u32>]> = job.sources.iter().map(|s| &s.missing[..]).collect();
                average(job.dtype, &values, &missing, &targets, bytes);
            }
            _ => fold(job.dtype, job.reduce_op, &values, &targets, bytes / job.dtype.size(), job.scale),
        }
    }
}

/// Puts copies in place of those inputs that the operation would write to before it has read them.
///
/// # Safety
/// The request's segments are valid, and nobody else uses them meanwhile.
pub(crate) unsafe fn copy_overwritten(request: &mut Request, rank: Rank) -> Vec<Vec<u8>> {
    let overwritten = request.overwritten_inputs(rank).into_iter();
    let copied = |index: usize| {
        let Segment { data, bytes } = request.inputs[index];
        // SAFETY: by the contract.
        let mut bytes = unsafe { std::slice::from_raw_parts(data.as_ptr(), bytes as usize) }.to_vec();
        request.inputs[index].data = bytes.as_mut_ptr().into();
        bytes
    };
    overwritten.map(copied).collect()
}

/// Multiplies the contributions of `PREMUL_SUM`: in place where the caller allows it, else in a copy.
pub(crate) fn prescale(request: &mut Request) -> Vec<Vec<u8>> {
    let mut copies = Vec::new();
    if !request.reduces() || request.reduce_op != ReduceOp::PremulSum {
        return copies;
    }
    for segment in &mut request.inputs {
        let source = segment.data.as_ptr().cast_const();
        if !request.outputs.contains(segment) {
            copies.push(vec![0u8; segment.bytes as usize]);
            segment.data = copies.last_mut().expect("just pushed").as_mut_ptr().into();
        }
        let into = [Target { ptr: segment.data.as_ptr(), streaming: false }];
        let numel = segment.bytes as usize / request.dtype.size();
        // SAFETY: the segment is the caller's, and its copy is ours and as long.
        unsafe { fold(request.dtype, ReduceOp::PremulSum, &[source], &into, numel, Some(request.factor)) };
    }
    copies
}

/// Averages `sources` into every target, each number over those sources that are not missing there.
///
/// `missing` has one entry per source: its missing ranges in bytes, whole values, ascending. What is missing must be
/// zero in the source; a number that is missing in all becomes zero.
///
/// Cost: one pass, as [`fold`], in as many parts as there are ranges.
///
/// # Safety
/// As [`fold`], for `bytes` bytes.
unsafe fn average(
    dtype: DType,
    sources: &[*const u8],
    missing: &[&[Range<u32>]],
    into: &[Target],
    bytes: usize,
) {
    for span in spans(bytes as u32, missing) {
        let start = span.range.start as usize;
        let numel = (span.range.end as usize - start) / dtype.size();
        let count = sources.len() - span.absent as usize;
        let parts: Vec<*const u8> = sources.iter().map(|source| source.wrapping_add(start)).collect();
        let targets: Vec<Target> =
            into.iter().map(|t| Target { ptr: t.ptr.wrapping_add(start), ..*t }).collect();
        let scale = 1.0 / count.max(1) as f64;
        // SAFETY: spans lie within the buffer.
        unsafe { fold(dtype, ReduceOp::Avg, &parts, &targets, numel, Some(scale)) };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BYTES: usize = 192;
    const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

    /// The bytes of a small whole number, which every type holds exactly.
    fn number(dtype: DType, value: u8) -> Vec<u8> {
        let value = f32::from(value);
        match dtype {
            DType::BF16 => value.to_le_bytes()[2..].to_vec(),
            DType::F32 => value.to_le_bytes().to_vec(),
            DType::F64 => f64::from(value).to_le_bytes().to_vec(),
            _ => half(value).to_le_bytes().to_vec(),
        }
    }

    /// A number from 1 to 2047 as a half.
    fn half(value: f32) -> u16 {
        let bits = value.to_bits();
        (((bits >> 23) - 127 + 15) << 10) as u16 | (bits >> 13 & 0x3ff) as u16
    }

    /// Averages one number after the other, over those sources alone that have it.
    fn naive(dtype: DType, sources: &[Vec<u8>], missing: &[Vec<Range<u32>>]) -> Vec<u8> {
        let (size, mut out) = (dtype.size(), vec![0u8; BYTES]);
        for at in (0..BYTES).step_by(size) {
            let there = |m: &[Range<u32>]| !m.iter().any(|r| r.contains(&(at as u32)));
            let present = sources.iter().zip(missing).filter(|(_, m)| there(m));
            let parts: Vec<*const u8> = present.map(|(s, _)| s[at..].as_ptr()).collect();
            if parts.is_empty() {
                continue;
            }
            let into = [Target { ptr: out[at..].as_mut_ptr(), streaming: false }];
            // SAFETY: all of them hold a number at `at`.
            unsafe { fold(dtype, ReduceOp::Avg, &parts, &into, 1, Some(1.0 / parts.len() as f64)) };
        }
        out
    }

    /// Missing ranges of one source: multiples of 16 bytes, ascending and apart.
    fn ranges() -> impl Strategy<Value = Vec<Range<u32>>> {
        prop::collection::btree_set(0..=BYTES as u32 / 16, 0..8).prop_map(|cuts| {
            let cuts: Vec<u32> = cuts.into_iter().map(|cut| cut * 16).collect();
            cuts.chunks_exact(2).map(|pair| pair[0]..pair[1]).collect()
        })
    }

    proptest! {
        #[test]
        fn each_number_is_the_average_of_those_that_came(
            values in prop::collection::vec((prop::collection::vec(1u8..200, BYTES), ranges()), 1..6),
            streaming: bool,
        ) {
            for dtype in FLOATS {
                let missing: Vec<Vec<Range<u32>>> = values.iter().map(|(_, m)| m.clone()).collect();
                let sources: Vec<Vec<u8>> = values
                    .iter()
                    .map(|(v, m)| {
                        let numbers = v.iter().take(BYTES / dtype.size());
                        let mut bytes: Vec<u8> = numbers.flat_map(|&v| number(dtype, v)).collect();
                        m.iter().for_each(|r| bytes[r.start as usize..r.end as usize].fill(0));
                        bytes
                    })
                    .collect();
                let mut out = [vec![1u8; BYTES], vec![2u8; BYTES]];
                let targets = out.each_mut().map(|o| Target { ptr: o.as_mut_ptr(), streaming });
                let parts: Vec<*const u8> = sources.iter().map(|s| s.as_ptr()).collect();
                let holes: Vec<&[Range<u32>]> = missing.iter().map(Vec::as_slice).collect();
                // SAFETY: everything is `BYTES` long.
                unsafe { average(dtype, &parts, &holes, &targets, BYTES) };
                let expected = naive(dtype, &sources, &missing);
                prop_assert_eq!(&out[0], &expected);
                prop_assert_eq!(&out[1], &expected);
            }
        }
    }
}
