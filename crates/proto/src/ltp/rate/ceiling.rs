//! The window's ceiling where a queue overflows: it falls with the loss and rises in steps.
//!
//! The estimate of the bandwidth alone would not do: it is a maximum, so that several senders' estimates add up to
//! more than the link. Equal steps for all, and cuts in proportion, make senders' shares alike (Chiu and Jain 1989).
//! It is a window and not a rate, so that a sender speeds up as soon as the others' packets leave the queue.
//! After a cut the ceiling soon comes back near to where the overflow was, and only then looks for more.

use std::time::Duration;

/// The most that may be in flight, bytes; none on a path without overflows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ceiling {
    pub(super) window: Option<u64>,
    /// The rate that it should come back to.
    goal: u64,
    /// When the last one was.
    pub(super) overflow: Option<Duration>,
    /// Round trips since the last overflow that used the window.
    rounds: u32,
    /// It came at about the same window as the one before.
    settled: bool,
}

impl Ceiling {
    /// A queue overflowed while so much was in flight, and so lost this share of the packets.
    /// It does not fall below `least`, nor below half of what it was.
    pub(super) fn overflowed(&mut self, now: Duration, in_flight: u64, excess: f64, least: u64) {
        let least = least.max(self.window.unwrap_or(0) / 2) as f64;
        let passed = (in_flight as f64 * (1.0 - excess)).max(least / (1.0 - CUT));
        let goal = passed * (1.0 - HEADROOM);
        *self = Ceiling {
            window: Some((passed * (1.0 - CUT)) as u64),
            settled: (goal - self.goal as f64).abs() < 0.1 * goal,
            goal: goal as u64,
            overflow: Some(now),
            rounds: 0,
        };
    }

    /// The overflow was none.
    pub(super) fn lift(&mut self) {
        *self = Ceiling::default();
    }

    /// A round trip without overflow that used the window has passed. A ceiling above `enough` limits nothing. `room`:
    /// the queue is a long one, and empty.
    pub(super) fn quiet_round(&mut self, packet: u64, enough: u64, room: bool) {
        let Some(window) = self.window else { return };
        self.rounds += 1;
        let window = if room {
            window + window / 4
        } else {
            match self.rounds.checked_sub(if self.settled { HOLD } else { APPROACH }) {
                None => window + self.goal.saturating_sub(window) / 2,
                Some(beyond) => window + ((packet / 8) << (beyond / DOUBLE_AFTER).min(20)).min(window / 4),
            }
        };
        self.window = Some(window).filter(|&window| window < enough);
    }
}

/// What is given up besides the excess: enough that several senders' cuts empty a short queue.
const CUT: f64 = 0.22;

/// How far below the overflow it comes back to.
const HEADROOM: f64 = 0.05;

/// Round trips in which it comes back, by half the way each.
const APPROACH: u32 = 4;

/// Round trips without looking for more, where two overflows in a row came at about the same window: that is the
/// share, and cubic beside it needs the time to grow.
const HOLD: u32 = 16;

/// Steps are an eighth of a packet at first, and twice as large after so many round trips without overflow: small
/// where many senders share, and soon large where the others have gone.
const DOUBLE_AFTER: u32 = 4;
