//! Loss: how much the path loses by itself, and when a queue overflows.
//!
//! # Theory of operation
//!
//! A path that drops by itself does so at any rate: slowing down does not help. A queue that overflows drops only
//! while too much is sent. So loss is counted in blocks of at least one round trip, and each block is compared with
//! the mean of those before it:
//!
//! 1. **Is it more than chance?** Losses come in bursts: a count of them then varies by more than that of
//!    independent losses, by twice the mean length of a burst less one (geometric lengths). Lengths are learnt where no
//!    queue is to be seen, since one that overflows makes long bursts as well; the first long burst on a path is no
//!    alarm there. Without a queue to be seen more certainty is asked for.
//! 2. **Then the sender slows down, as a trial.** Loss that goes away was an overflow. Loss that stays is the path's own:
//!    the mean becomes what was found, and the sender takes back what it gave up.
//!
//! Where a queue could be seen, it is a long one, which does not overflow while it cannot be seen: what is lost then is the
//! path's own without a trial, and there is room for more.
//!
//! What the path loses at least, even in the slow turns, is what the pace may make up for ([`Watch::steady`]).

/// Counts loss in blocks of at least one round trip.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    block: Block,
    past: [Block; BLOCKS],
    at: usize,
    /// All that was counted, the latest more.
    recent: Block,
    /// What was counted in rounds in which no queue could be seen.
    clear: Block,
    /// For so many more rounds it is known that a queue could be seen: it is a long one.
    deep: u32,
    /// Shares lost in the last blocks, whatever they were.
    shares: [f64; CYCLE],
    /// What is found lost in the round after an overflow was sent before we slowed down.
    known: bool,
    trial: Option<Trial>,
    /// The share that was lost although the sender had slowed down: more than usual is believed only after a trial.
    proven: f64,
}

/// Packets, counted in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    acked: u64,
    lost: u64,
    /// How many times in a row something was lost.
    bursts: u64,
}

/// The sender has slowed down; does it help?
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// Share lost when it did.
    before: f64,
    since: Block,
    queued: bool,
    slowed: bool,
}

/// What a round has shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// There is nothing new.
    Usual,
    /// More is lost than the path loses by itself, this share more: slow down.
    Overflow(f64),
    /// What seemed an overflow is lost at any rate: it was no use to slow down.
    Innocent,
}

impl Block {
    fn add(&mut self, other: Block) {
        self.acked += other.acked;
        self.lost += other.lost;
        self.bursts += other.bursts;
    }

    /// Adds what is newer, and forgets what is old.
    fn age(&mut self, newer: Block) {
        self.add(newer);
        if self.bytes() > RECENT {
            let Block { acked, lost, bursts } = *self;
            *self = Block { acked: acked / 2, lost: lost / 2, bursts: bursts / 2 };
        }
    }

    fn bytes(&self) -> u64 {
        self.acked + self.lost
    }

    fn share(&self) -> f64 {
        self.lost as f64 / (self.bytes() as f64).max(1.0)
    }
}

impl Watch {
    pub(super) fn new() -> Watch {
        let each = 1_000_000 / BLOCKS as u64;
        let lost = (each as f64 * ASSUMED) as u64;
        let assumed = Block { acked: each - lost, lost, bursts: lost / 1200 };
        Watch {
            block: Block::default(),
            past: [assumed; BLOCKS],
            at: 0,
            recent: Block::default(),
            clear: Block::default(),
            deep: 0,
            shares: [0.0; CYCLE],
            known: false,
            trial: None,
            proven: 0.0,
        }
    }

    /// So many bytes were acknowledged and lost; the lost packets make so many bursts.
    pub(super) fn add(&mut self, acked: u64, lost: u64, bursts: u64) {
        let new = Block { acked, lost, bursts };
        self.block.add(new);
        self.recent.age(new);
    }

    /// A round trip has passed; packets are of `packet` bytes. `queued`: a queue could be seen in it. `slowed`: the
    /// sender sends less than before the last overflow, if there was one; at its least window it cannot.
    pub(super) fn end_round(&mut self, packet: u64, queued: bool, slowed: bool) -> Verdict {
        let packet = packet.max(1);
        self.deep = self.deep.saturating_sub(1);
        if std::mem::take(&mut self.known) {
            self.block = Block::default();
            return Verdict::Usual;
        }
        let block = self.block;
        if block.share() > OUTAGE {
            self.block = Block::default();
            return Verdict::Usual;
        }
        if !queued {
            self.clear.age(block);
        }
        if let Some(excess) = self.excess(block, packet, queued, slowed) {
            self.block = Block::default();
            self.known = true;
            if let Some(verdict) = self.judge(block, packet, queued, slowed) {
                return verdict;
            }
            let before = block.share();
            let trial = Trial { before, since: Block::default(), queued: false, slowed: true };
            self.trial = self.trial.or(Some(trial));
            return Verdict::Overflow(excess);
        }
        if block.bytes() < LEAST * packet {
            return Verdict::Usual;
        }
        self.block = Block::default();
        self.keep(block);
        self.judge(block, packet, queued, slowed).unwrap_or(Verdict::Usual)
    }

    /// The share that the path loses by itself, within what is tolerated.
    pub(super) fn ambient(&self) -> f64 {
        let known = self.past().share().min(self.proven.max(ASSUMED));
        // A long queue does not overflow while it cannot be seen.
        match self.deep() && self.clear.bytes() >= CLEARLY {
            true => known.max(self.clear.share().min(TOLERATED)),
            false => known,
        }
    }

    /// Round trips have grown: the path has a long queue.
    pub(super) fn saw_queue(&mut self) {
        self.deep = REMEMBERED;
    }

    /// The path has a queue that can be seen before it overflows.
    pub(super) fn deep(&self) -> bool {
        self.deep > 0
    }

    /// What is lost even when the sender slows down to give a queue back what it has taken, within what is tolerated.
    pub(super) fn steady(&self) -> f64 {
        self.shares.iter().copied().fold(TOLERATED, f64::min)
    }

    /// The share that was lost of late, but by overflows; nothing is assumed.
    pub(super) fn measured(&self) -> f64 {
        self.recent.share().min(self.ambient())
    }

    /// Mean number of packets lost in a row.
    pub(super) fn burst(&self, packet: u64) -> f64 {
        burst(self.recent, packet)
    }

    /// How much more than its own the path has lost in this block, if that is no chance.
    fn excess(&self, block: Block, packet: u64, queued: bool, slowed: bool) -> Option<f64> {
        let (count, lost) = (block.bytes() as f64 / packet as f64, block.lost as f64 / packet as f64);
        let expected = self.ambient() * count;
        let spread = if slowed { 2.0 * burst(self.clear, packet) - 1.0 } else { 1.0 };
        let certainty = if queued { CERTAINTY } else { MORE_CERTAINTY };
        let usual = expected + certainty * ((expected + 0.1) * spread).sqrt() + MARGIN * count;
        (lost >= FEWEST && lost > usual).then(|| (lost - expected) / count)
    }

    /// Adds what was lost since the sender has slowed down. Once that says something: did it help?
    fn judge(&mut self, block: Block, packet: u64, queued: bool, slowed: bool) -> Option<Verdict> {
        let trial = self.trial.as_mut()?;
        trial.since.add(block);
        trial.queued |= queued;
        trial.slowed &= slowed;
        let Trial { before, since, queued, slowed } = *trial;
        if since.bytes() < LEAST * packet {
            return None;
        }
        self.trial = None;
        let ambient = self.ambient().min(before);
        // Others may keep a queue full although this sender has slowed down.
        if queued || !slowed || since.share() < ambient + STAYS * (before - ambient) {
            return None;
        }
        // All that is known of other times would hide it.
        let scale = |bytes: u64| bytes / BLOCKS as u64;
        let Block { acked, lost, bursts } = since;
        self.past = [Block { acked: scale(acked), lost: scale(lost), bursts: scale(bursts).max(1) }; BLOCKS];
        self.proven = (since.share() * (1.0 + MORE_PROVEN)).min(TOLERATED);
        (self.clear, self.known) = (since, false);
        Some(Verdict::Innocent)
    }

    fn keep(&mut self, block: Block) {
        self.past[self.at % BLOCKS] = block;
        self.shares[self.at % CYCLE] = block.share();
        self.at += 1;
    }

    fn past(&self) -> Block {
        let mut all = Block::default();
        self.past.iter().for_each(|&block| all.add(block));
        all
    }
}

fn burst(block: Block, packet: u64) -> f64 {
    (block.lost as f64 / packet as f64 / block.bursts.max(1) as f64).clamp(1.0, LONGEST_BURST)
}

/// Bytes over which loss is counted that asks for copies.
const RECENT: u64 = 8 << 20;

/// Few enough to learn a new path within some tens of round trips.
const BLOCKS: usize = 16;

/// Bytes without a queue that tell what the path loses.
const CLEARLY: u64 = 256 << 10;

/// Rounds: a host that was slow once may have looked like a queue.
const REMEMBERED: u32 = 64;

/// A cycle of probing has so many turns, one of which is slow.
const CYCLE: usize = 8;

/// Packets of a block: fewer say little about 5 %.
const LEAST: u64 = 64;

/// Random loss that is assumed before anything is known.
const ASSUMED: f64 = 0.05;

/// Random loss that is taken as given. Above that no network is worth being filled.
const TOLERATED: f64 = 0.3;

/// Standard deviations of a random count that are no alarm: one round in 700.
const CERTAINTY: f64 = 3.0;

/// As the certainty above, where no queue can be seen: one round in 14,000.
const MORE_CERTAINTY: f64 = 3.8;

/// More loss than the path's own that is no alarm (BBRv2 has 2 % in all).
const MARGIN: f64 = 0.01;

/// More is no overflow but an interruption: it tells nothing about the rate.
const OUTAGE: f64 = 0.9;

/// Packets: fewer are no alarm, however short the block.
const FEWEST: f64 = 3.0;

/// A share of the excess over the path's own loss; where it stays although the sender slowed down, it was no overflow.
/// A block that gave the alarm lost more than the mean, by chance, so it is less than all.
const STAYS: f64 = 0.4;

/// What was found in a trial may be less than the mean, by chance.
const MORE_PROVEN: f64 = 0.3;

/// A longer one is an interruption.
const LONGEST_BURST: f64 = 32.0;

#[cfg(test)]
mod tests;
