//! Stands between two sides, and does to packets what a bad network does.
#![allow(clippy::disallowed_types, reason = "tests lock as they like")]

use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{through, Side, HOST};
use tweed_rng::Rng;

/// How often in a thousand packets each thing happens.
#[derive(Clone, Copy, Default)]
pub(crate) struct Faults {
    pub(crate) lost: u64,
    pub(crate) twice: u64,
    /// Held back until some packets later.
    pub(crate) late: u64,
    pub(crate) corrupt: u64,
}

/// Packets, and where they went.
type Seen = Arc<Mutex<VecDeque<(SocketAddr, Vec<u8>)>>>;

/// A socket that passes packets on between two others.
pub(crate) struct Relay {
    pub(crate) port: u16,
    /// The latest packets that passed, as they came.
    pub(crate) seen: Seen,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Makes two sides known to each other as peers 1 (of the first) and 0 (of the second), with a relay between them.
    pub(crate) fn between(sides: &[Side; 2], seed: u64, faults: Faults) -> Relay {
        let relay = Relay::start([sides[0].address(), sides[1].address()], seed, faults);
        let (to_one, to_other) = (sides[0].datagrams.invite(1), sides[1].datagrams.invite(0));
        sides[0].datagrams.accept(1, HOST, &through(to_other, relay.port)).expect("a good invitation");
        sides[1].datagrams.accept(0, HOST, &through(to_one, relay.port)).expect("a good invitation");
        relay
    }

    fn start(ends: [SocketAddr; 2], seed: u64, faults: Faults) -> Relay {
        let socket = UdpSocket::bind((HOST, 0)).expect("a socket opens");
        socket.set_read_timeout(Some(Duration::from_millis(5))).expect("a time can be set");
        let port = socket.local_addr().expect("it is bound").port();
        let (stop, seen) = (Arc::new(AtomicBool::new(false)), Seen::default());
        let rng = Rng::new(seed);
        let link = Link { socket, ends, faults, rng, held: VecDeque::new(), seen: seen.clone() };
        let stopped = stop.clone();
        let thread = Some(std::thread::spawn(move || link.run(&stopped)));
        Relay { port, seen, stop, thread }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        self.thread.take().map(JoinHandle::join);
    }
}

struct Link {
    socket: UdpSocket,
    ends: [SocketAddr; 2],
    faults: Faults,
    rng: Rng,
    /// Packets that are late, and after how many others they go on.
    held: VecDeque<(u64, SocketAddr, Vec<u8>)>,
    seen: Seen,
}

/// What is kept for tests that use it again.
const SEEN: usize = 64;

impl Link {
    fn run(mut self, stop: &AtomicBool) {
        let mut bytes = vec![0; 1 << 16];
        while !stop.load(SeqCst) {
            if let Ok((len, from)) = self.socket.recv_from(&mut bytes) {
                self.pass(from, &mut bytes[..len]);
            }
            self.let_go();
        }
    }

    fn hits(&mut self, in_thousand: u64) -> bool {
        self.rng.below(1000) < in_thousand
    }

    fn pass(&mut self, from: SocketAddr, packet: &mut [u8]) {
        let to = self.ends[usize::from(from == self.ends[0])];
        let mut seen = self.seen.lock().expect("no test panics with it");
        seen.push_back((to, packet.to_vec()));
        if seen.len() > SEEN {
            seen.pop_front();
        }
        drop(seen);
        let Faults { lost, twice, late, corrupt } = self.faults;
        if self.hits(corrupt) {
            let at = self.rng.below(packet.len() as u64) as usize;
            packet[at] ^= 1 << self.rng.below(8);
        }
        if self.hits(lost) {
            return;
        }
        if self.hits(late) {
            self.held.push_back((1 + self.rng.below(20), to, packet.to_vec()));
            return;
        }
        for _ in 0..if self.hits(twice) { 2 } else { 1 } {
            // What the kernel refuses is one more loss.
            let _ = self.socket.send_to(packet, to);
        }
    }

    fn let_go(&mut self) {
        for _ in 0..self.held.len() {
            let Some((left, to, packet)) = self.held.pop_front() else { return };
            if left > 0 {
                self.held.push_back((left - 1, to, packet));
            } else {
                let _ = self.socket.send_to(&packet, to);
            }
        }
    }
}
