//! Loss: how much the path loses by itself, and when it loses clearly more.
//!
//! A path that drops at random does so at any rate: slowing down would not help. A queue that overflows drops only
//! while too much is sent. So loss is counted in blocks, and a block is compared with the mean of those before it
//! that were no overflow: after an overflow the senders slow down, and the blocks that follow lose less.

/// Counts loss in blocks of at least one round trip.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    block: Block,
    past: [Block; BLOCKS],
    at: usize,
    /// What is found lost in the round after an overflow was sent before we slowed down.
    known: bool,
}

/// Packets, counted in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    acked: u64,
    lost: u64,
}

impl Watch {
    pub(super) fn new() -> Watch {
        let assumed = Block { acked: 950_000 / BLOCKS as u64, lost: 50_000 / BLOCKS as u64 };
        Watch { block: Block::default(), past: [assumed; BLOCKS], at: 0, known: false }
    }

    pub(super) fn add(&mut self, acked: u64, lost: u64) {
        self.block.acked += acked;
        self.block.lost += lost;
    }

    /// A round trip has passed; packets are of `packet` bytes. If this block lost clearly more than the path
    /// does by itself: which share more.
    pub(super) fn end_round(&mut self, packet: u64) -> Option<f64> {
        if std::mem::take(&mut self.known) {
            self.block = Block::default();
            return None;
        }
        let count = (self.block.acked + self.block.lost) as f64 / packet.max(1) as f64;
        let lost = self.block.lost as f64 / packet.max(1) as f64;
        if lost > OUTAGE * count {
            self.block = Block::default();
            return None;
        }
        let expected = self.ambient() * count;
        if lost >= FEWEST && lost > expected + CERTAINTY * (expected + 0.1).sqrt() + MARGIN * count {
            self.block = Block::default();
            self.known = true;
            return Some((lost - expected) / count);
        }
        if count >= LEAST {
            self.past[self.at] = std::mem::take(&mut self.block);
            self.at = (self.at + 1) % BLOCKS;
        }
        None
    }

    /// The share that the path loses by itself, within what is tolerated.
    pub(super) fn ambient(&self) -> f64 {
        let sum = |of: fn(&Block) -> u64| self.past.iter().map(of).sum::<u64>() as f64;
        let lost = sum(|block| block.lost);
        (lost / (lost + sum(|block| block.acked)).max(1.0)).min(TOLERATED)
    }
}

/// Few enough to learn a new path within some tens of round trips.
const BLOCKS: usize = 16;

/// Packets of a block: fewer say little about 5 %.
const LEAST: f64 = 64.0;

/// The random loss that is taken as given, and before anything is known, assumed.
const TOLERATED: f64 = 0.05;

/// Standard deviations of a random count (Poisson) that are no alarm: one round in 700.
const CERTAINTY: f64 = 3.0;

/// More loss than the path's own that is no alarm (BBRv2 has 2 % in all).
const MARGIN: f64 = 0.01;

/// More is no overflow but an interruption: it tells nothing about the rate.
const OUTAGE: f64 = 0.9;

/// Packets: fewer are no alarm, however short the block.
const FEWEST: f64 = 3.0;
