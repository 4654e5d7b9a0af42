//! How many packets of 1452 bytes two links handle in a second, sender and receiver together on one core.
//!
//! `cargo run --release -p tweed-proto --example ltp_speed [LOST] [MBIT] [MICROS] [MB]`
//!
//! The network loses LOST of 1000 packets (default 0), carries MBIT Mbit/s (25,000) with a round trip of MICROS us (100),
//! and its queue never overflows. 20 messages of MB megabytes (100) cross it. Its time is virtual, so that only what the
//! links compute is measured; the values themselves are not copied.
#![allow(clippy::disallowed_methods, reason = "a measurement needs the clock")]

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tweed_proto::ltp::replay::Window;
use tweed_proto::ltp::{Event, Header, Link, Outgoing, Settings, Transmit};

const MESSAGES: u32 = 20;
const PACKET: u32 = 1452;

#[derive(Clone, Copy)]
struct Network {
    /// How many packets of 1000 are lost.
    lost: u64,
    bits_per_us: u64,
    delay: Duration,
}

struct Packet {
    at: Duration,
    header: [u8; 16],
    head: [u8; 16],
    len: usize,
    body: Option<Vec<u8>>,
}

struct End {
    link: Link,
    window: Window,
    arriving: VecDeque<Packet>,
    /// When the network has carried what is under way to here.
    busy: Duration,
}

fn main() {
    let argument =
        |at, usual| std::env::args().nth(at).map_or(usual, |text| text.parse().expect("a whole number"));
    let delay = Duration::from_micros(argument(3, 100) / 2);
    let network = Network { lost: argument(1, 0), bits_per_us: argument(2, 25_000), delay };
    let bytes = argument(4, 100) as u32 * 1_000_000;
    let settings = Settings { payload: PACKET, payload_ceiling: PACKET, ..Settings::default() };
    let end = || End {
        link: Link::new(settings.clone()),
        window: Window::default(),
        arriving: VecDeque::new(),
        busy: Duration::ZERO,
    };
    let mut ends = [end(), end()];
    for round in 0..MESSAGES {
        let what =
            Outgoing { round, tag: [0; 48], bytes, value: 4, critical: Vec::new(), lossy: false, urgency: 0 };
        ends[0].link.send(what);
    }
    let began = Instant::now();
    let (mut now, mut delivered) = (Duration::ZERO, 0);
    // Stands for the values, which nobody looks at.
    let mut body = vec![0; PACKET as usize];
    while delivered < MESSAGES {
        for at in 0..2 {
            leave(&mut ends, at, now, network);
        }
        let arrivals = ends.iter().filter_map(|end| Some(end.arriving.front()?.at));
        let timeouts = ends.iter().filter_map(|end| end.link.next_timeout());
        now = arrivals.chain(timeouts).min().expect("something is under way").max(now);
        for end in &mut ends {
            delivered += arrive(end, now, &mut body);
            end.link.handle_timeout(now);
        }
    }
    report(&ends, began.elapsed(), now);
}

fn leave(ends: &mut [End; 2], from: usize, now: Duration, network: Network) {
    while let Some(transmit) = ends[from].link.poll_transmit(now) {
        let header = transmit.header(1);
        let head = transmit.body_head().unwrap_or_default();
        let (len, body) = match transmit {
            // By chance.
            Transmit::Data { number, .. }
                if (number.wrapping_mul(tweed_rng::GOLDEN) >> 32) % 1000 < network.lost =>
            {
                continue
            }
            Transmit::Data { len, .. } => (16 + len as usize, None),
            Transmit::Control { body, .. } => (body.len(), Some(body)),
            // Nothing is in the messages here; parity of nothing is nothing.
            Transmit::Repair { head, .. } => (16 + usize::from(head.code.shard), None),
        };
        let to = &mut ends[1 - from];
        to.busy = to.busy.max(now) + Duration::from_nanos(len as u64 * 8000 / network.bits_per_us);
        to.arriving.push_back(Packet { at: to.busy + network.delay, header, head, len, body });
    }
}

fn arrive(end: &mut End, now: Duration, body: &mut [u8]) -> u32 {
    while end.arriving.front().is_some_and(|packet| packet.at <= now) {
        let packet = end.arriving.pop_front().expect("there is one");
        let header = Header::decode(&packet.header).expect("it was encoded");
        assert!(end.window.admit(header.number));
        body[..16].copy_from_slice(&packet.head);
        let body = packet.body.as_deref().unwrap_or(&body[..packet.len]);
        end.link.handle(now, &header, body).expect("it is the other link's");
    }
    let events = std::iter::from_fn(|| end.link.poll_event());
    events.filter(|event| matches!(event, Event::Delivered { .. })).count() as u32
}

fn report(ends: &[End; 2], took: Duration, virtual_time: Duration) {
    let [forth, back] = [ends[0].link.metrics(), ends[1].link.metrics()];
    let packets = forth.sent_packets + back.sent_packets;
    let (there, here, lost) = (forth.sent_packets, back.sent_packets, forth.lost_packets);
    println!("packets: {there} to the receiver, {here} back, {lost} lost");
    let (rate, each) = (packets as f64 / took.as_secs_f64() / 1e6, took.as_nanos() as f64 / packets as f64);
    println!("{rate:.2} million packets/s, {each:.0} ns per packet");
    let rate = forth.sent_bytes as f64 * 8.0 / virtual_time.as_secs_f64() / 1e9;
    println!("virtual time {virtual_time:?}, in it {rate:.1} Gbit/s");
}
