//! How an operation stands, and where its values lie: nothing here changes it.

use std::collections::BTreeMap;

use tweed_kernels::ReduceOp;
use tweed_schedule::Rank;

use super::{label, ActiveOp};
use crate::engine::host::{Address, Host, Time};
use crate::engine::members::SELF;
use crate::engine::message::{Kind, Message};
use crate::layout::Reach;

impl<C> ActiveOp<C> {
    /// What was called, for the texts of errors.
    pub(in crate::engine) fn label(&self) -> String {
        label(&self.request, &self.group)
    }

    /// A message about one piece.
    pub(in crate::engine) fn message(&self, kind: Kind, send: u32, slice: u32) -> Message {
        let signature = self.signature;
        Message { send, slice, signature, ..Message::new(kind, self.key.group, self.key.op) }
    }

    /// Send number `send`, to or from `other`, may lose parts: it carries what its sender contributes to a sum, or to one
    /// that its receiver forms, and nothing else.
    pub(in crate::engine) fn is_lossy(&self, send: u32, other: Rank) -> bool {
        let far = self.executor.layout().reach[other as usize] == Reach::Wire;
        let lossy = far && self.group.config.ltp.as_ref().is_some_and(|ltp| !ltp.lossless);
        let sum = matches!(self.request.reduce_op, ReduceOp::Sum | ReduceOp::Avg);
        let summed = sum && self.request.dtype.is_float() && self.executor.program().is_alone(send);
        lossy && (summed || self.contributes)
    }

    /// Bytes of the piece that `send` moves.
    pub(in crate::engine) fn sent_bytes(&self, send: u32, slice: u32) -> u32 {
        let program = self.executor.program();
        let output = program.departure(send).map(|o| program.outputs[o as usize].chunk);
        output.map_or(0, |chunk| self.piece_bytes(chunk, slice) as u32)
    }

    /// The processes that take part, without this one.
    pub(in crate::engine) fn concerned(&self) -> Vec<usize> {
        let others = |&rank: &Rank| rank != self.group.rank && self.key.peer.is_none_or(|p| p == rank);
        let processes = (0..self.group.ranks()).filter(others).map(|r| self.group.peers[r as usize]);
        processes.filter(|&peer| peer != SELF).collect()
    }

    /// Bytes that come over wires, by process.
    pub(in crate::engine) fn expected_from_wires(&self) -> BTreeMap<usize, u64> {
        let (layout, mut expected) = (self.executor.layout(), BTreeMap::new());
        for input in &self.executor.program().inputs {
            let far = |(_, src): &&(u32, Rank)| layout.reach[*src as usize] != Reach::Shared;
            for &(_, src) in input.sends.iter().filter(far) {
                *expected.entry(self.peer(src)).or_default() += layout.chunk_bytes[input.chunk as usize];
            }
        }
        expected
    }

    /// The group's rank for a rank of the program.
    pub(in crate::engine) fn group_rank(&self, rank: Rank) -> Rank {
        self.pair.map_or(rank, |p| p[rank as usize])
    }

    /// The rank in the program of a process; `None` if it has no part.
    pub(in crate::engine) fn program_rank(&self, peer: usize) -> Option<Rank> {
        (0..self.executor.program().ranks).find(|&rank| self.peer(rank) == peer)
    }

    /// The process behind a rank of the program.
    pub(in crate::engine) fn peer(&self, rank: Rank) -> usize {
        self.group.peers[self.group_rank(rank) as usize]
    }

    /// Contributes nothing to sums.
    pub(super) fn is_server(&self, rank: Rank) -> bool {
        self.group.config.server == Some(self.group_rank(rank))
    }

    /// How many ranks contribute to a sum.
    pub(super) fn contributors(&self) -> u32 {
        self.group.config.contributors(self.group.ranks())
    }

    /// Bytes of one piece of the chunk that an output or input is about.
    pub(in crate::engine) fn piece_bytes(&self, chunk: u32, slice: u32) -> u64 {
        self.executor.layout().piece_of(chunk, slice).1
    }

    /// The group ranks that have not done what this rank waits for.
    pub(in crate::engine) fn waits_for(&self) -> Vec<Rank> {
        let mut ranks: Vec<Rank> =
            self.executor.waits_for().into_iter().map(|r| self.group_rank(r)).collect();
        ranks.extend(self.withdrawn.iter().filter(|rank| !ranks.contains(rank)).collect::<Vec<_>>());
        ranks
    }

    /// It cannot end well without something that is still to come from that rank of the group.
    pub(in crate::engine) fn needs(&self, rank: Rank) -> bool {
        let program_rank = (0..self.executor.program().ranks).find(|&r| self.group_rank(r) == rank);
        self.waits_for().contains(&rank) || program_rank.is_some_and(|rank| self.executor.will_need(rank))
    }

    /// The caller has its result, or an error.
    pub(in crate::engine) fn has_result(&self) -> bool {
        self.call.is_none()
    }

    /// Its caller waits, and may still get what he called for. Ranks that disagree part: that is no loss.
    pub(in crate::engine) fn is_alive(&self) -> bool {
        !self.has_result() && self.dispute.since.is_none()
    }

    /// The time by which ranks that disagree must have sent what they called.
    pub(in crate::engine) fn end_of_dispute(&self) -> Option<Time> {
        self.dispute.since.map(|since| since + self.late.watchdog.limits.dispute)
    }

    /// When something is due because it is late.
    pub(in crate::engine) fn next_step(&self) -> Time {
        self.started.saturating_add(self.late.watchdog.next())
    }

    /// Where peers read an output, and whether they may write the answer there.
    pub(in crate::engine) fn exposed_at(
        &self,
        output: u32,
        slice: u32,
        host: &impl Host,
    ) -> Option<(u64, bool)> {
        let layout = self.executor.layout();
        if !layout.in_place {
            return Some((self.scratch.cell(slice, u64::from(output)), false));
        }
        let out = &self.executor.program().outputs[output as usize];
        let place = self.places[out.chunk as usize];
        let bytes = self.piece_bytes(out.chunk, slice);
        let at = host.offset(self.value(out.chunk, out.version, slice, host), bytes)?;
        Some((at, place.initial == place.result))
    }

    /// What leaves over a wire, or is staged.
    pub(in crate::engine) fn leaving(&self, output: u32, slice: u32, host: &impl Host) -> (Address, u64) {
        let out = &self.executor.program().outputs[output as usize];
        (self.value(out.chunk, out.version, slice, host), self.piece_bytes(out.chunk, slice))
    }

    /// Where a value that comes over a wire may be written at once: it is the result, and nobody needs what lies there.
    pub(in crate::engine) fn landing_place(&self, message: &Message, host: &impl Host) -> Option<Address> {
        let (index, _) = self.executor.program().arrival(message.send)?;
        let input = self.executor.program().inputs.get(index as usize)?;
        let alone = input.sends.len() == 1 && !input.own && self.scale(input).is_none();
        let whole = self.piece_bytes(input.chunk, message.slice) == u64::from(message.bytes);
        if !alone || !whole || !self.executor.may_land(message.slice, index) {
            return None;
        }
        let place = self.value(input.chunk, input.version, message.slice, host);
        (!place.is_null()).then_some(place)
    }

    /// Where a value of a chunk lies in this rank's memory.
    pub(super) fn value(&self, chunk: u32, version: u32, slice: u32, host: &impl Host) -> Address {
        let place = self.places[chunk as usize];
        let base = if version == 0 { place.initial } else { place.result };
        if base.is_null() {
            if let Some(&index) = self.scratch.chunks.get(&chunk) {
                return self.cell(slice, self.scratch.outputs + index, host);
            }
        }
        base.plus(self.executor.layout().piece_of(chunk, slice).0)
    }

    pub(super) fn cell(&self, slice: u32, index: u64, host: &impl Host) -> Address {
        host.address(self.scratch.cell(slice, index))
    }
}
