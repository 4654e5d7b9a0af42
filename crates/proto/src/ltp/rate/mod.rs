//! [`Rate`]: how fast to send, by the path's estimated bandwidth and round trip (in the manner of BBR).
//!
//! The sender keeps about as much under way as the path holds, and paces it at the rate at which the path delivers.
//! Random loss changes neither, single or in bursts; what it takes is made up for in the pace. Loss clearly above the
//! path's own bounds what may be in flight (in the manner of BBRv2), since a queue then overflows; if it stays
//! nevertheless, it was the path's own. Estimates outlive pauses: a message of some tens of milliseconds every
//! second starts at the right rate.
//! Sources: Cardwell et al. 2016 (BBR); draft-cardwell-iccrg-bbr-congestion-control (the bounds); own: what counts
//! as the path's own loss (`loss.rs`), and the measurement of a first flight (`bandwidth.rs`).

mod bandwidth;
mod ceiling;
mod loss;
mod pacing;
mod phases;
mod rtt;

use std::time::Duration;

pub use bandwidth::Mark;
use bandwidth::{MaxFilter, Sampler};
use ceiling::Ceiling;
use loss::{Verdict, Watch};
use pacing::Pacer;
use phases::{Phase, View};
use rtt::Rtt;

/// Packets acknowledged by one arriving packet, and what that showed to be lost.
#[derive(Clone, Copy, Debug, Default)]
pub struct AckedBatch {
    /// How many bytes were newly acknowledged.
    pub bytes: u64,
    /// Mark of the newest packet among them; `None` if only losses were found.
    pub newest: Option<Mark>,
    /// Round trip of the largest packet number, if newly acknowledged, less the peer's stated delay.
    pub rtt: Option<Duration>,
    /// Bytes newly found lost.
    pub lost: u64,
    /// How many bursts the lost packets make: those sent in a row are one.
    pub lost_bursts: u64,
    /// Bytes in flight after both.
    pub in_flight: u64,
}

/// The rate control of one direction of one link.
#[derive(Clone, Debug)]
pub struct Rate {
    phase: Phase,
    sampler: Sampler,
    bandwidth: MaxFilter,
    rtt: Rtt,
    pacer: Pacer,
    loss: Watch,
    round: Round,
    ceiling: Ceiling,
    /// A queue could be seen in the last round.
    queued: bool,
    /// Largest packet so far.
    packet: u64,
    limits: Limits,
}

/// What follows from all of it; asked for each packet, computed for each acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
struct Limits {
    /// Most bytes in flight.
    window: u64,
    /// Bytes per second at which packets leave.
    pace: u64,
    /// Length of a burst at that pace.
    burst: Duration,
    /// The share of packets that the path loses by itself.
    loss: f64,
}

/// One round trip, counted in packets: it ends when the first packet sent in it is acknowledged.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    ends_at: u64,
    /// Largest sample in it.
    best: u64,
    /// Most in flight in it, and in the one before: whose losses are found now.
    in_flight: u64,
    in_flight_before: u64,
    /// Sum and number of its samples of the round trip.
    rtt_sum: Duration,
    rtt_samples: u32,
}

impl Rate {
    /// Begins on an unknown path.
    #[allow(clippy::new_without_default, reason = "the beginning of a link is no empty value")]
    pub fn new() -> Rate {
        let mut rate = Rate {
            phase: Phase::StartUp { best: 0, flat_rounds: 0 },
            sampler: Sampler::default(),
            bandwidth: MaxFilter::default(),
            rtt: Rtt::default(),
            pacer: Pacer::default(),
            loss: Watch::new(),
            round: Round::default(),
            ceiling: Ceiling::default(),
            queued: false,
            packet: SMALLEST_PACKET,
            limits: Limits::default(),
        };
        rate.set_limits(Duration::ZERO);
        rate
    }

    /// May a packet leave, with so many bytes in flight?
    pub fn may_send(&self, now: Duration, in_flight: u64) -> bool {
        in_flight < self.limits.window && self.pacer.may_send(now, self.limits.burst)
    }

    /// When the pacing lets the next packet go.
    pub fn next_send(&self) -> Duration {
        self.pacer.next_send(self.limits.burst)
    }

    /// Most bytes in flight.
    pub fn window(&self) -> u64 {
        self.limits.window
    }

    /// A packet leaves. The mark is to be kept with it.
    #[inline]
    pub fn sent(&mut self, now: Duration, bytes: u32, in_flight_before: u64) -> Mark {
        if u64::from(bytes) > self.packet {
            self.packet = bytes.into();
            self.set_limits(now);
        }
        self.pacer.sent(now, time_for(bytes.into(), self.limits.pace), self.limits.burst);
        self.round.in_flight = self.round.in_flight.max(in_flight_before + u64::from(bytes));
        // With nothing under way no queue of ours can hide the round trip.
        if in_flight_before == 0 {
            self.rtt.refresh(now);
        }
        self.sampler.sent(nanos(now), in_flight_before == 0)
    }

    /// Packets were acknowledged or found lost.
    pub fn acked(&mut self, now: Duration, batch: &AckedBatch) {
        self.loss.add(batch.bytes, batch.lost, batch.lost_bursts);
        if let Some(rtt) = batch.rtt {
            self.rtt.add(now, rtt);
            self.round.rtt_sum += rtt;
            self.round.rtt_samples += 1;
        }
        if let Some(newest) = &batch.newest {
            let enough = (TRAIN_PACKETS * self.packet).max(self.bdp().unwrap_or(0) / TRAIN_SHARE);
            if let Some(sample) = self.sampler.acked(nanos(now), batch.bytes, newest, enough) {
                self.round.best = self.round.best.max(sample.rate);
                self.bandwidth.add(sample);
            }
            if newest.delivered >= self.round.ends_at {
                self.end_round(now);
            }
        }
        self.go_on(now, batch.in_flight);
        self.set_limits(now);
    }

    /// There is nothing to send, with so many bytes in flight: what follows measures the sender, not the path.
    pub fn idle(&mut self, in_flight: u64) {
        self.sampler.limit(in_flight);
    }

    /// Bytes per second that the path delivers; `None` before the first acknowledgement.
    pub fn bandwidth(&self) -> Option<u64> {
        self.bandwidth.max()
    }

    /// Smallest round trip of the last five to ten seconds in which there was any.
    pub fn rtt_min(&self) -> Option<Duration> {
        self.rtt.min()
    }

    /// Smoothed round trip (RFC 9002).
    pub fn rtt_smoothed(&self) -> Option<Duration> {
        self.rtt.smoothed
    }

    /// Variation of the round trip (RFC 9002).
    pub fn rtt_var(&self) -> Duration {
        self.rtt.variation
    }

    /// The share of packets that the path loses by itself, as measured of late.
    pub fn loss(&self) -> f64 {
        self.limits.loss
    }

    /// Mean number of packets that it loses in a row.
    pub fn loss_burst(&self) -> f64 {
        self.loss.burst(self.packet)
    }

    fn end_round(&mut self, now: Duration) {
        let Round { best, in_flight, in_flight_before, .. } = self.round;
        let queued = self.queued();
        // At the least window, and where it is nearly all that the path holds, nothing shows what less would do: many
        // share a queue of a few packets.
        let lasts = |at_least| self.rtt.min().is_some_and(|rtt| rtt >= at_least);
        let slowed = self.ceiling.window.is_none_or(|window| window > 2 * LEAST_WINDOW * self.packet)
            && lasts(SHORTEST_TRIAL);
        if queued && lasts(SHORTEST_SEEN) {
            self.loss.saw_queue();
        }
        self.queued = queued;
        self.round =
            Round { ends_at: self.sampler.delivered, in_flight_before: in_flight, ..Round::default() };
        match self.loss.end_round(self.packet, queued || !slowed || self.phase.starts_up(), slowed) {
            // A rate that still grows, with no queue, has not come to the path's end.
            Verdict::Overflow(_) if !queued && self.phase.grows(best) => {}
            Verdict::Overflow(excess) => {
                let in_flight = in_flight.max(in_flight_before);
                self.ceiling.overflowed(now, in_flight, excess, LEAST_WINDOW * self.packet);
                self.phase.congested(now);
            }
            Verdict::Innocent => self.ceiling.lift(),
            // Only a round that used the window shows that the path bears more.
            Verdict::Usual if in_flight >= self.limits.window => {
                let room = self.loss.deep() && !queued;
                self.ceiling.quiet_round(self.packet, self.model_window(), room);
            }
            Verdict::Usual => {}
        }
        if self.bandwidth.end_round() {
            self.phase.end_round(best);
        }
    }

    /// The round trips of this round were longer than those of the empty path: packets have waited in a queue.
    fn queued(&self) -> bool {
        let (Some(min), samples @ 1..) = (self.rtt.min(), self.round.rtt_samples) else { return false };
        self.round.rtt_sum / samples > min + min / 8 + QUEUE
    }

    fn go_on(&mut self, now: Duration, in_flight: u64) {
        let Some(bdp) = self.bdp() else { return };
        if self.rtt.stale(now) && matches!(self.phase, Phase::Cycle { .. }) {
            self.phase = Phase::Empty { until: None };
            self.rtt.refresh(now);
        }
        let turn = self.rtt_min().unwrap_or_default().max(SHORTEST_TURN);
        // As `window_for` has it: less than may be sent would never be reached.
        let empty_window = (bdp / 2 + SPARE_PACKETS * self.packet).max(LEAST_WINDOW * self.packet);
        self.phase.go_on(View { now, in_flight, bdp, turn, empty_window });
    }

    fn bdp(&self) -> Option<u64> {
        Some(bytes_in(self.rtt_min()?, self.bandwidth()?))
    }

    fn set_limits(&mut self, now: Duration) {
        let pace = self.pace();
        let shallow = self.ceiling.overflow.is_some_and(|at| now < at + SHALLOW_FOR);
        let (longest, least) = if shallow { (SHALLOW_BURST, 1) } else { (BURST, 2) };
        let within = self.rtt_min().map_or(longest, |rtt| (rtt / 4).clamp(SHORTEST_BURST, longest));
        let burst = bytes_in(within, pace).min(LARGEST_BURST).max(least * self.packet);
        // On a short path, acknowledgements that wait in the hosts need more under way than the path itself.
        let hosts = HOSTS.saturating_sub(self.rtt_min().unwrap_or(HOSTS));
        let spare = if shallow { burst } else { burst.max(bytes_in(hosts, pace)) };
        let (window, loss) = (self.window_for(spare), self.loss.measured());
        self.limits = Limits { window, pace, burst: time_for(burst, pace), loss };
    }

    /// `spare`: what may be under way beyond what the path holds.
    fn window_for(&self, spare: u64) -> u64 {
        let least = if self.phase.starts_up() { FIRST_FLIGHT } else { LEAST_WINDOW } * self.packet;
        let gained = self.model_window();
        match self.phase {
            _ if gained == 0 => FIRST_FLIGHT * self.packet,
            Phase::Empty { .. } => gained.max(least),
            _ => (gained + spare).min(self.ceiling.window.unwrap_or(u64::MAX)).max(least),
        }
    }

    /// What the estimates ask for, before loss has its say.
    fn model_window(&self) -> u64 {
        self.bdp().map_or(0, |bdp| (bdp as f64 * self.phase.window()) as u64 + SPARE_PACKETS * self.packet)
    }

    fn pace(&self) -> u64 {
        let Some(bandwidth) = self.bandwidth() else { return self.first_pace() };
        let pace = (bandwidth as f64 * self.phase.pace() / (1.0 - self.made_up_for())) as u64;
        if self.phase.starts_up() {
            return pace.max(self.first_pace());
        }
        let allowed = self.ceiling.window.zip(self.rtt_smoothed()).map(|(window, rtt)| rate(window, rtt));
        // What the least window allows anyway. After an outage the estimate may be a few bytes per second, and at that
        // pace nothing would ever correct it.
        let least = rate(LEAST_WINDOW * self.packet, self.rtt_smoothed().unwrap_or(FIRST_FLIGHT_WITHIN));
        allowed.map_or(pace, |allowed| pace.min(allowed + allowed / 8)).max(least)
    }

    /// The share of what is sent that is lost on the way and does not count against the path's rate. Where a queue has
    /// overflowed there is none, while it may be full: sending more would only lose more.
    fn made_up_for(&self) -> f64 {
        let full = self.ceiling.overflow.is_some() && (self.queued || !self.loss.deep());
        match full || self.phase.starts_up() {
            true => 0.0,
            false => self.loss.steady(),
        }
    }

    fn first_pace(&self) -> u64 {
        rate(FIRST_FLIGHT * self.packet, self.rtt_min().unwrap_or(FIRST_FLIGHT_WITHIN))
    }
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

fn rate(bytes: u64, time: Duration) -> u64 {
    (u128::from(bytes) * 1_000_000_000 / time.as_nanos().max(1)) as u64
}

fn bytes_in(time: Duration, rate: u64) -> u64 {
    (u128::from(rate) * time.as_nanos() / 1_000_000_000) as u64
}

fn time_for(bytes: u64, rate: u64) -> Duration {
    Duration::from_nanos((u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1))) as u64)
}

/// Packets that may leave before anything is known: fills 100 Mbit/s at 4 ms at once.
const FIRST_FLIGHT: u64 = 32;

/// The first flight is spread over so long, so as not to overrun a short queue more than it must.
const FIRST_FLIGHT_WITHIN: Duration = Duration::from_millis(1);

/// As BBR: with fewer packets in flight, a delayed acknowledgement stops the sender.
const LEAST_WINDOW: u64 = 4;

/// Packets that make a measurement of a first flight: the burst in which acknowledgements come is short against it.
const TRAIN_PACKETS: u64 = 16;

/// And it lasts for such a part of a round trip, as far as is known: the longer a path, the more it varies by. A shorter
/// one comes too fast by chance, and the next is then sent as fast.
const TRAIN_SHARE: u64 = 12;

/// Below this a turn has too few packets to say anything.
const SHORTEST_TURN: Duration = Duration::from_millis(1);

/// As long as a timer and a system call need to be cheap against it.
const BURST: Duration = Duration::from_millis(1);

/// How long an acknowledgement may wait in the hosts, for others and for a processor. A window of two round trips
/// covers that on long paths; on one of 60 µs it would stop the sender.
const HOSTS: Duration = Duration::from_millis(2);

/// Where a queue overflows, bursts must be short against it.
const SHALLOW_BURST: Duration = Duration::from_micros(250);

/// A timer cannot do much better.
const SHORTEST_BURST: Duration = Duration::from_micros(100);

/// All senders into a queue have this many alike: so those with less get more.
const SPARE_PACKETS: u64 = 4;

/// What hosts add to a round trip without any queue, on average: they gather packets and acknowledgements.
const QUEUE: Duration = Duration::from_micros(100);

/// On shorter paths, what is lost is sent again so soon that it costs little to take loss for an overflow.
const SHORTEST_TRIAL: Duration = Duration::from_micros(500);

/// On shorter paths a queue of a few packets is as long as the path itself: that it cannot be seen says nothing.
const SHORTEST_SEEN: Duration = Duration::from_millis(5);

/// How long an overflow is remembered.
const SHALLOW_FOR: Duration = Duration::from_secs(10);

/// A few segmented system calls.
const LARGEST_BURST: u64 = 256 * 1024;

/// Before any packet was sent.
const SMALLEST_PACKET: u64 = 1200;
