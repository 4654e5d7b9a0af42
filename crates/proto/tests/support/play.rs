//! Any bytes as a play of two links: what is sent, given up, lost, late and doubled. Shared with `fuzz/`.
#![allow(dead_code, unreachable_pub)] // every test binary uses another part

use std::time::Duration;

use tweed_proto::ltp::{Closing, Header, Link, MessageId, Outgoing, Settings, Transmit};

use super::pair::{Fate, Pair};

const DELAY: Duration = Duration::from_millis(2);
const VALUES: [u8; 9] = [1, 2, 4, 8, 16, 3, 5, 12, 255];

/// Reads numbers from bytes; zeros follow their end.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn u8(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn below(&mut self, end: u32) -> u32 {
        u32::from_le_bytes([self.u8(), self.u8(), 0, 0]) % end
    }

    fn millis(&mut self) -> Duration {
        Duration::from_millis(self.u8().into())
    }
}

/// Plays it, and then gives the links a good network: all messages must come to an end, and both sides fall silent.
pub fn play(bytes: &[u8]) {
    let mut script = Script(bytes);
    let mut pair = Pair::new(&settings(&mut script));
    while !script.0.is_empty() {
        act(&mut pair, &mut script);
    }
    let mut good = |_: usize, _: &Transmit| vec![DELAY];
    let end = pair.now + Duration::from_secs(30);
    assert!(pair.run(end, &mut good), "a message never ends");
    let mut steps = 0;
    while pair.step(end, &mut good) {
        steps += 1;
        assert!(steps < 5000, "they go on talking");
    }
    assert_eq!(pair.next(), None, "something is still to come");
}

fn settings(script: &mut Script<'_>) -> [Settings; 2] {
    let deadline = Some(script.millis()).filter(|deadline| !deadline.is_zero());
    let closing = Closing { fraction: f64::from(script.u8()) / 255.0, slack: script.millis(), deadline };
    let settings = Settings {
        payload: 1200 + script.below(9000),
        payload_ceiling: 1200 + script.below(9000),
        seal: u32::from(script.u8() % 17),
        closing,
        seed: script.u8().into(),
        most_open: 1 + script.below(4) as usize,
        most_bytes: 300_000,
    };
    [settings.clone(), settings]
}

fn act(pair: &mut Pair, script: &mut Script<'_>) {
    let from = usize::from(script.u8() & 1);
    match script.u8() % 8 {
        0 | 1 => drop(pair.send(from, message(script))),
        2 => {
            let sent = pair.ends[from].given.len() as u32;
            if let Some(id) = (sent > 0).then(|| MessageId(script.below(sent))) {
                pair.cancel(from, id);
            }
        }
        3 => {
            let slowest = pair.ends[from].link.metrics().coming_threshold;
            pair.ends[from].link.end_epoch(slowest);
        }
        4 => {
            let until = pair.now + script.millis() * 4;
            while pair.step(until, &mut |_, _| Fate::new()) {}
        }
        _ => steps(pair, script),
    }
}

fn message(script: &mut Script<'_>) -> Outgoing {
    let bytes = match script.u8() % 4 {
        0 => u32::from(script.u8() % 64),
        1 => script.below(5000),
        _ => script.below(60_000) * 4,
    };
    let critical = (0..script.u8() % 4).map(|_| {
        let start = script.below(bytes + 1);
        start..start.saturating_add(script.below(100)).min(bytes)
    });
    Outgoing {
        critical: critical.collect(),
        round: script.u8().into(),
        tag: [script.u8(); 48],
        bytes,
        value: VALUES[usize::from(script.u8()) % VALUES.len()],
        lossy: script.u8() & 3 != 0,
        urgency: (bytes % 3) as i32,
    }
}

/// A stretch of time, in which each packet takes its fate from the bytes, around and around.
fn steps(pair: &mut Pair, script: &mut Script<'_>) {
    let fates: Vec<u8> = (0..1 + script.u8() % 32).map(|_| script.u8()).collect();
    let mut turn = fates.iter().copied().cycle();
    let mut fate = |_: usize, _: &Transmit| match turn.next().unwrap_or(0) {
        0..=64 => Fate::new(),
        65 => vec![DELAY, DELAY * 100],
        66..=80 => vec![DELAY, DELAY + Duration::from_micros(10)],
        81 => vec![DELAY * 50],
        other @ 82..=150 => vec![DELAY + Duration::from_micros(u64::from(other) * 50)],
        _ => vec![DELAY],
    };
    for _ in 0..16 * fates.len() {
        if !pair.step(pair.now + Duration::from_secs(2), &mut fate) {
            break;
        }
    }
}

/// Any bytes as packets of a peer that breaks the protocol: it may be refused, and nothing else.
pub fn hostile(bytes: &[u8]) {
    let mut script = Script(bytes);
    let mut link = Link::new(Settings { most_bytes: 1 << 30, ..Settings::default() });
    for _ in 0..script.u8() % 4 {
        let _ = link.send(message(&mut script));
    }
    let mut now = Duration::ZERO;
    while !script.0.is_empty() {
        while link.poll_transmit(now).is_some() {}
        let len = usize::from(script.u8()).min(script.0.len());
        let (packet, rest) = script.0.split_at(len);
        script.0 = rest;
        now += script.millis();
        if let Ok(header) = Header::decode(packet) {
            if link.handle(now, &header, &packet[16..]).is_err() {
                return;
            }
        }
        link.handle_timeout(now);
        while link.poll_event().is_some() {}
        let _ = (link.next_timeout(), link.metrics());
    }
}
