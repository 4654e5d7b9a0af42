//! All links of a testbed: what becomes of a packet from one host to another.

use std::time::Duration;

use crate::direction::{Bursts, Direction};
use crate::settings::Directions;
use tweed_rng::Rng;

/// A packet that is held back waits so much longer at most: some packets at 100 Mbit/s and more overtake it.
const HELD_BACK: Duration = Duration::from_millis(2);

/// What decisions may be late by: a share of the shortest delay, and never more than this.
const MOST_LATE: Duration = Duration::from_micros(100);
const LATE_SHARE: u32 = 8;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The packet is lost.
    Lost,
    /// The packet arrives at the receiver.
    Passes {
        /// When it is due at the receiver's port.
        at: Duration,
        /// It was held back so that others may overtake it.
        held_back: bool,
        /// A copy of it arrives right behind it.
        again: bool,
    },
}

/// Decides about packets between hosts that are numbered from 0. Pure: seeded, and `now` is an argument.
///
/// Packets from one host to another keep their order, whatever the jitter and however the delay is changed, but
/// for those that are held back. A packet passes the sender's direction up and then the receiver's down.
#[derive(Clone, Debug)]
pub struct Links {
    directions: Directions,
    losing_up: Vec<Bursts>,
    losing_down: Vec<Bursts>,
    /// When the last packet that was not held back is due, by sender and receiver.
    due: Vec<Duration>,
    rng: Rng,
    grain: Duration,
}

impl Links {
    /// Links of `directions.up.len()` hosts.
    pub fn new(directions: Directions, seed: u64) -> Links {
        let hosts = directions.up.len();
        Links {
            losing_up: vec![Bursts::default(); hosts],
            losing_down: vec![Bursts::default(); hosts],
            due: vec![Duration::ZERO; hosts * hosts],
            rng: Rng::new(seed),
            grain: grain(&directions),
            directions,
        }
    }

    /// From now on links are like this; packets under way are due as before. The number of hosts must be the same.
    pub fn change(&mut self, directions: Directions) {
        self.grain = grain(&directions);
        self.directions = directions;
    }

    /// By how much packets may be late without being told from those on time: no more than 100 µs, and an eighth of
    /// the shortest delay between any two hosts.
    pub fn grain(&self) -> Duration {
        self.grain
    }

    /// What becomes of a packet that leaves the host `from` for `to` at `now`.
    pub fn decide(&mut self, now: Duration, from: usize, to: usize) -> Fate {
        let (up, down) = (self.directions.up[from], self.directions.down[to]);
        // Both are asked, so that neither chain stands still because of the other.
        let lost = self.losing_up[from].loses(&up, &mut self.rng);
        if self.losing_down[to].loses(&down, &mut self.rng) || lost {
            return Fate::Lost;
        }
        let again = self.either(&up, &down, |direction| direction.duplicate_ppm);
        let held_back = self.either(&up, &down, |direction| direction.reorder_ppm);
        let at = now + up.draw_delay(&mut self.rng) + down.draw_delay(&mut self.rng);
        self.pass(at, (from, to), held_back, again)
    }

    /// What becomes of a multicast packet that leaves the host `from` at `now`, by receiver: all hosts but the sender.
    ///
    /// The sender's direction up acts once, on what it sends once: a packet that is lost there is lost for all, and
    /// one that comes twice does so everywhere. Each receiver's direction down acts on its own copy.
    pub fn decide_group(&mut self, now: Duration, from: usize) -> Vec<(usize, Fate)> {
        let up = self.directions.up[from];
        let lost = self.losing_up[from].loses(&up, &mut self.rng);
        let again = self.rng.bernoulli(f64::from(up.duplicate_ppm) / 1e6);
        let held_back = self.rng.bernoulli(f64::from(up.reorder_ppm) / 1e6);
        let left = now + up.draw_delay(&mut self.rng);
        let receivers = (0..self.directions.up.len()).filter(|to| *to != from);
        receivers.map(|to| (to, self.arrive(left, (from, to), lost, held_back, again))).collect()
    }

    /// What becomes of a receiver's copy of a multicast packet that has passed the sender's direction.
    fn arrive(
        &mut self,
        left: Duration,
        (from, to): (usize, usize),
        lost: bool,
        held_back: bool,
        again: bool,
    ) -> Fate {
        let down = self.directions.down[to];
        if self.losing_down[to].loses(&down, &mut self.rng) || lost {
            return Fate::Lost;
        }
        let again = self.rng.bernoulli(f64::from(down.duplicate_ppm) / 1e6) || again;
        let held_back = self.rng.bernoulli(f64::from(down.reorder_ppm) / 1e6) || held_back;
        let at = left + down.draw_delay(&mut self.rng);
        self.pass(at, (from, to), held_back, again)
    }

    /// A packet that is due at `at` or later, so that those to the same host keep their order.
    fn pass(&mut self, at: Duration, (from, to): (usize, usize), held_back: bool, again: bool) -> Fate {
        let due = &mut self.due[from * self.directions.up.len() + to];
        let at = at.max(*due);
        if held_back {
            let more = Duration::from_nanos(self.rng.below(HELD_BACK.as_nanos() as u64));
            return Fate::Passes { at: at + more, held_back, again };
        }
        *due = at;
        Fate::Passes { at, held_back, again }
    }

    fn either(&mut self, up: &Direction, down: &Direction, ppm: impl Fn(&Direction) -> u32) -> bool {
        let above = self.rng.bernoulli(f64::from(ppm(up)) / 1e6);
        self.rng.bernoulli(f64::from(ppm(down)) / 1e6) || above
    }
}

fn grain(directions: &Directions) -> Duration {
    let least = |side: &[Direction]| side.iter().map(|direction| direction.delay_us).min().unwrap_or(0);
    let shortest = Duration::from_micros(least(&directions.up) + least(&directions.down));
    (shortest / LATE_SHARE).min(MOST_LATE)
}
