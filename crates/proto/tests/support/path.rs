//! Several senders into one bottleneck: a queue, a rate, a delay and random loss, in virtual time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use tweed_proto::ltp::rate::{AckedBatch, Mark, Rate};

use tweed_rng::Rng;

pub const PACKET: u32 = 1452;

/// What the packets go through.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Bits per second of the bottleneck.
    pub bits: u64,
    /// Round trip without queue; the whole of it lies behind the bottleneck.
    pub rtt: Duration,
    /// Share of the packets that are lost before the queue, at random.
    pub loss: f64,
    /// Mean number of packets lost in a row.
    pub burst: f64,
    /// Packets that the queue holds.
    pub queue: u64,
}

/// What decides when a sender sends.
pub trait Control: std::fmt::Debug {
    fn may_send(&self, now: Duration, in_flight: u64) -> bool;
    fn next_send(&self) -> Duration;
    fn sent(&mut self, now: Duration, in_flight: u64) -> Option<Mark>;
    fn acked(&mut self, now: Duration, batch: &AckedBatch);
    fn idle(&mut self, in_flight: u64);
}

impl Control for Rate {
    fn may_send(&self, now: Duration, in_flight: u64) -> bool {
        Rate::may_send(self, now, in_flight)
    }

    fn next_send(&self) -> Duration {
        Rate::next_send(self)
    }

    fn sent(&mut self, now: Duration, in_flight: u64) -> Option<Mark> {
        Some(Rate::sent(self, now, PACKET, in_flight))
    }

    fn acked(&mut self, now: Duration, batch: &AckedBatch) {
        Rate::acked(self, now, batch);
    }

    fn idle(&mut self, in_flight: u64) {
        Rate::idle(self, in_flight);
    }
}

/// Window control by loss: TCP cubic (RFC 9438) with its curve. Loss within one round counts once.
#[derive(Debug)]
pub struct Window {
    window: f64,
    threshold: f64,
    most: f64,
    cut_at: Duration,
    rtt: Duration,
}

impl Window {
    pub fn cubic() -> Window {
        let [cut_at, rtt] = [Duration::ZERO; 2];
        Window { window: 10.0, threshold: f64::MAX, most: 0.0, cut_at, rtt }
    }

    fn grow(&mut self, now: Duration, packets: f64) {
        if self.window < self.threshold {
            self.window += packets;
        } else {
            let k = (self.most * 0.3 / 0.4).cbrt();
            let t = (now.saturating_sub(self.cut_at)).as_secs_f64();
            let curve = 0.4 * (t - k).powi(3) + self.most;
            let reno = self.most * 0.7 + 0.53 * t / self.rtt.as_secs_f64().max(1e-6);
            let target = curve.max(reno).clamp(self.window, self.window * 1.5);
            self.window += (target - self.window) / self.window * packets;
        }
    }
}

impl Control for Window {
    fn may_send(&self, _: Duration, in_flight: u64) -> bool {
        in_flight < (self.window.max(2.0) as u64) * u64::from(PACKET)
    }

    fn next_send(&self) -> Duration {
        Duration::MAX
    }

    fn sent(&mut self, _: Duration, _: u64) -> Option<Mark> {
        None
    }

    fn acked(&mut self, now: Duration, batch: &AckedBatch) {
        self.rtt = batch.rtt.unwrap_or(self.rtt);
        if batch.lost > 0 && now >= self.cut_at + self.rtt {
            self.most = self.window;
            self.window *= 0.7;
            self.threshold = self.window;
            self.cut_at = now;
        } else if batch.lost == 0 {
            self.grow(now, batch.bytes as f64 / f64::from(PACKET));
        }
    }

    fn idle(&mut self, _: u64) {}
}

/// One sender and its receiver.
pub struct Flow {
    pub control: Box<dyn Control>,
    /// Packets still to be sent; lost ones come back here.
    pub backlog: u64,
    pub sent: u64,
    pub delivered: u64,
    /// Lost to the full queue.
    pub overflowed: u64,
    under_way: BTreeMap<u64, (Duration, Option<Mark>)>,
    next: u64,
    largest_acked: u64,
    last_lost: u64,
    arrived: Vec<u64>,
    wake_at: Option<Duration>,
    last_ack: Duration,
    /// The last one that was seen.
    pub rtt: Duration,
}

impl Flow {
    pub fn new(control: Box<dyn Control>) -> Flow {
        Flow {
            control,
            backlog: 0,
            sent: 0,
            delivered: 0,
            overflowed: 0,
            under_way: BTreeMap::new(),
            next: 1,
            largest_acked: 0,
            last_lost: 0,
            arrived: Vec::new(),
            wake_at: None,
            last_ack: Duration::ZERO,
            rtt: Duration::from_millis(300),
        }
    }

    fn in_flight(&self) -> u64 {
        self.under_way.len() as u64 * u64::from(PACKET)
    }

    pub fn done(&self) -> bool {
        self.backlog == 0 && self.under_way.is_empty()
    }

    /// Takes the acknowledged packets out, and those that later ones have overtaken.
    fn settle(&mut self, now: Duration, acked: &[u64]) {
        let mut batch = AckedBatch::default();
        for number in acked {
            let Some((at, mark)) = self.under_way.remove(number) else { continue };
            batch.bytes += u64::from(PACKET);
            batch.newest = mark;
            batch.rtt = Some(now - at);
            self.rtt = now - at;
            self.largest_acked = self.largest_acked.max(*number);
            self.delivered += 1;
        }
        self.last_ack = now;
        let lost: Vec<u64> =
            self.under_way.range(..self.largest_acked.saturating_sub(2)).map(|(&n, _)| n).collect();
        self.lose(now, &lost, batch);
    }

    fn lose(&mut self, now: Duration, lost: &[u64], mut batch: AckedBatch) {
        for number in lost {
            batch.lost_bursts += u64::from(self.last_lost + 1 != *number);
            self.last_lost = *number;
            self.under_way.remove(number);
            batch.lost += u64::from(PACKET);
            self.backlog += 1;
        }
        batch.in_flight = self.in_flight();
        self.control.acked(now, &batch);
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival { flow: usize, number: u64 },
    FlushAcks { flow: usize },
    Acks { flow: usize, numbers: Vec<u64> },
    Wake { flow: usize },
}

/// The world: time, path, flows.
pub struct World {
    pub now: Duration,
    pub path: Path,
    pub flows: Vec<Flow>,
    /// Whether everything is dropped.
    pub cut: bool,
    losing: bool,
    free_at: Duration,
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    order: u64,
    rng: Rng,
}

impl World {
    pub fn new(path: Path, seed: u64, flows: Vec<Flow>) -> World {
        World {
            now: Duration::ZERO,
            path,
            flows,
            cut: false,
            losing: false,
            free_at: Duration::ZERO,
            events: BinaryHeap::new(),
            order: 0,
            rng: Rng::new(seed),
        }
    }

    /// Gives a flow more to send.
    pub fn offer(&mut self, flow: usize, packets: u64) {
        self.flows[flow].backlog += packets;
        self.transmit(flow);
    }

    /// Lets time pass until `until`.
    pub fn run(&mut self, until: Duration) {
        while self.step(until) {}
        self.now = until;
    }

    /// The next event, if it is before `until`.
    pub fn step(&mut self, until: Duration) -> bool {
        if self.events.peek().is_none_or(|Reverse((at, ..))| *at > until) {
            return false;
        }
        let Some(Reverse((at, _, event))) = self.events.pop() else { return false };
        self.now = at;
        match event {
            Event::Arrival { flow, number } => self.arrival(flow, number),
            Event::FlushAcks { flow } => self.flush(flow),
            Event::Acks { flow, numbers } => {
                self.flows[flow].settle(at, &numbers);
                self.transmit(flow);
            }
            Event::Wake { flow } => self.wake(flow),
        }
        true
    }

    fn schedule(&mut self, at: Duration, event: Event) {
        self.order += 1;
        self.events.push(Reverse((at, self.order, event)));
    }

    fn wake(&mut self, flow: usize) {
        let now = self.now;
        let sender = &mut self.flows[flow];
        if sender.wake_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        let patience = sender.rtt * 3 + Duration::from_millis(2);
        if !sender.under_way.is_empty() && now >= sender.last_ack + patience {
            let all: Vec<u64> = sender.under_way.keys().copied().collect();
            sender.last_ack = now;
            sender.lose(now, &all, AckedBatch::default());
        }
        self.transmit(flow);
    }

    fn transmit(&mut self, flow: usize) {
        let now = self.now;
        loop {
            let sender = &mut self.flows[flow];
            let in_flight = sender.in_flight();
            if sender.backlog == 0 {
                sender.control.idle(in_flight);
                break;
            }
            if !sender.control.may_send(now, in_flight) {
                break;
            }
            if in_flight == 0 {
                sender.last_ack = now;
            }
            let number = sender.next;
            let mark = sender.control.sent(now, in_flight);
            sender.under_way.insert(number, (now, mark));
            (sender.next, sender.sent, sender.backlog) = (number + 1, sender.sent + 1, sender.backlog - 1);
            self.enter(flow, number);
        }
        self.set_wake(flow);
    }

    fn set_wake(&mut self, flow: usize) {
        let sender = &self.flows[flow];
        let mut at = Duration::MAX;
        if !sender.under_way.is_empty() {
            at = sender.last_ack + sender.rtt * 3 + Duration::from_millis(2);
        }
        if sender.backlog > 0 && sender.control.next_send() > self.now {
            at = at.min(sender.control.next_send());
        }
        if at < Duration::MAX && sender.wake_at.is_none_or(|old| at < old) {
            self.flows[flow].wake_at = Some(at);
            self.schedule(at, Event::Wake { flow });
        }
    }

    fn enter(&mut self, flow: usize, number: u64) {
        let Path { bits, rtt, queue, .. } = self.path;
        if self.cut || self.loses() {
            return;
        }
        let each = Duration::from_nanos(u64::from(PACKET + 48) * 8 * 1_000_000_000 / bits);
        let waiting = self.free_at.saturating_sub(self.now).as_nanos() / each.as_nanos().max(1);
        if waiting > u128::from(queue) {
            self.flows[flow].overflowed += 1;
            return;
        }
        self.free_at = self.free_at.max(self.now) + each;
        self.schedule(self.free_at + rtt / 2, Event::Arrival { flow, number });
    }

    /// Two states, one of which loses everything (Gilbert 1960).
    fn loses(&mut self) -> bool {
        let Path { loss, burst, .. } = self.path;
        let leave = 1.0 / burst;
        self.losing = self.rng.bernoulli(match self.losing {
            _ if burst <= 1.0 => loss,
            true => 1.0 - leave,
            false => loss * leave / (1.0 - loss),
        });
        self.losing
    }

    /// Acknowledgements go out for every four packets, or after a quarter of a millisecond.
    fn arrival(&mut self, flow: usize, number: u64) {
        let arrived = &mut self.flows[flow].arrived;
        arrived.push(number);
        match arrived.len() {
            1 => self.schedule(self.now + Duration::from_micros(250), Event::FlushAcks { flow }),
            4.. => self.flush(flow),
            _ => {}
        }
    }

    fn flush(&mut self, flow: usize) {
        let numbers = std::mem::take(&mut self.flows[flow].arrived);
        if !numbers.is_empty() && !self.cut {
            self.schedule(self.now + self.path.rtt / 2, Event::Acks { flow, numbers });
        }
    }
}
