//! The loss-tolerant transport over networks that lose, reorder, double and delay packets, are cut, and whose ends
//! crash and come back. A failure names its seed.

use std::time::Duration;

use tweed_proto::ltp::{Closing, Outgoing, Settings};
use tweed_rng::Rng;
use tweed_sim::ltp::{Conditions, Ending, World};

/// The tests' own choices.
struct Draw(Rng);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    fn share(&mut self, most: f64) -> f64 {
        self.below(1001) as f64 / 1000.0 * most
    }

    /// A message of up to `most` bytes, in three of four cases lossy, with up to two critical ranges.
    fn message(&mut self, round: u32, most: u64) -> Outgoing {
        let value = [1, 2, 4, 8][self.below(4) as usize];
        let bytes = (self.below(most) / value * value) as u32;
        let critical = (0..self.below(3)).map(|_| {
            let start = self.below(u64::from(bytes) + 1) as u32;
            start..(start + self.below(200) as u32).min(bytes)
        });
        let critical = critical.collect();
        let (value, lossy, urgency) = (value as u8, self.below(4) > 0, (bytes % 3) as i32);
        Outgoing { round, tag: [0; 48], bytes, value, critical, lossy, urgency }
    }
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn settings(seed: u64) -> Settings {
    let closing = Closing { deadline: Some(ms(2000)), ..Closing::default() };
    Settings { closing, seed, payload_ceiling: 1452, ..Settings::default() }
}

#[test]
fn a_hundred_thousand_messages_at_five_percent_loss() {
    let mut draw = Draw(Rng::new(5));
    let mut world = World::new(5);
    let harsh = Conditions {
        rate: Some(1_000_000_000),
        queue: 256 * 1024,
        loss: 0.05,
        reorder: 0.05,
        duplicate: 0.02,
        jitter: Duration::from_micros(500),
        ..Conditions::default()
    };
    let channels = [world.channel(harsh), world.channel(harsh)];
    world.connect(channels, settings(5));
    let (mut open, mut oldest) = (0, 0);
    for round in 0..100_000 {
        world.send(0, (round % 2) as usize, draw.message(round, 4000)).unwrap();
        open += 1;
        while open >= 128 {
            assert!(world.step(Duration::MAX).unwrap(), "nothing happens any more");
            let ended =
                world.messages()[oldest..].iter().take_while(|message| message.ended.is_some()).count();
            (open, oldest) = (open - ended, oldest + ended);
        }
        if round % 10_000 == 0 {
            world.end_epoch();
        }
    }
    world.run(world.now() + ms(10_000)).unwrap();
    let mut lost = 0;
    for (ticket, message) in world.messages().iter().enumerate() {
        let (at, ending) = message.ended.as_ref().unwrap_or_else(|| panic!("message {ticket} never ends"));
        let took = *at - message.given_at;
        assert!(took < ms(3000), "message {ticket} took {took:?}");
        let Ending::Delivered(missing) = ending else { panic!("message {ticket} lost its link") };
        lost += missing.iter().map(|range| u64::from(range.end - range.start)).sum::<u64>();
    }
    let bytes: u64 = world.messages().iter().map(|message| u64::from(message.what.bytes)).sum();
    assert!((lost as f64) < 0.02 * bytes as f64, "{lost} of {bytes} bytes are missing");
    assert!(lost > 0, "Early Close was never used");
}

/// What may go wrong in the middle.
fn fault(world: &mut World, draw: &mut Draw, channels: [usize; 2], back: &mut Option<Duration>) {
    match draw.below(6) {
        0 => world.crash(0, draw.below(2) as usize),
        1 => world.restart(0),
        2 => {
            channels.iter().for_each(|&channel| world.cut(channel, true));
            *back = Some(world.now() + ms(draw.below(1500)));
        }
        3 => {
            world.cut(channels[draw.below(2) as usize], true);
            *back = Some(world.now() + ms(draw.below(500)));
        }
        4 => world.set_conditions(channels[draw.below(2) as usize], conditions(draw)),
        _ => world.end_epoch(),
    }
}

fn conditions(draw: &mut Draw) -> Conditions {
    Conditions {
        rate: [None, Some(1_000_000_000), Some(20_000_000)][draw.below(3) as usize],
        queue: 20_000 + draw.below(200_000),
        delay: Duration::from_micros(50 + draw.below(20_000)),
        jitter: Duration::from_micros(draw.below(2000)),
        loss: draw.share(0.2),
        burst: 1.0 + draw.share(4.0),
        reorder: draw.share(0.1),
        duplicate: draw.share(0.05),
    }
}

/// Messages both ways while things go wrong; then the path is whole again, both ends begin anew if one is down, and
/// every message must end.
fn scenario(seed: u64) {
    let mut draw = Draw(Rng::new(seed));
    let mut world = World::new(seed);
    let channels = [conditions(&mut draw), conditions(&mut draw)].map(|one| world.channel(one));
    world.connect(channels, settings(seed));
    let mut back = None;
    for round in 0..4 + draw.below(6) as u32 {
        let message = draw.message(round, 20_000);
        world.send(0, draw.below(2) as usize, message).unwrap();
        world.run(world.now() + Duration::from_micros(draw.below(20_000))).unwrap();
        if back.take_if(|at| *at <= world.now()).is_some() {
            channels.iter().for_each(|&channel| world.cut(channel, false));
        }
        if draw.below(3) == 0 {
            fault(&mut world, &mut draw, channels, &mut back);
        }
    }
    world.run(world.now() + ms(draw.below(1000))).unwrap();
    channels.iter().for_each(|&channel| world.cut(channel, false));
    if (0..2).any(|end| world.metrics(0, end).is_none()) {
        world.restart(0);
    }
    let last = draw.message(99, 20_000);
    world.send(0, draw.below(2) as usize, last).unwrap();
    let end = world.now() + ms(20_000);
    while world.messages().iter().any(|message| message.ended.is_none()) {
        assert!(world.step(end).unwrap(), "seed {seed}: a message never ends");
    }
    let last = world.messages().last().and_then(|message| message.ended.as_ref());
    assert!(
        matches!(last, Some((_, Ending::Delivered(_)))),
        "seed {seed}: the last message was not delivered"
    );
}

#[test]
fn ten_thousand_seeds_of_crashes_cuts_and_restarts() {
    (0..10_000).for_each(|seed| {
        let outcome = std::panic::catch_unwind(|| scenario(seed));
        assert!(outcome.is_ok(), "seed {seed} failed");
    });
}

#[test]
fn the_same_seed_is_the_same_run() {
    let run = || {
        let mut draw = Draw(Rng::new(9));
        let mut world = World::new(9);
        let channels = [conditions(&mut draw), conditions(&mut draw)].map(|one| world.channel(one));
        world.connect(channels, settings(9));
        for round in 0..20 {
            world.send(0, (round % 2) as usize, draw.message(round, 20_000)).unwrap();
        }
        world.run(ms(20_000)).unwrap();
        format!("{:?}", world.messages())
    };
    assert_eq!(run(), run());
}
