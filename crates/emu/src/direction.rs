//! One direction of one link: what it does to packets.

use std::time::Duration;

use serde::Deserialize;

use tweed_rng::Rng;

/// What a direction of a link does to each packet. The default does nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Direction {
    /// How much later a packet leaves it, in microseconds.
    pub delay_us: u64,
    /// The delay varies by so much in either direction, all values equally likely; at most `delay_us`.
    pub jitter_us: u64,
    /// How many of a million packets are held back so that others overtake them.
    pub reorder_ppm: u32,
    /// How many of a million packets come twice.
    pub duplicate_ppm: u32,
    /// How many of a million packets are lost in bursts; below a million.
    pub loss_ppm: u32,
    /// Mean length of a burst of losses, in packets; 1 or more where there is loss.
    pub burst: f64,
}

impl Direction {
    /// The delay of one packet, the jitter drawn.
    pub(crate) fn draw_delay(&self, rng: &mut Rng) -> Duration {
        let jitter = self.jitter_us.min(self.delay_us);
        let least = Duration::from_micros(self.delay_us - jitter);
        least + Duration::from_nanos(rng.below(2_000 * jitter + 1))
    }
}

/// Loss in bursts (Gilbert 1960, Elliott 1963): a chain of two states, in one of which all packets are lost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bursts {
    losing: bool,
}

impl Bursts {
    /// Whether the next packet is lost.
    ///
    /// A burst ends after each packet with probability `1 / burst`. One begins so often that the share of lost
    /// packets is the loss that was asked for; for that, good stretches have a mean length of
    /// `burst * (1 - loss) / loss`.
    pub(crate) fn loses(&mut self, direction: &Direction, rng: &mut Rng) -> bool {
        let loss = f64::from(direction.loss_ppm) / 1e6;
        if loss == 0.0 {
            self.losing = false;
            return false;
        }
        let burst = direction.burst.max(1.0);
        let turns = if self.losing { 1.0 / burst } else { loss / (burst * (1.0 - loss)) };
        self.losing ^= rng.bernoulli(turns.min(1.0));
        self.losing
    }
}
