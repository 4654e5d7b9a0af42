//! What the tests of the UDP driver share: a handler that keeps what is reported to it, and a pair of sides on loopback.
#![allow(clippy::disallowed_types, reason = "tests lock as they like")]
#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod relay;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use tweed_net::ltp::{DatagramOptions, Datagrams, Handler, PacketMessage};
use tweed_proto::ltp::Outgoing;
use tweed_rng::Rng;

pub(crate) const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Only a hang takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// What was reported to a side, by peer.
#[derive(Default)]
struct Reported {
    packet_messages: BTreeMap<usize, VecDeque<PacketMessage>>,
    delivered: BTreeMap<(usize, u64), Vec<Range<u32>>>,
    broken: Vec<(usize, String)>,
}

/// A handler that keeps what is reported to it.
#[derive(Default)]
pub(crate) struct Desk {
    reported: Mutex<Reported>,
    changed: Condvar,
}

impl Handler for Desk {
    fn buffer(&self, bytes: usize) -> Vec<u8> {
        // What was in it before must not show.
        vec![0xee; bytes]
    }

    fn received(&self, peer: usize, packet_message: PacketMessage) {
        self.note(|r| r.packet_messages.entry(peer).or_default().push_back(packet_message));
    }

    fn delivered(&self, peer: usize, ticket: u64, missing: Vec<Range<u32>>) {
        self.note(|r| drop(r.delivered.insert((peer, ticket), missing)));
    }

    fn broken(&self, peer: usize, why: String) {
        self.note(|r| r.broken.push((peer, why)));
    }
}

impl Desk {
    fn note(&self, change: impl FnOnce(&mut Reported)) {
        change(&mut self.reported.lock().expect("no test panics with it"));
        self.changed.notify_all();
    }

    fn until<T>(&self, what: &str, mut look: impl FnMut(&mut Reported) -> Option<T>) -> T {
        let mut found = None;
        let reported = self.reported.lock().expect("no test panics with it");
        let (reported, _) = self
            .changed
            .wait_timeout_while(reported, PATIENCE, |r| {
                found = look(r);
                found.is_none()
            })
            .expect("no test panics with it");
        drop(reported);
        found.unwrap_or_else(|| panic!("waited in vain for {what}"))
    }

    /// The next message from a peer.
    pub(crate) fn packet_message(&self, peer: usize) -> PacketMessage {
        self.until("a message", |r| r.packet_messages.get_mut(&peer)?.pop_front())
    }

    /// What the peer does not have of the message with this ticket.
    pub(crate) fn delivered(&self, peer: usize, ticket: u64) -> Vec<Range<u32>> {
        self.until("a delivery", |r| r.delivered.remove(&(peer, ticket)))
    }

    /// Whether the peer has closed the message with this ticket by now.
    pub(crate) fn has_delivered(&self, peer: usize, ticket: u64) -> bool {
        self.reported.lock().expect("no test panics with it").delivered.contains_key(&(peer, ticket))
    }

    /// Why a peer was given up.
    pub(crate) fn broken(&self) -> (usize, String) {
        self.until("a peer that makes no sense", |r| r.broken.pop())
    }
}

/// One end of a link.
pub(crate) struct Side {
    pub(crate) desk: Arc<Desk>,
    pub(crate) datagrams: Arc<Datagrams>,
}

impl Side {
    pub(crate) fn open(options: &DatagramOptions) -> Side {
        let desk = Arc::new(Desk::default());
        let datagrams = Datagrams::open(HOST, options.clone(), desk.clone()).expect("a socket opens");
        Side { desk, datagrams }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::new(HOST, self.datagrams.port())
    }

    /// Sends `body`, which must live until it is delivered or cancelled.
    pub(crate) fn send(&self, peer: usize, what: Outgoing, body: &[u8], ticket: u64) {
        assert_eq!(what.bytes as usize, body.len());
        // SAFETY: see above.
        unsafe { self.datagrams.send(peer, what, body.as_ptr(), ticket) };
    }
}

/// Two sides that do not know each other.
pub(crate) fn two(options: &DatagramOptions) -> [Side; 2] {
    [Side::open(options), Side::open(options)]
}

/// Two sides that know each other as peers 1 (of the first) and 0 (of the second).
pub(crate) fn pair(options: &DatagramOptions) -> [Side; 2] {
    let sides = two(options);
    introduce(&sides[0], 1, &sides[1], 0);
    sides
}

/// Makes two sides known to each other. Returns the invitation of the second.
pub(crate) fn introduce(one: &Side, other_number: usize, other: &Side, one_number: usize) -> Vec<u8> {
    let (to_one, to_other) = (one.datagrams.invite(other_number), other.datagrams.invite(one_number));
    one.datagrams.accept(other_number, HOST, &to_other).expect("a good invitation");
    other.datagrams.accept(one_number, HOST, &to_one).expect("a good invitation");
    to_other
}

/// Sends one message and checks that it comes whole.
pub(crate) fn check(from: &Side, to_peer: usize, to: &Side, from_peer: usize, body: &[u8]) {
    from.send(to_peer, whole(7, body), body, 7);
    let came = to.desk.packet_message(from_peer);
    assert!(came.body == body && came.missing.is_empty() && came.tag == [7; 48], "a message differs");
    assert_eq!(from.desk.delivered(to_peer, 7), []);
}

/// Waits until something holds that no handler is told of.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::yield_now();
    }
}

/// An invitation with another port, as if the peer sat behind it.
pub(crate) fn through(mut invitation: Vec<u8>, port: u16) -> Vec<u8> {
    invitation[2..4].copy_from_slice(&port.to_le_bytes());
    invitation
}

/// A message that must arrive whole.
pub(crate) fn whole(tag: u8, body: &[u8]) -> Outgoing {
    let bytes = body.len() as u32;
    Outgoing { round: 1, tag: [tag; 48], bytes, value: 4, critical: Vec::new(), lossy: false, urgency: 0 }
}

/// `bytes` that are different at each place and for each seed.
pub(crate) fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    std::iter::repeat_with(|| rng.draw().to_le_bytes()).flatten().take(bytes).collect()
}
