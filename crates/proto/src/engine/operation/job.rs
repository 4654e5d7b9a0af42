//! What an operation has computed: it takes values in, stages them, and multiplies them.
//!
//! The engine only describes the work. Whoever drives it does it, with the engine locked, and answers with
//! [`Engine::handle_computed`](crate::engine::Engine::handle_computed).

use std::ops::Range;

use tweed_kernels::{DType, ReduceOp};
use tweed_schedule::Rank;

use super::ActiveOp;
use crate::engine::delivery::Share;
use crate::engine::host::{Address, Host, Lease};
use crate::engine::landed::Landed;
use crate::engine::peers::Peers;
use crate::executor::{Action, Combine};
use crate::program::Input;

/// A value to be combined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Where the source lies.
    pub at: Address,
    /// Ranges of its bytes that did not arrive, and are zero; ascending.
    pub missing: Vec<Range<u32>>,
}

/// Where a result goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Where its first byte lies.
    pub at: Address,
    /// Whether it is written past the cache.
    pub streaming: bool,
}

/// Arithmetic, or a copy, on one piece.
#[derive(Debug)]
pub struct Job {
    /// The type of an element.
    pub dtype: DType,
    /// How the sources are combined, in their order.
    pub reduce_op: ReduceOp,
    /// What is combined; one alone is copied unless there is a `scale`.
    pub sources: Vec<Source>,
    /// Where the result goes; all of them, or none.
    pub targets: Vec<Target>,
    /// The length of each.
    pub bytes: u64,
    /// What the result is multiplied with.
    pub scale: Option<f64>,
    /// Each value is the average over the sources that have it.
    pub by_delivered: bool,
    pub(in crate::engine) run: u64,
    pub(in crate::engine) action: Action,
    /// What of peers is touched, and under which leases.
    pub(in crate::engine) claims: Vec<(usize, Lease)>,
    /// Values that came over wires and are used up with it.
    landed: Vec<u64>,
    shares: Vec<(Rank, Share)>,
    missing: Vec<(usize, u64)>,
}

/// Why there is no job.
pub(in crate::engine) enum NoJob {
    /// This rank announced memory that it does not have.
    Outside(Rank),
    /// This rank has revoked its lease.
    Revoked(Rank),
}

impl<C> ActiveOp<C> {
    /// What the values of an input are multiplied with once it is complete.
    pub(super) fn scale(&self, input: &Input) -> Option<f64> {
        let averaged = self.request.reduce_op == ReduceOp::Avg && input.complete;
        averaged.then(|| 1.0 / f64::from(self.contributors()))
    }

    fn job(&self, action: Action, bytes: u64) -> Job {
        Job {
            dtype: self.request.dtype,
            reduce_op: self.request.reduce_op,
            sources: Vec::new(),
            targets: Vec::new(),
            bytes,
            scale: None,
            by_delivered: false,
            run: self.run,
            action,
            claims: Vec::new(),
            landed: Vec::new(),
            shares: Vec::new(),
            missing: Vec::new(),
        }
    }

    /// The copy that puts a value where peers read it.
    pub(in crate::engine) fn staging(&self, output: u32, slice: u32, host: &impl Host) -> Job {
        let (at, bytes) = self.leaving(output, slice, host);
        let mut job = self.job(Action::Stage { output, slice }, bytes);
        job.sources = vec![Source { at, missing: Vec::new() }];
        job.targets = vec![Target { at: self.cell(slice, u64::from(output), host), streaming: false }];
        job
    }

    /// The arithmetic that takes an input in.
    pub(in crate::engine) fn combining<H: Host>(
        &self,
        combine: &Combine,
        (links, landed): (&Peers, &Landed),
        host: &mut H,
    ) -> Result<Job, NoJob> {
        let program = self.executor.program();
        let input = &program.inputs[combine.input as usize];
        let bytes = self.piece_bytes(input.chunk, combine.slice);
        let mut job = self.job(Action::Combine(combine.clone()), bytes);
        let streaming = self.streaming;
        let result = self.value(input.chunk, input.version, combine.slice, host);
        job.targets.push(Target { at: result, streaming });
        let mut ranks: Vec<Rank> = Vec::with_capacity(input.sends.len() + 1);
        let arrivals = self.executor.arrivals(combine.slice, combine.input);
        for (position, (&(send, src), arrival)) in input.sends.iter().zip(arrivals).enumerate() {
            let arrival = arrival.expect("an input is combined once all has arrived");
            let number = self.peer(src);
            let shared = links.get(number).is_some_and(|p| p.shared);
            let found = match shared {
                true => host.peer_address(number, arrival.at, bytes).map(|at| (at, &[][..])),
                false => landed.find(arrival.at, bytes),
            };
            let (at, missing) = found.ok_or(NoJob::Outside(src))?;
            if shared {
                let lease = self.leases.get(&number).ok_or(NoJob::Outside(src))?;
                job.claims.push((number, *lease));
            } else {
                job.landed.push(arrival.at);
            }
            if self.is_lossy(send, src) {
                job.shares.push((self.group_rank(src), Share::new(bytes, missing)));
                let place =
                    |r: &Range<u32>| (result.plus(u64::from(r.start)).0 as usize, u64::from(r.end - r.start));
                job.missing.extend(missing.iter().filter(|_| self.contributes).map(place));
            }
            if !(self.is_server(src) && program.is_alone(send)) {
                job.sources.push(Source { at, missing: missing.to_vec() });
                ranks.push(src);
            }
            if combine.puts.iter().any(|&(p, _)| p as usize == position) {
                job.targets.push(Target { at, streaming });
            }
        }
        if input.own && !(self.is_server(program.rank) && input.version == 1) {
            let at = self.value(input.chunk, input.version - 1, combine.slice, host);
            let place = ranks.partition_point(|&src| src < program.rank);
            job.sources.insert(place, Source { at, missing: Vec::new() });
        }
        if let Some(output) = combine.stage {
            let at = self.cell(combine.slice, u64::from(output), host);
            job.targets.push(Target { at, streaming: false });
        }
        job.scale = self.scale(input);
        self.finish_job(&mut job);
        Ok(job)
    }

    fn finish_job(&self, job: &mut Job) {
        // A line that was just read lies in the cache: writing it past the cache would only cost more.
        for target in &mut job.targets {
            target.streaming &= job.sources.iter().all(|source| source.at != target.at);
        }
        if let ([source], None) = (&job.sources[..], job.scale) {
            // What came over a wire may lie in its place already.
            let landed = source.at;
            job.targets.retain(|target| target.at != landed);
        }
        let incomplete = job.sources.iter().any(|source| !source.missing.is_empty());
        let by_delivered = self.group.config.ltp.as_ref().is_some_and(|ltp| ltp.divide_by_delivered);
        job.by_delivered = incomplete && job.scale.is_some() && by_delivered;
    }

    /// A job of this operation is done.
    pub(in crate::engine) fn finish(&mut self, job: Job, landed: &mut Landed, host: &mut impl Host) {
        job.landed.into_iter().for_each(|number| landed.forget(number, host));
        job.shares.into_iter().for_each(|(rank, share)| self.delivery.note_received(rank, share));
        self.delivery.missing.extend(job.missing);
        self.executor.finished(&job.action);
    }
}

/// Announces to the owners what is about to be touched. `Err`: who has revoked its lease; nothing is claimed then.
pub(in crate::engine) fn claim(job: &Job, host: &mut impl Host) -> Result<(), usize> {
    for (place, &(peer, lease)) in job.claims.iter().enumerate() {
        if !host.claim(peer, lease) {
            job.claims[..=place].iter().for_each(|&(peer, lease)| host.let_go(peer, lease));
            return Err(peer);
        }
    }
    Ok(())
}
