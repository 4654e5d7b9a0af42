//! Loss: how much the path loses by itself, and when it loses clearly more.
//!
//! A path that drops at random does so at any rate: slowing down would not help. A queue that overflows drops only
//! while too much is sent. So loss is counted in blocks, and a block is compared with the quieter ones among the
//! last: where the senders made a queue overflow, some blocks since have been nearly free of loss.

/// Counts loss in blocks of at least one round trip.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    acked: u64,
    lost: u64,
    shares: [f64; BLOCKS],
    at: usize,
}

impl Watch {
    pub(super) fn new() -> Watch {
        Watch { acked: 0, lost: 0, shares: [TOLERATED; BLOCKS], at: 0 }
    }

    pub(super) fn add(&mut self, acked: u64, lost: u64) {
        self.acked += acked;
        self.lost += lost;
    }

    /// A round trip has passed; packets are of `packet` bytes. True if this block lost clearly more than the path
    /// does by itself.
    pub(super) fn end_round(&mut self, packet: u64) -> bool {
        let count = (self.acked + self.lost) as f64 / packet.max(1) as f64;
        let lost = self.lost as f64 / packet.max(1) as f64;
        let expected = self.ambient() * count;
        let alarm = lost > expected + CERTAINTY * expected.max(1.0).sqrt() + MARGIN * count;
        if alarm || count >= LEAST {
            self.shares[self.at] = lost / count;
            self.at = (self.at + 1) % BLOCKS;
            (self.acked, self.lost) = (0, 0);
        }
        alarm
    }

    /// The share that the path loses by itself: the lower quartile of the last blocks, within what is tolerated.
    pub(super) fn ambient(&self) -> f64 {
        let mut sorted = self.shares;
        sorted.sort_unstable_by(f64::total_cmp);
        sorted[BLOCKS / 4].min(TOLERATED)
    }
}

/// Enough for a quartile; few enough to learn a new path within some tens of round trips.
const BLOCKS: usize = 16;

/// Packets of a block: fewer say little about 5 %.
const LEAST: f64 = 64.0;

/// The random loss that is taken as given, and before anything is known, assumed.
const TOLERATED: f64 = 0.05;

/// Standard deviations of a random count (Poisson) that are no alarm: one round in 700.
const CERTAINTY: f64 = 3.0;

/// More loss than the path's own that is no alarm (BBRv2 has 2 % in all).
const MARGIN: f64 = 0.02;
