//! What an operation computes: it takes values in, stages them, and multiplies them.

use std::ops::Range;

use tweed_kernels::{copy, fold, ReduceOp, Target};
use tweed_proto::{Action, Combine, Input};
use tweed_schedule::Rank;

use super::delivered::average;
use super::ActiveOp;
use crate::link::peers::Links;
use crate::operation::delivery::Share;
use crate::operation::request::Request;

/// From whom, its value, and what of it is missing.
type Source<'a> = (Rank, *const u8, &'a [Range<u32>]);

impl ActiveOp {
    /// What the values of an input are multiplied with once it is complete.
    pub(super) fn scale(&self, input: &Input) -> Option<f64> {
        let averaged = self.request.reduce_op == ReduceOp::Avg && input.complete;
        averaged.then(|| 1.0 / f64::from(self.contributors()))
    }

    /// Carries out arithmetic or staging. `Err` if a peer told of memory that it does not have.
    pub(crate) fn compute(&mut self, action: &Action, links: &mut Links) -> Result<(), Rank> {
        match action {
            Action::Stage { output, slice } => {
                let (from, bytes) = self.leaving(*output, *slice);
                let cell = self.target(self.memory.address(*slice, u64::from(*output)), false);
                // SAFETY: the value and the cell are this operation's, and the executor lets nobody else touch them now.
                unsafe { copy(from, &[cell], bytes) };
                Ok(())
            }
            Action::Combine(combine) => self.combine(combine, links),
            Action::Signal(_) | Action::Transmit { .. } => Ok(()),
        }
    }

    fn combine(&mut self, combine: &Combine, links: &mut Links) -> Result<(), Rank> {
        let program = self.executor.program();
        let input = &program.inputs[combine.input as usize];
        let bytes = self.piece_bytes(input.chunk, combine.slice);
        let arrivals = self.executor.arrivals(combine.slice, combine.input);
        let mut sources: Vec<Source> = Vec::with_capacity(arrivals.len() + 1);
        let mut targets =
            vec![self.target(self.value(input.chunk, input.version, combine.slice), self.streaming)];
        let mut shares = Vec::new();
        for (position, (&(send, src), arrival)) in input.sends.iter().zip(arrivals).enumerate() {
            let arrival = arrival.expect("an input is combined once all has arrived");
            let address = links.resolve(self.peer(src), arrival.at, bytes).ok_or(src)?;
            let missing = links.missing(self.peer(src), arrival.at);
            if !(self.is_server(src) && program.is_alone(send)) {
                sources.push((src, address, missing));
            }
            if self.is_lossy(send, src) {
                shares.push((self.group_rank(src), Share::new(bytes, missing)));
            }
            if combine.puts.iter().any(|&(p, _)| p as usize == position) {
                targets.push(self.target(address, self.streaming));
            }
        }
        if input.own && !(self.is_server(program.rank) && input.version == 1) {
            let own = self.value(input.chunk, input.version - 1, combine.slice);
            let place = sources.partition_point(|&(src, ..)| src < program.rank);
            sources.insert(place, (program.rank, own, &[]));
        }
        if let Some(output) = combine.stage {
            targets.push(self.target(self.memory.address(combine.slice, u64::from(output)), false));
        }
        // A line that was just read lies in the cache: writing it past the cache would only cost more.
        for target in &mut targets {
            target.streaming &= sources.iter().all(|&(_, source, _)| source != target.ptr.cast_const());
        }
        if let ([(_, landed, _)], None) = (&sources[..], self.scale(input)) {
            // What came over a wire may lie in its place already.
            targets.retain(|target| target.ptr.cast_const() != *landed);
        }
        self.fold(&sources, &targets, bytes as usize, self.scale(input));
        for (&(_, src), arrival) in input.sends.iter().zip(arrivals) {
            links.drop_landed(self.peer(src), arrival.map_or(0, |a| a.at));
        }
        shares.into_iter().for_each(|(rank, share)| self.delivery.note_received(rank, share));
        Ok(())
    }

    fn fold(&self, sources: &[Source<'_>], targets: &[Target], bytes: usize, scale: Option<f64>) {
        let (dtype, op) = (self.request.dtype, self.request.reduce_op);
        if bytes == 0 || targets.is_empty() {
            return;
        }
        let values: Vec<*const u8> = sources.iter().map(|s| s.1).collect();
        let missing: Vec<&[Range<u32>]> = sources.iter().map(|s| s.2).collect();
        let delivered = self.divides_by_delivered() && missing.iter().any(|m| !m.is_empty());
        // SAFETY: `resolve` has checked that peers' values lie in their mapped memory; own values and targets are
        // this operation's; the executor lets nobody write a source or touch a target meanwhile.
        unsafe {
            match values[..] {
                [source] if scale.is_none() => copy(source, targets, bytes),
                _ if delivered && scale.is_some() => average(dtype, &values, &missing, targets, bytes),
                _ => fold(dtype, op, &values, targets, bytes / dtype.size(), scale),
            }
        }
    }

    fn target(&self, ptr: *mut u8, streaming: bool) -> Target {
        Target { ptr, streaming }
    }
}

/// Multiplies the contributions of `PREMUL_SUM`: in place where the caller allows it, else in a copy.
pub(super) fn prescale(request: &mut Request) -> Vec<Vec<u8>> {
    let mut copies = Vec::new();
    if !request.reduces() || request.reduce_op != ReduceOp::PremulSum {
        return copies;
    }
    for segment in &mut request.inputs {
        let source = segment.data.cast_const();
        if !request.outputs.contains(segment) {
            copies.push(vec![0u8; segment.bytes as usize]);
            segment.data = copies.last_mut().expect("just pushed").as_mut_ptr();
        }
        let into = [Target { ptr: segment.data, streaming: false }];
        let numel = segment.bytes as usize / request.dtype.size();
        // SAFETY: the segment is the caller's, and its copy is ours and as long.
        unsafe { fold(request.dtype, ReduceOp::PremulSum, &[source], &into, numel, Some(request.factor)) };
    }
    copies
}
