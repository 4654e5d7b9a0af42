//! How an operation stands, and where its values lie: nothing here changes it.

use std::time::Instant;

use tweed_kernels::ReduceOp;
use tweed_proto::Reach;
use tweed_schedule::Rank;

use super::{label, ActiveOp};
use crate::link::message::{Kind, Message};

impl ActiveOp {
    /// What was called, for the texts of errors.
    pub(crate) fn label(&self) -> String {
        label(&self.request, &self.group)
    }

    /// A message about one piece.
    pub(crate) fn message(&self, kind: Kind, send: u32, slice: u32) -> Message {
        let signature = self.signature;
        Message { send, slice, signature, ..Message::new(kind, self.key.group, self.key.op) }
    }

    /// Send number `send`, to or from `other`, may lose parts: it carries what its sender contributes to a sum, and
    /// nothing else.
    pub(crate) fn is_lossy(&self, send: u32, other: Rank) -> bool {
        let far = self.executor.layout().reach[other as usize] == Reach::Wire;
        let lossy = far && self.group.terms.ltp.as_ref().is_some_and(|ltp| !ltp.lossless);
        let sum = matches!(self.request.reduce_op, ReduceOp::Sum | ReduceOp::Avg);
        lossy && sum && self.request.dtype.is_float() && self.executor.program().is_alone(send)
    }

    /// An average counts for each number only those whose contribution to it has come.
    pub(super) fn divides_by_delivered(&self) -> bool {
        self.group.terms.ltp.as_ref().is_some_and(|ltp| ltp.divide_by_delivered)
    }

    /// Bytes of the piece that `send` moves.
    pub(crate) fn sent_bytes(&self, send: u32, slice: u32) -> u32 {
        let program = self.executor.program();
        let output = program.departure(send).map(|o| program.outputs[o as usize].chunk);
        output.map_or(0, |chunk| self.piece_bytes(chunk, slice) as u32)
    }

    /// The processes that take part, without this one.
    pub(crate) fn concerned(&self) -> Vec<usize> {
        let others = |&rank: &Rank| rank != self.group.rank && self.key.peer.is_none_or(|p| p == rank);
        (0..self.group.ranks()).filter(others).map(|r| self.group.peers[r as usize]).collect()
    }

    /// The group's rank for a rank of the program.
    pub(crate) fn group_rank(&self, rank: Rank) -> Rank {
        self.pair.map_or(rank, |p| p[rank as usize])
    }

    /// The rank in the program of a process; `None` if it has no part.
    pub(crate) fn program_rank(&self, peer: usize) -> Option<Rank> {
        (0..self.executor.program().ranks).find(|&rank| self.peer(rank) == peer)
    }

    /// The process behind a rank of the program.
    pub(crate) fn peer(&self, rank: Rank) -> usize {
        self.group.peers[self.group_rank(rank) as usize]
    }

    /// Contributes nothing to sums.
    pub(super) fn is_server(&self, rank: Rank) -> bool {
        self.group.terms.server == Some(self.group_rank(rank))
    }

    /// How many ranks contribute to a sum.
    pub(super) fn contributors(&self) -> u32 {
        self.group.terms.contributors(self.group.ranks())
    }

    /// Bytes of one piece of the chunk that an output or input is about.
    pub(crate) fn piece_bytes(&self, chunk: u32, slice: u32) -> u64 {
        self.executor.layout().piece_of(chunk, slice).1
    }

    /// The group ranks that have not done what this rank waits for.
    pub(crate) fn waits_for(&self) -> Vec<Rank> {
        self.executor.waits_for().into_iter().map(|r| self.group_rank(r)).collect()
    }

    /// Its caller waits, and may still get what he called for. Ranks that disagree part: that is no loss.
    pub(crate) fn is_alive(&self) -> bool {
        !self.told && self.dispute.since.is_none()
    }

    /// By when ranks that disagree must have said what they called.
    pub(crate) fn end_of_dispute(&self) -> Option<Instant> {
        self.dispute.since.map(|since| since + self.late.vigil.limits().dispute)
    }

    /// When something is due because it is late.
    pub(crate) fn next_step(&self) -> Instant {
        self.op.started + self.late.vigil.next()
    }

    /// Where peers read an output, and whether they may write the answer there.
    pub(crate) fn exposed_at(&self, output: u32, slice: u32) -> Option<(u64, bool)> {
        let layout = self.executor.layout();
        if !layout.in_place {
            return Some((self.memory.cell(slice, u64::from(output)), false));
        }
        let out = &self.executor.program().outputs[output as usize];
        let place = self.places[out.chunk as usize];
        let bytes = self.piece_bytes(out.chunk, slice);
        let at = self.memory.arena.mapping().offset_of(self.value(out.chunk, out.version, slice), bytes)?;
        Some((at, place.initial == place.result))
    }

    /// What leaves over a wire.
    pub(crate) fn leaving(&self, output: u32, slice: u32) -> (*const u8, usize) {
        let out = &self.executor.program().outputs[output as usize];
        (self.value(out.chunk, out.version, slice), self.piece_bytes(out.chunk, slice) as usize)
    }

    /// Where a value that comes over a wire may be written at once: it is the result, and nobody needs what lies there.
    pub(crate) fn landing_place(&self, message: &Message) -> Option<*mut u8> {
        let (index, _) = self.executor.program().arrival(message.send)?;
        let input = self.executor.program().inputs.get(index as usize)?;
        let alone = input.sends.len() == 1 && !input.own && self.scale(input).is_none();
        let whole = self.piece_bytes(input.chunk, message.slice) == u64::from(message.bytes);
        if !alone || !whole || !self.executor.may_land(message.slice, index) {
            return None;
        }
        let place = self.value(input.chunk, input.version, message.slice);
        (!place.is_null()).then_some(place)
    }

    /// Where a value of a chunk lies in this rank's memory.
    pub(super) fn value(&self, chunk: u32, version: u32, slice: u32) -> *mut u8 {
        let place = self.places[chunk as usize];
        let base = if version == 0 { place.initial } else { place.result };
        if base.is_null() {
            if let Some(&index) = self.memory.scratch.get(&chunk) {
                return self.memory.address(slice, self.memory.outputs + index);
            }
        }
        base.wrapping_add(self.executor.layout().piece_of(chunk, slice).0 as usize)
    }
}
