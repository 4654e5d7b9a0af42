//! What became of the packets that were sent, and what time brings.

use std::time::Duration;

use super::Link;
use crate::ltp::frame::Ack;
use crate::ltp::outgoing::UNIT;
use crate::ltp::packet::BadPacket;
use crate::ltp::rate::AckedBatch;
use crate::ltp::seen::DELAY;
use crate::ltp::sent::{ControlFrame, Patience, Settled};

/// What the round trip is taken for before it is known.
const FIRST_RTT: Duration = Duration::from_millis(50);
/// Timers of hosts are not finer (RFC 9002, 6.1.2).
const GRANULARITY: Duration = Duration::from_millis(1);
/// Packets that leave when nothing was heard (RFC 9002, 6.2.4).
const PROBES: u32 = 2;
/// With each further silence in a row they are twice as many, so often: what is lost in bursts, of packets or of their
/// acknowledgements, takes as many to get through.
const DOUBLED: u32 = 2;
/// With this share of packets lost, and of acknowledgements too, both probes of a silence are unanswered in one of
/// a hundred cases.
const LOSSY: f64 = 0.05;
/// After so many times in a row that nothing was heard, the path was interrupted.
const OUTAGE: u32 = 2;
/// However long nothing is heard, the peer is asked so often: a path may come back.
const LONGEST_SILENCE: Duration = Duration::from_millis(250);

impl Link {
    /// When [`Link::handle_timeout`] and [`Link::poll_transmit`] have something to do if nothing else happens.
    pub fn next_timeout(&self) -> Option<Duration> {
        let window_open = self.log.in_flight < self.rate.window();
        let pacing = (self.outbox.ready() && window_open).then(|| self.rate.next_send());
        let silence = self.log.loss_time.or_else(|| self.silence_ends());
        let parity = self.parity.waits().then_some(Duration::ZERO);
        let tail = parity.or_else(|| self.tail.due()).filter(|_| window_open && !self.outbox.ready());
        let tail = tail.map(|due| due.max(self.rate.next_send()));
        [pacing, silence, tail, self.seen.due, self.inbox.next_timeout()].into_iter().flatten().min()
    }

    /// Does what is due by `now`.
    pub fn handle_timeout(&mut self, now: Duration) {
        self.inbox.handle_timeout(now, &mut self.events);
        match self.log.loss_time {
            Some(at) if at <= now => {
                let mut settled = std::mem::take(&mut self.settled);
                settled.clear();
                self.settle(now, None, false, &mut settled);
                self.settled = settled;
            }
            // What will be lost by time is sent again then, and that ends the silence as well as a ping.
            Some(_) => {}
            None if self.silence_ends().is_some_and(|at| at <= now) => self.ask(now),
            None => {}
        }
    }

    pub(super) fn acked(&mut self, now: Duration, ack: &Ack) -> Result<(), BadPacket> {
        let mut settled = std::mem::take(&mut self.settled);
        settled.clear();
        self.log.acked(&ack.ranges, &mut settled)?;
        // What the peer has waited before it acknowledged is not the path's.
        let delay = Duration::from_micros(ack.delay_us.into());
        let rtt = settled.largest_sent.map(|sent| now.saturating_sub(sent).saturating_sub(delay));
        // After an outage much is lost at once: that tells nothing about the rate.
        let outage = self.silences >= OUTAGE;
        if settled.anything {
            (self.silences, self.credit) = (0, 0);
        }
        self.settle(now, rtt, outage, &mut settled);
        self.settled = settled;
        Ok(())
    }

    /// Finds losses, and does what follows from them and from what was acknowledged.
    fn settle(&mut self, now: Duration, rtt: Option<Duration>, outage: bool, settled: &mut Settled) {
        for &note in &settled.control_frames {
            match note {
                ControlFrame::Close { message, part } => self.inbox.acknowledged(message, part),
                ControlFrame::Cancel(message) => self.outbox.cancelled(message),
                ControlFrame::Open(message) => self.outbox.announced(message),
                ControlFrame::Ping => {}
            }
        }
        for &load in &settled.again {
            self.outbox.arrived(load);
        }
        for &load in &settled.late {
            self.metrics.late_packets += 1;
            self.outbox.arrived(load);
        }
        self.log.find_lost(now, self.patience(rtt), settled);
        let lost = if outage { 0 } else { settled.lost.iter().map(|&(_, bytes)| u64::from(bytes)).sum() };
        let (bytes, newest, in_flight) = (settled.acked_bytes, settled.newest, self.log.in_flight);
        let lost_bursts = settled.lost_bursts;
        self.rate.acked(now, &AckedBatch { bytes, newest, rtt, lost, lost_bursts, in_flight });
        self.search.acked(self.size_for(settled.largest_bytes));
        self.requeue(now, settled);
    }

    /// Queues anew what was lost, and takes note of sizes that did not arrive.
    fn requeue(&mut self, now: Duration, settled: &Settled) {
        for &(load, bytes) in &settled.lost {
            self.metrics.lost_packets += 1;
            self.metrics.lost_bytes += u64::from(bytes);
            self.search.lost(now, self.size_for(bytes));
            self.outbox.requeue(load);
        }
        for &note in &settled.lost_control_frames {
            match note {
                ControlFrame::Ping => {}
                ControlFrame::Close { .. } => self.inbox.control_frames.push_back(note),
                ControlFrame::Open(_) | ControlFrame::Cancel(_) => self.control_frames.push_back(note),
            }
        }
        if let Some(arrived) = settled.probe {
            match self.probe.take().filter(|_| arrived) {
                Some(size) => self.search.acked(size),
                None => self.search.lost_probe(now),
            }
        }
    }

    /// Nothing was heard for too long: sends the newest packets under way again, or asks for a sign of life. Its
    /// acknowledgement will tell what became of the others.
    fn ask(&mut self, now: Duration) {
        self.silences += 1;
        let mut settled = std::mem::take(&mut self.settled);
        settled.clear();
        let probes = PROBES << (self.silences - 1).min(DOUBLED);
        self.log.give_up_newest(now, probes, &mut settled);
        self.requeue(now, &settled);
        self.settled = settled;
        self.credit = probes;
        // A small packet too: the path may have begun to drop large ones.
        let nothing =
            self.control_frames.is_empty() && self.inbox.control_frames.is_empty() && !self.outbox.ready();
        if nothing || self.silences >= OUTAGE && !self.control_frames.contains(&ControlFrame::Ping) {
            self.control_frames.push_back(ControlFrame::Ping);
        }
    }

    /// The packet size that a packet of so many bytes stands for: a full one is shorter by less than a unit.
    fn size_for(&self, bytes: u32) -> u32 {
        let size = self.search.size();
        match (size - UNIT + 1..size).contains(&bytes) {
            true => size,
            false => bytes,
        }
    }

    /// When something should have been heard: of a packet under way, or of a message that is not closed.
    fn silence_ends(&self) -> Option<Duration> {
        let waiting = self.log.waiting > 0 || !self.outbox.is_empty() && !self.outbox.ready();
        let rtt = self.rate.rtt_smoothed().unwrap_or(FIRST_RTT);
        // Each silence in a row doubles the patience: a path that is down is asked less and less often.
        let usual = rtt + (self.rate.rtt_var() * 4).max(GRANULARITY) + DELAY;
        // Where every fifth packet is lost, one silence says little.
        let chance = u32::from(self.rate.loss() >= LOSSY);
        let patience = usual * (1 << self.silences.saturating_sub(chance).min(10));
        waiting.then(|| self.log.last_sent + patience.min(LONGEST_SILENCE.max(usual)))
    }

    fn patience(&self, latest: Option<Duration>) -> Patience {
        let rtt = self.rate.rtt_smoothed().or(latest).unwrap_or(FIRST_RTT).max(latest.unwrap_or_default());
        Patience { loss: (rtt * 9 / 8).max(GRANULARITY), memory: rtt * 4 + GRANULARITY }
    }
}
