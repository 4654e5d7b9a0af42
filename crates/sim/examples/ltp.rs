//! Eight senders push to one over a short queue: the loss-tolerant transport beside a model of TCP reno.
//!
//! `cargo run --release -p tweed-sim --example ltp [Mbit/s] [bytes] [rounds]`. For each round trip, queue and random
//! loss: the median time in which all eight messages were closed, as a multiple of the bound (bytes over the rate,
//! and a round trip), p99 over p50, the share of the packets that the full queue dropped, and the share of the
//! bytes that was not delivered. Reno's column is a model without delayed acknowledgements and with perfect
//! detection of loss: the least that a real one takes.

use std::time::Duration;

use tweed_proto::ltp::{Closing, Outgoing, Settings};
use tweed_sim::ltp::{Conditions, Defect, Ending, World};

/// The number of senders.
const SENDERS: usize = 8;
/// Bytes of a packet on the wire, of which the message has all but some 80.
const WIRE: f64 = 1498.0;

struct Case {
    rate: u64,
    rtt: Duration,
    /// The packets that the queue holds.
    queue: u64,
    loss: f64,
    bytes: u32,
    rounds: u32,
}

struct Outcome {
    /// Seconds, ascending; without those in which the path was unknown.
    times: Vec<f64>,
    overflow: f64,
    missing: f64,
}

fn main() -> Result<(), Defect> {
    let number = |at: usize, default: u64| {
        std::env::args().nth(at).map_or(default, |word| word.parse().unwrap_or(default))
    };
    let (rate, bytes, rounds) =
        (number(1, 500) * 1_000_000, number(2, 1_000_000) as u32, number(3, 60) as u32);
    println!("{SENDERS} to 1, {} Mbit/s, {bytes} bytes each, {rounds} rounds", rate / 1_000_000);
    println!("  rtt ms  queue   loss |  lossy  p99/p50 queue% missing% |  whole  p99/p50 queue% |   reno");
    for rtt in [100, 1000, 40_000].map(Duration::from_micros) {
        for queue in [16, 32, 64, 256] {
            for loss in [0.0, 0.01, 0.03] {
                row(&Case { rate, rtt, queue, loss, bytes, rounds })?;
            }
        }
    }
    Ok(())
}

fn row(case: &Case) -> Result<(), Defect> {
    let bound = SENDERS as f64 * f64::from(case.bytes) * 8.0 / case.rate as f64 + case.rtt.as_secs_f64();
    let (lossy, whole) = (ltp(case, true)?, ltp(case, false)?);
    let show = |outcome: &Outcome| {
        let at = |share: f64| outcome.times[((outcome.times.len() - 1) as f64 * share).round() as usize];
        format!("{:>6.2} {:>8.2} {:>6.1}", at(0.5) / bound, at(0.99) / at(0.5), outcome.overflow * 100.0)
    };
    println!(
        "{:>8.1} {:>6} {:>6.3} | {} {:>8.2} | {} | {:>6.1}",
        case.rtt.as_secs_f64() * 1e3,
        case.queue,
        case.loss,
        show(&lossy),
        lossy.missing * 100.0,
        show(&whole),
        reno(case) / bound
    );
    Ok(())
}

/// Rounds in which all push at once and the next begins 5 ms after the last has been closed.
fn ltp(case: &Case, lossy: bool) -> Result<Outcome, Defect> {
    let mut world = World::new(1);
    let delay = case.rtt / 2;
    let port = Conditions {
        rate: Some(case.rate),
        queue: case.queue * WIRE as u64,
        loss: case.loss,
        delay,
        ..Conditions::default()
    };
    let (port, back) = (world.channel(port), world.channel(Conditions { delay, ..Conditions::default() }));
    for seed in 0..SENDERS as u64 {
        let closing = Closing { deadline: Some(Duration::from_secs(60)), ..Closing::default() };
        let settings =
            Settings { payload: 1452, payload_ceiling: 1452, closing, seed, ..Settings::default() };
        world.connect([port, back], settings);
    }
    let (mut times, mut missing, mut before) = (Vec::new(), 0, (0, 0));
    let learning = case.rounds / 4;
    for round in 0..case.rounds {
        if round == learning {
            before = world.overflow(port);
        }
        if round % 10 == 9 {
            world.end_epoch();
        }
        let (time, lacks) = push(&mut world, case, round, lossy)?;
        if round >= learning {
            times.push(time.as_secs_f64());
            missing += lacks;
        }
    }
    times.sort_by(f64::total_cmp);
    let (offered, dropped) = world.overflow(port);
    let bytes = f64::from(case.bytes) * SENDERS as f64 * times.len() as f64;
    Ok(Outcome {
        times,
        overflow: (dropped - before.1) as f64 / (offered - before.0) as f64,
        missing: missing as f64 / bytes,
    })
}

/// One round: until the receiver has closed all, and the bytes that it lacks.
fn push(world: &mut World, case: &Case, round: u32, lossy: bool) -> Result<(Duration, u64), Defect> {
    let begin = world.now();
    let mut tickets = Vec::new();
    for sender in 0..SENDERS {
        let (bytes, critical, urgency) = (case.bytes, Vec::new(), 0);
        let what = Outgoing { round, tag: [0; 48], bytes, value: 4, critical, lossy, urgency };
        tickets.push(world.send(sender, 0, what)?);
    }
    let mut closed = None;
    while tickets.iter().any(|&ticket| world.messages()[ticket].ended.is_none()) {
        world.step(begin + Duration::from_secs(120))?;
        if closed.is_none() && tickets.iter().all(|&ticket| world.messages()[ticket].received.is_some()) {
            closed = Some(world.now() - begin);
        }
    }
    world.run(world.now() + Duration::from_millis(5))?;
    let lacks = |&ticket: &usize| match &world.messages()[ticket].ended {
        Some((_, Ending::Delivered(missing))) => {
            missing.iter().map(|range| u64::from(range.end - range.start)).sum()
        }
        _ => 0,
    };
    Ok((closed.unwrap_or_default(), tickets.iter().map(lacks).sum::<u64>()))
}

/// Seconds for one round by the law of reno's rate, 1.22 packets per round trip and square root of the loss
/// (Mathis et al. 1997), and at most the link's. Loss by the full queue is not in it: real ones take longer.
fn reno(case: &Case) -> f64 {
    let share = case.rate as f64 / SENDERS as f64;
    let rtt = case.rtt.as_secs_f64();
    let law = if case.loss > 0.0 { 1.22 * WIRE * 8.0 / rtt / case.loss.sqrt() } else { f64::INFINITY };
    f64::from(case.bytes) * 8.0 / law.min(share) + rtt
}
