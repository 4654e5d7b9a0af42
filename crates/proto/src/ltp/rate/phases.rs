//! Phases: filling an unknown path, draining what was too much, and then probing in cycles.

use std::time::Duration;

/// What the sender is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Doubles every round trip until the rate grows no more.
    StartUp { best: u64, flat_rounds: u32 },
    /// Lets the queue drain that the start-up has made.
    Drain,
    /// Eight turns: probe for more, give back, and six of keeping.
    Cycle { turn: u8, since: Duration },
    /// Empties the path to see its round trip without a queue.
    Empty { until: Option<Duration> },
}

/// What the phases look at.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    pub(super) now: Duration,
    pub(super) in_flight: u64,
    /// Bandwidth times the minimal round trip.
    pub(super) bdp: u64,
    /// Length of a turn.
    pub(super) turn: Duration,
    /// The window of the phase [`Phase::Empty`].
    pub(super) empty_window: u64,
}

impl Phase {
    /// The first turn differs between senders that begin together: they must not probe together.
    pub(super) fn cycle(now: Duration) -> Phase {
        let spread = (now.as_nanos() as u64).wrapping_mul(tweed_rng::GOLDEN) >> 32;
        Phase::Cycle { turn: 2 + (spread % (TURNS as u64 - 2)) as u8, since: now }
    }

    /// Pace, as a multiple of the estimated bandwidth.
    pub(super) fn pace(self) -> f64 {
        match self {
            Phase::StartUp { .. } => START_UP,
            Phase::Drain => 1.0 / START_UP,
            Phase::Cycle { turn: 0, .. } => 1.25,
            Phase::Cycle { turn: 1, .. } => 0.75,
            Phase::Cycle { .. } | Phase::Empty { .. } => 1.0,
        }
    }

    /// Window, as a multiple of bandwidth times minimal round trip.
    pub(super) fn window(self) -> f64 {
        match self {
            Phase::StartUp { .. } | Phase::Drain => START_UP,
            Phase::Cycle { .. } => 2.0,
            Phase::Empty { .. } => 0.5,
        }
    }

    pub(super) fn starts_up(self) -> bool {
        matches!(self, Phase::StartUp { .. })
    }

    /// The start-up goes on, with this bandwidth measured in the round that has passed.
    pub(super) fn grows(&self, bandwidth: u64) -> bool {
        matches!(self, Phase::StartUp { best, .. } if bandwidth >= best + best / 4)
    }

    /// A round has passed that measured `bandwidth`: has it stopped growing?
    pub(super) fn end_round(&mut self, bandwidth: u64) {
        let grows = self.grows(bandwidth);
        let Phase::StartUp { best, flat_rounds } = self else { return };
        if grows {
            (*best, *flat_rounds) = (bandwidth, 0);
            return;
        }
        *flat_rounds += 1;
        if *flat_rounds >= 3 {
            *self = Phase::Drain;
        }
    }

    /// The path loses: too much was sent.
    pub(super) fn congested(&mut self, now: Duration) {
        match self {
            Phase::StartUp { .. } => *self = Phase::Drain,
            Phase::Cycle { turn: 0, .. } => *self = Phase::Cycle { turn: 1, since: now },
            _ => {}
        }
    }

    /// Goes on by time and by what is in flight.
    pub(super) fn go_on(&mut self, view: View) {
        let View { now, in_flight, bdp, turn: length, .. } = view;
        match *self {
            Phase::StartUp { .. } => {}
            Phase::Drain if in_flight <= bdp => *self = Phase::cycle(now),
            Phase::Drain => {}
            Phase::Empty { until: None } if in_flight <= view.empty_window => {
                *self = Phase::Empty { until: Some(now + EMPTY.max(length)) };
            }
            Phase::Empty { until: Some(until) } if until <= now => *self = Phase::cycle(now),
            Phase::Empty { .. } => {}
            Phase::Cycle { turn, since } => {
                let passed = now.saturating_sub(since) >= length;
                let done = match turn {
                    // A probe that never filled the path has shown nothing; but a sender with little to send must go on.
                    0 => passed && (in_flight >= bdp + bdp / 4 || now.saturating_sub(since) >= length * 2),
                    1 => passed || in_flight <= bdp,
                    _ => passed,
                };
                if done {
                    let turn = (turn + 1) % TURNS;
                    *self = Phase::Cycle { turn, since: now };
                }
            }
        }
    }
}

/// 2 / ln 2: the smallest gain that doubles the rate every round trip.
const START_UP: f64 = 2.89;

/// One to probe, one to give back, six to keep.
const TURNS: u8 = 8;

/// How long the path is kept nearly empty: long enough that several senders' times overlap.
const EMPTY: Duration = Duration::from_millis(100);
