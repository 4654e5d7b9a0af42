//! Two links, the memory of their messages, and a network between them, over a virtual clock. It checks whatever must
//! always hold, and panics where it does not. Shared with `fuzz/`.
#![allow(dead_code, unreachable_pub)] // every test binary uses another part

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use tweed_proto::ltp::replay::Window;
use tweed_proto::ltp::{Event, Header, Link, MessageId, Outgoing, Settings, Transmit};

/// What a network does to one packet: a copy arrives after each of these times.
pub type Fate = Vec<Duration>;

pub const DELAY: Duration = Duration::from_millis(5);
pub const LONG: Duration = Duration::from_secs(60);

/// A message that may lose parts.
pub fn message(bytes: u32) -> Outgoing {
    Outgoing { round: 7, tag: [3; 48], bytes, value: 4, critical: Vec::new(), lossy: true, urgency: 0 }
}

pub fn reliable(bytes: u32) -> Outgoing {
    Outgoing { lossy: false, ..message(bytes) }
}

/// A network that loses nothing.
pub fn good(_: usize, _: &Transmit) -> Fate {
    vec![DELAY]
}

/// A packet under way.
#[derive(Clone, Debug)]
pub struct Packet {
    pub to: usize,
    pub header: Header,
    pub body: Vec<u8>,
}

/// A message that was given to a link.
#[derive(Clone, Debug)]
pub struct Given {
    pub what: Outgoing,
    pub data: Vec<u8>,
    pub cancelled: bool,
    /// What its receiver says is missing.
    pub received: Option<Vec<Range<u32>>>,
    /// What its sender was told is missing.
    pub delivered: Option<Vec<Range<u32>>>,
}

impl Given {
    pub fn settled(&self) -> bool {
        self.cancelled || self.delivered.is_some()
    }
}

/// One side of a pair.
pub struct End {
    pub link: Link,
    window: Window,
    /// Messages towards the other side.
    pub given: BTreeMap<MessageId, Given>,
    /// Memory of messages that are arriving here.
    landing: BTreeMap<MessageId, Vec<u8>>,
    pub sent: u64,
}

/// Both sides and what is between them.
pub struct Pair {
    pub now: Duration,
    pub ends: [End; 2],
    flying: BTreeMap<(Duration, u64), Packet>,
    count: u64,
}

impl Pair {
    pub fn new(settings: &[Settings; 2]) -> Pair {
        let end = |settings: &Settings| End {
            link: Link::new(settings.clone()),
            window: Window::default(),
            given: BTreeMap::new(),
            landing: BTreeMap::new(),
            sent: 0,
        };
        Pair {
            now: Duration::ZERO,
            ends: [end(&settings[0]), end(&settings[1])],
            flying: BTreeMap::new(),
            count: 0,
        }
    }

    pub fn send(&mut self, from: usize, what: Outgoing) -> MessageId {
        let data: Vec<u8> = (0..what.bytes).map(|at| (at % 251) as u8 + 1).collect();
        let end = &mut self.ends[from];
        let id = end.link.send(what.clone());
        end.given.insert(id, Given { what, data, cancelled: false, received: None, delivered: None });
        id
    }

    pub fn cancel(&mut self, from: usize, id: MessageId) {
        let end = &mut self.ends[from];
        end.link.cancel(id);
        let given = end.given.get_mut(&id).expect("it was given");
        given.cancelled |= given.delivered.is_none();
    }

    /// Lets everything leave that may leave now.
    pub fn flush(&mut self, fate: &mut impl FnMut(usize, &Transmit) -> Fate) {
        for from in 0..2 {
            while let Some(transmit) = self.ends[from].link.poll_transmit(self.now) {
                self.ends[from].sent += 1;
                assert!(self.ends[from].sent < 10_000_000, "it sends for ever");
                let packet = self.packet(from, &transmit);
                for delay in fate(from, &transmit) {
                    self.count += 1;
                    self.flying.insert((self.now + delay, self.count), packet.clone());
                }
            }
        }
    }

    /// When something happens next.
    pub fn next(&self) -> Option<Duration> {
        let arrival = self.flying.first_key_value().map(|((at, _), _)| *at);
        let timeouts = self.ends.iter().filter_map(|end| end.link.next_timeout());
        timeouts.chain(arrival).min().map(|at| at.max(self.now))
    }

    /// Goes on to the next thing that happens, and lets it happen. False if nothing does before `until`.
    pub fn step(&mut self, until: Duration, fate: &mut impl FnMut(usize, &Transmit) -> Fate) -> bool {
        self.flush(fate);
        let Some(next) = self.next().filter(|next| *next < until) else {
            self.now = until;
            return false;
        };
        self.now = next;
        while let Some(entry) = self.flying.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let packet = entry.remove();
            self.arrive(&packet);
        }
        for at in 0..2 {
            if self.ends[at].link.next_timeout().is_some_and(|due| due <= self.now) {
                self.ends[at].link.handle_timeout(self.now);
                self.events(at);
            }
        }
        self.flush(fate);
        true
    }

    /// Runs until both sides have agreed on all messages; true if they have before `until`.
    pub fn run(&mut self, until: Duration, fate: &mut impl FnMut(usize, &Transmit) -> Fate) -> bool {
        let mut same_instant = (self.now, 0);
        while self.ends.iter().any(|end| !end.given.values().all(Given::settled)) {
            if !self.step(until, fate) {
                return false;
            }
            same_instant =
                if same_instant.0 == self.now { (self.now, same_instant.1 + 1) } else { (self.now, 0) };
            assert!(same_instant.1 < 100_000, "time stands still at {:?}", self.now);
        }
        true
    }

    /// Hands a packet to the side it is for.
    pub fn arrive(&mut self, packet: &Packet) {
        let end = &mut self.ends[packet.to];
        if !end.window.admit(packet.header.number) {
            return;
        }
        let place =
            end.link.handle(self.now, &packet.header, &packet.body).expect("a packet of the other link");
        if let Some(place) = place {
            let landing = end.landing.entry(place.message).or_insert_with(|| vec![0; place.total as usize]);
            let values = &packet.body[place.at..place.at + place.len as usize];
            landing[place.offset as usize..][..values.len()].copy_from_slice(values);
        }
        self.events(packet.to);
    }

    fn packet(&self, from: usize, transmit: &Transmit) -> Packet {
        let header = Header::decode(&transmit.header(0)).expect("it was encoded");
        let body = match *transmit {
            Transmit::Control { ref body, .. } => body.clone(),
            Transmit::Data { message, offset, len, .. } => {
                let given = &self.ends[from].given[&message];
                assert!(!given.settled(), "message {message:?} is over, and its memory is read");
                let head = transmit.body_head().expect("it is DATA");
                [&head, &given.data[offset as usize..(offset + len) as usize]].concat()
            }
            Transmit::Repair { head, .. } => {
                let given = &self.ends[from].given[&MessageId(head.message)];
                assert!(!given.settled(), "message {} is over, and its memory is read", head.message);
                [&head.encode()[..], &head.code.encode(&given.data)[usize::from(head.index)]].concat()
            }
        };
        Packet { to: 1 - from, header, body }
    }

    fn events(&mut self, at: usize) {
        while let Some(event) = self.ends[at].link.poll_event() {
            match event {
                Event::Restored { message, repair } => {
                    let zeros = || vec![0; repair.total() as usize];
                    repair.restore(self.ends[at].landing.entry(message).or_insert_with(zeros));
                }
                Event::Received { message, round, tag, total, missing } => {
                    let landed =
                        self.ends[at].landing.remove(&message).unwrap_or_else(|| vec![0; total as usize]);
                    let given = self.ends[1 - at].given.get_mut(&message).expect("it was sent");
                    assert_eq!((round, tag, total), (given.what.round, given.what.tag, given.what.bytes));
                    assert!(given.received.is_none(), "message {message:?} is received twice");
                    check(given, &landed, &missing);
                    given.received = Some(missing);
                }
                Event::Delivered { message, missing } => {
                    let given = self.ends[at].given.get_mut(&message).expect("it was sent");
                    assert!(!given.settled(), "message {message:?} ends twice");
                    assert_eq!(
                        given.received.as_ref(),
                        Some(&missing),
                        "the sides do not agree on what is missing"
                    );
                    given.delivered = Some(missing);
                }
                Event::Cancelled { message } => {
                    assert!(self.ends[1 - at].given[&message].cancelled);
                    self.ends[at].landing.remove(&message);
                }
            }
        }
    }
}

/// What arrived is bit-equal, what is missing is zero and whole values, and nothing critical is missing.
fn check(given: &Given, landed: &[u8], missing: &[Range<u32>]) {
    let mut expected = given.data.clone();
    for range in missing {
        expected[range.start as usize..range.end as usize].fill(0);
        assert_eq!(range.start % u32::from(given.what.value), 0);
        assert!(range.end % u32::from(given.what.value) == 0 || range.end == given.what.bytes);
        let vital = |critical: &Range<u32>| critical.start < range.end && range.start < critical.end;
        let mut critical = given.what.critical.iter().filter(|critical| !critical.is_empty());
        assert!(!critical.any(vital), "critical bytes of {range:?} are missing");
    }
    assert!(landed == expected, "other bytes than those that are said to be missing differ");
    assert!(given.what.lossy || missing.is_empty(), "a reliable message lacks {missing:?}");
}
