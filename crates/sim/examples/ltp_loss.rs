//! One sender, one receiver and bad networks: how long a message takes, against the lower bound.
//!
//! `cargo run --release -p tweed-sim --example ltp_loss [bytes] [messages] [RTT in µs ...]`. A row is a rate, a round
//! trip and what becomes of packets, acknowledgements too. Columns are messages that may lose parts and messages that
//! go whole: the first one over an unknown path, then the median and the 99th percentile of those that follow, each
//! from when it is given to the link until its sender knows that it is closed. All are multiples of the bound: the
//! message on the wire, over the rate and the share that arrives, and one round trip. A message goes in pieces of 64
//! KiB, as the engine cuts it.

use std::time::Duration;

use tweed_proto::ltp::{Closing, Outgoing, Settings};
use tweed_sim::ltp::{Conditions, Defect, Ending, World};

/// Bytes on the wire over bytes of values.
const WIRE: f64 = 1498.0 / 1420.0;
/// What the queue holds, as on the testbed.
const QUEUE: Duration = Duration::from_millis(50);
const PIECE: u32 = 64 << 10;
/// The pause between two messages.
const PAUSE: Duration = Duration::from_millis(20);

/// Name, share lost, mean length of a burst of losses, share overtaken.
const WEATHER: [(&str, f64, f64, f64); 9] = [
    ("0 %", 0.0, 1.0, 0.0),
    ("0.1 %", 0.001, 1.0, 0.0),
    ("1 %", 0.01, 1.0, 0.0),
    ("3 %", 0.03, 1.0, 0.0),
    ("10 %", 0.1, 1.0, 0.0),
    ("20 %", 0.2, 1.0, 0.0),
    ("3 % by 5", 0.03, 5.0, 0.0),
    ("3 % by 20", 0.03, 20.0, 0.0),
    ("10 % late", 0.0, 1.0, 0.1),
];

struct Outcome {
    /// Multiples of the bound.
    first: f64,
    median: f64,
    p99: f64,
    /// Share of the bytes.
    missing: f64,
    /// Packets sent over those that the messages need.
    sent: f64,
}

fn main() -> Result<(), Defect> {
    let words: Vec<u64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let (bytes, messages) =
        (*words.first().unwrap_or(&4_000_000) as u32, *words.get(1).unwrap_or(&100) as u32);
    let trips: &[u64] = if words.len() > 2 { &words[2..] } else { &[100, 1000, 40_000, 150_000] };
    println!("{bytes} bytes, {messages} messages");
    println!(
        " Mbit/s  rtt ms       loss | lossy 1st   median  p99   sent missing% | whole 1st   median  p99   sent"
    );
    for mbit in [100, 500] {
        for &rtt in trips {
            for (name, loss, burst, reorder) in WEATHER {
                let rtt = Duration::from_micros(rtt);
                let conditions = Conditions {
                    rate: Some(mbit * 1_000_000),
                    queue: (QUEUE.as_secs_f64() * mbit as f64 * 1e6 / 8.0) as u64,
                    delay: rtt / 2,
                    loss,
                    burst,
                    reorder,
                    ..Conditions::default()
                };
                let (lossy, whole) =
                    (run(conditions, bytes, messages, true)?, run(conditions, bytes, messages, false)?);
                let Outcome { first, median, p99, missing, sent } = lossy;
                print!("{mbit:>7} {:>7.1} {name:>10} | ", rtt.as_secs_f64() * 1e3);
                print!("{first:>9.2} {median:>8.2} {p99:>5.2} {sent:>6.3} {:>8.2} | ", missing * 100.0);
                let Outcome { first, median, p99, sent, .. } = whole;
                println!("{first:>9.2} {median:>8.2} {p99:>5.2} {sent:>6.3}");
            }
        }
    }
    Ok(())
}

/// Messages one after the other.
fn run(conditions: Conditions, bytes: u32, messages: u32, lossy: bool) -> Result<Outcome, Defect> {
    let mut world = World::new(7);
    let channels = [conditions; 2].map(|one| world.channel(one));
    let closing = Closing { deadline: Some(Duration::from_secs(60)), ..Closing::default() };
    world
        .connect(channels, Settings { payload: 1452, payload_ceiling: 1452, closing, ..Settings::default() });
    let rate = conditions.rate.unwrap_or(u64::MAX) as f64 * (1.0 - conditions.loss);
    let bound = f64::from(bytes) * 8.0 * WIRE / rate + conditions.delay.as_secs_f64() * 2.0;
    let (mut times, mut missing) = (Vec::new(), 0);
    for round in 0..messages {
        if round % 10 == 9 {
            world.end_epoch();
        }
        let begin = world.now();
        let pieces = (0..bytes).step_by(PIECE as usize).map(|from| PIECE.min(bytes - from));
        let piece = |bytes| Outgoing {
            round,
            tag: [0; 48],
            bytes,
            value: 4,
            critical: Vec::new(),
            lossy,
            urgency: 0,
        };
        let tickets = pieces.map(|bytes| world.send(0, 0, piece(bytes))).collect::<Result<Vec<_>, _>>()?;
        while tickets.iter().any(|&ticket| world.messages()[ticket].ended.is_none()) {
            world.step(begin + Duration::from_secs(120))?;
        }
        times.push((world.now() - begin).as_secs_f64() / bound);
        for ticket in tickets {
            if let Some((_, Ending::Delivered(lacks))) = &world.messages()[ticket].ended {
                missing += lacks.iter().map(|range| u64::from(range.end - range.start)).sum::<u64>();
            }
        }
        world.run(world.now() + PAUSE)?;
    }
    let first = times.remove(0);
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
    let all = f64::from(bytes) * f64::from(messages);
    let sent = world.metrics(0, 0).map_or(0, |metrics| metrics.sent_bytes) as f64;
    let sent = sent / (all * WIRE);
    Ok(Outcome { first, median: at(0.5), p99: at(0.99), missing: missing as f64 / all, sent })
}
