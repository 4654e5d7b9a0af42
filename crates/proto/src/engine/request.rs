//! What a caller asks for, and where each chunk of it lies in his memory.

use std::ops::Range;
use std::time::Duration;

use tweed_kernels::{DType, ReduceOp};
use tweed_schedule::{Collective, Rank, Schedule};

use super::error::EngineError;
use super::host::Address;

/// A stretch of the caller's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its first byte; may be null if it is empty.
    pub data: Address,
    /// The length of the segment.
    pub bytes: u64,
}

impl Segment {
    fn end(&self) -> Address {
        self.data.plus(self.bytes)
    }

    fn overlaps(&self, other: &Segment) -> bool {
        self.bytes > 0 && other.bytes > 0 && self.data < other.end() && other.data < self.end()
    }
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A collective; `root` counts where it has one.
    Collective {
        /// The collective that is run.
        what: Collective,
        /// The rank that values come from or go to.
        root: Rank,
    },
    /// An all-reduce of nothing.
    Barrier,
    /// One value to one rank.
    Send {
        /// The rank that the values go to.
        to: Rank,
        /// Met by a receive with the same tag.
        tag: u32,
    },
    /// One value from one rank, or from whoever sends first.
    Receive {
        /// The rank that the values come from; `None`: any.
        from: Option<Rank>,
        /// The tag that the sender gives.
        tag: u32,
    },
}

/// One call of one rank. `inputs` and `outputs` are as `engine.h` says.
#[derive(Clone, Debug)]
pub struct Request {
    /// What is to be done.
    pub operation: Operation,
    /// The type of an element.
    pub dtype: DType,
    /// How contributions are combined.
    pub reduce_op: ReduceOp,
    /// What contributions are multiplied with first, for `PremulSum`.
    pub factor: f64,
    /// What of more urgency waits for the same link overtakes what of less does. Each rank's own affair.
    pub urgency: i32,
    /// The caller waits at once.
    pub blocking: bool,
    /// The memory that is read from.
    pub inputs: Vec<Segment>,
    /// The memory that is written to.
    pub outputs: Vec<Segment>,
    /// The shape, for the texts of errors.
    pub shape: String,
    /// How long it may take; `None`: as long as the group says.
    pub timeout: Option<Duration>,
}

/// Where a chunk lies at this rank. A null address means: nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its value at the start.
    pub(crate) initial: Address,
    /// Where its last value goes; without one, values on the way live in scratch memory.
    pub(crate) result: Address,
    pub(crate) bytes: u64,
}

impl Place {
    const NOWHERE: Place = Place { initial: Address::NULL, result: Address::NULL, bytes: 0 };
}

impl Request {
    /// The name users know it by.
    pub fn name(&self) -> &'static str {
        match self.operation {
            Operation::Collective { what, .. } => what.name(),
            Operation::Barrier => "barrier",
            Operation::Send { .. } => "send",
            Operation::Receive { .. } => "recv",
        }
    }

    /// What the rank called, in words that differ where calls differ.
    pub fn describe(&self) -> String {
        if self.operation == Operation::Barrier {
            return "barrier".into();
        }
        let reduction = if self.reduces() { format!(" {}", self.reduce_op) } else { String::new() };
        let root = match self.operation {
            Operation::Collective { what, root } if what.is_rooted() => format!(" root {root}"),
            Operation::Send { to, tag } => format!(" to rank {to} tag {tag}"),
            Operation::Receive { from: Some(from), tag } => format!(" from rank {from} tag {tag}"),
            _ => String::new(),
        };
        let Request { dtype, shape, .. } = self;
        format!("{}{reduction} {dtype} {shape} ({} bytes){root}", self.name(), self.common_bytes())
    }

    /// Whether the operation combines values.
    pub fn reduces(&self) -> bool {
        let Operation::Collective { what, .. } = self.operation else { return false };
        matches!(what, Collective::AllReduce | Collective::ReduceScatter | Collective::Reduce)
    }

    /// The length that all ranks of the call have in common: of the buffer, or of one rank's part of it.
    pub fn common_bytes(&self) -> u64 {
        let first = |segments: &[Segment]| segments.first().map_or(0, |s| s.bytes);
        match self.operation {
            Operation::Collective { what: Collective::AllToAll, .. } => 0,
            Operation::Collective { what: Collective::ReduceScatter | Collective::Scatter, .. } => {
                first(&self.outputs)
            }
            Operation::Receive { .. } => first(&self.outputs),
            _ => first(&self.inputs),
        }
    }

    /// Bytes of the whole buffer that the schedule cuts into chunks; what the plan chooses by.
    pub fn whole_bytes(&self, ranks: u32) -> u64 {
        match self.operation {
            Operation::Collective { what, .. } if what.chunk_unit(ranks) == u64::from(ranks) => {
                self.common_bytes() * u64::from(ranks)
            }
            // Ranks may differ in what they send to whom, so the choice must not depend on it.
            Operation::Collective { what: Collective::AllToAll, .. } => u64::MAX,
            _ => self.common_bytes(),
        }
    }

    /// Refuses what cannot be carried out in a group of `ranks`.
    pub fn check(&self, rank: Rank, ranks: u32) -> Result<(), EngineError> {
        if self.reduces() {
            self.reduce_op.supports(self.dtype).map_err(|e| EngineError::Usage(e.to_string()))?;
        }
        if let Some(peer) = self.peer().filter(|&p| p >= ranks) {
            return Err(self.refuse(format!("there is no rank {peer} in a group of {ranks}")));
        }
        let pair = matches!(self.operation, Operation::Send { .. } | Operation::Receive { .. });
        if pair && self.peer() == Some(rank) {
            return Err(self.refuse(format!("rank {rank} is this rank itself; copy the tensor instead")));
        }
        let (inputs, outputs) = self.expected_segments(rank, ranks);
        if self.inputs.len() != inputs || self.outputs.len() != outputs {
            let (i, o) = (self.inputs.len(), self.outputs.len());
            let why = format!("needs {inputs} inputs and {outputs} outputs here, got {i} and {o}");
            return Err(self.refuse(why));
        }
        let element = self.dtype.size() as u64;
        let all = self.inputs.iter().chain(&self.outputs);
        match all.clone().find(|s| s.bytes % element != 0 || (s.bytes > 0 && s.data.is_null())) {
            None => Ok(()),
            Some(Segment { bytes, .. }) => {
                Err(self.refuse(format!("a tensor of {bytes} bytes holds no whole number of {}", self.dtype)))
            }
        }
    }

    fn refuse(&self, why: String) -> EngineError {
        EngineError::Usage(format!("{}: {why}", self.name()))
    }

    fn peer(&self) -> Option<Rank> {
        match self.operation {
            Operation::Collective { root, .. } => Some(root),
            Operation::Barrier => None,
            Operation::Send { to, .. } => Some(to),
            Operation::Receive { from, .. } => from,
        }
    }

    fn expected_segments(&self, rank: Rank, ranks: u32) -> (usize, usize) {
        let (n, one) = (ranks as usize, 1);
        match self.operation {
            Operation::Barrier => (0, 0),
            Operation::Send { .. } => (1, 0),
            Operation::Receive { .. } => (0, 1),
            Operation::Collective { what, root } => {
                let at_root = rank == root;
                match what {
                    Collective::AllReduce | Collective::Broadcast => (one, one),
                    Collective::Reduce => (one, usize::from(at_root)),
                    Collective::AllGather => (one, n),
                    Collective::Gather => (one, if at_root { n } else { 0 }),
                    Collective::ReduceScatter => (n, one),
                    Collective::Scatter => (if at_root { n } else { 0 }, one),
                    Collective::AllToAll => (n, n),
                }
            }
        }
    }

    /// Which inputs the operation would write to before all of them are read: they share memory with an output. Not the
    /// one that is in place, as the part that a rank keeps may be.
    pub fn overwritten_inputs(&self, rank: Rank) -> Vec<usize> {
        let start = self.outputs.iter().map(|s| s.data).min().unwrap_or(Address::NULL);
        let end = self.outputs.iter().map(Segment::end).max().unwrap_or(Address::NULL);
        let whole = Segment { data: start, bytes: end.0 - start.0 };
        let kept = |segments: &[Segment]| if segments.len() > 1 { rank as usize } else { 0 };
        let (kept_in, kept_out) = (kept(&self.inputs), kept(&self.outputs));
        let is_overwritten = |(index, input): (usize, &Segment)| {
            let meets = |(j, output): (usize, &Segment)| {
                input.overlaps(output) && !((index, j) == (kept_in, kept_out) && input == output)
            };
            input.overlaps(&whole) && self.outputs.iter().enumerate().any(meets)
        };
        (0..self.inputs.len()).filter(|&i| is_overwritten((i, &self.inputs[i]))).collect()
    }

    /// Where each chunk of `schedule` lies at `rank`.
    pub(super) fn places(&self, schedule: &Schedule, rank: Rank) -> Vec<Place> {
        (0..schedule.chunks()).map(|chunk| self.place(schedule, rank, chunk)).collect()
    }

    fn place(&self, schedule: &Schedule, rank: Rank, chunk: u32) -> Place {
        let (part_in, part_out, index, count) = self.part(schedule, rank, chunk);
        let cut = |segment: Option<&Segment>| segment.map(|s| cut(s, index, count));
        let (from, to) = (cut(part_in), cut(part_out));
        let common = Segment { data: Address::NULL, bytes: self.common_bytes() };
        let bytes = from.or(to).unwrap_or_else(|| self::cut(&common, index, count)).bytes;
        let held = schedule.origin(chunk).contains(rank);
        let kept = schedule.destination(chunk).contains(rank);
        let address = |segment: Option<Segment>, there: bool| {
            segment.filter(|_| there).map_or(Address::NULL, |s| s.data)
        };
        if schedule.pair(chunk).is_some() && !held && !kept {
            return Place::NOWHERE;
        }
        Place { initial: address(from, held), result: address(to, kept), bytes }
    }

    /// The segments that `chunk` is part of, and which of how many parts of them it is.
    fn part(
        &self,
        schedule: &Schedule,
        rank: Rank,
        chunk: u32,
    ) -> (Option<&Segment>, Option<&Segment>, u32, u32) {
        if let Some((src, dst)) = schedule.pair(chunk) {
            let count = schedule.chunks() / (schedule.ranks() * schedule.ranks());
            let input = self.inputs.get(dst as usize).filter(|_| src == rank);
            return (input, self.outputs.get(src as usize).filter(|_| dst == rank), chunk % count, count);
        }
        let Some(owner) = schedule.owner(chunk) else {
            return (self.inputs.first(), self.outputs.first(), chunk, schedule.chunks());
        };
        let count = schedule.chunks() / schedule.ranks();
        let pick = |segments: &'_ [Segment], whole: bool| -> Option<usize> {
            let index = if whole { owner as usize } else { 0 };
            (index < segments.len() && (whole || owner == rank)).then_some(index)
        };
        let spread_in = matches!(schedule.collective(), Collective::ReduceScatter | Collective::Scatter);
        let spread_out = matches!(schedule.collective(), Collective::AllGather | Collective::Gather);
        let input = pick(&self.inputs, spread_in).map(|i| &self.inputs[i]);
        let output = pick(&self.outputs, spread_out).map(|i| &self.outputs[i]);
        (input, output, chunk % count, count)
    }
}

/// The `index`-th of `count` parts of `segment`.
fn cut(segment: &Segment, index: u32, count: u32) -> Segment {
    let part = cut_range(segment.bytes, index, count);
    Segment { data: segment.data.plus(part.start), bytes: part.end - part.start }
}

/// Parts are equal up to the last, and begin on cache lines.
fn cut_range(bytes: u64, index: u32, count: u32) -> Range<u64> {
    let part = bytes.div_ceil(u64::from(count)).next_multiple_of(64);
    let start = (u64::from(index) * part).min(bytes);
    start..(start + part).min(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Segments of 64 bytes that begin where `inputs` and `outputs` say.
    fn request(operation: Operation, inputs: &[u64], outputs: &[u64]) -> Request {
        let segments = |at: &[u64]| at.iter().map(|&at| Segment { data: Address(at), bytes: 64 }).collect();
        Request {
            operation,
            dtype: DType::F32,
            reduce_op: ReduceOp::Sum,
            factor: 1.0,
            urgency: 0,
            blocking: false,
            inputs: segments(inputs),
            outputs: segments(outputs),
            shape: String::new(),
            timeout: None,
        }
    }

    #[test]
    fn a_rank_does_not_send_to_itself() {
        for operation in [Operation::Send { to: 1, tag: 0 }, Operation::Receive { from: Some(1), tag: 0 }] {
            let refused = request(operation, &[], &[]).check(1, 2).expect_err("rank 1 is the caller");
            assert!(refused.to_string().contains("rank 1 is this rank itself"), "{refused}");
        }
    }

    #[test]
    fn only_the_part_that_a_rank_keeps_may_be_in_place() {
        let of = |what, inputs: &[u64], outputs: &[u64]| {
            request(Operation::Collective { what, root: 1 }, inputs, outputs).overwritten_inputs(1)
        };
        let parts = [64, 128, 192];
        assert!(of(Collective::AllReduce, &[64], &[64]).is_empty());
        assert!(of(Collective::AllGather, &[128], &parts).is_empty());
        assert_eq!(of(Collective::AllGather, &[64], &parts), [0]);
        assert!(of(Collective::ReduceScatter, &parts, &[128]).is_empty());
        assert!(of(Collective::Scatter, &parts, &[256]).is_empty());
        assert_eq!(of(Collective::Scatter, &parts, &[192]), [2]);
        assert_eq!(of(Collective::Scatter, &parts, &[100]), [0, 1]);
        assert_eq!(of(Collective::AllToAll, &parts, &parts), [0, 2]);
        assert!(of(Collective::AllToAll, &[256, 320, 384], &parts).is_empty());
    }

    #[test]
    fn parts_cover_the_buffer_once() {
        for bytes in [0, 1, 63, 64, 1000, 4096] {
            for count in [1, 2, 3, 7] {
                let parts: Vec<Range<u64>> = (0..count).map(|i| cut_range(bytes, i, count)).collect();
                assert_eq!(parts[0].start, 0);
                assert_eq!(parts.last().map(|p| p.end), Some(bytes));
                assert!(parts.windows(2).all(|w| w[0].end == w[1].start));
            }
        }
    }
}
