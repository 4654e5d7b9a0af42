//! The loop: take packets in, let the links do what is due, send what may leave, tell what has happened, sleep.

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use super::burst::Burst;
use super::event::sleep_exactly;
use super::socket::Bins;
use super::{Notice, Shared};

/// So many bursts leave before packets are taken in again: acknowledgements must not wait long.
const BURSTS: usize = 4;

/// A sleep so short ends later than it should, by as much again; the socket is asked once more instead. Only where
/// something is being sent: other timers are not so fine.
const SPIN: Duration = Duration::from_micros(50);

/// While the kernel takes no packets, those that wait for it are not asked about; timers still run.
const BLOCKED: Duration = Duration::from_millis(1);

/// What the thread works with.
struct Loop<'a> {
    shared: &'a Shared,
    bins: Bins,
    burst: Burst,
    notices: Vec<Notice>,
    /// When packets last left.
    sent: Duration,
}

/// Runs until the socket is closed.
pub(super) fn run(shared: &Shared) {
    sleep_exactly();
    let (bins, burst) = (Bins::new(), Burst::new());
    let mut this = Loop { shared, bins, burst, notices: Vec::new(), sent: Duration::ZERO };
    while !shared.stopping.load(SeqCst) {
        let more = this.receive();
        this.shared.lock().handle_timeouts(this.shared.now());
        // Before the peers are told: one of them may leave over its stream as soon as it knows.
        this.report();
        let more = this.send() || more;
        if !more {
            this.sleep();
        }
    }
}

impl Loop<'_> {
    /// Takes in what has come. True if there may be more.
    fn receive(&mut self) -> bool {
        // Nothing there, or an error of some peer's host that means nothing to the others.
        let Ok(filled) = self.shared.socket.receive(&mut self.bins) else { return false };
        let now = self.shared.now();
        let mut peers = self.shared.lock();
        for bin in 0..filled {
            let (from, packets) = self.bins.packets(bin);
            for packet in packets {
                let Some(want) = peers.take(now, from, packet, &mut self.notices) else { continue };
                drop(peers);
                let memory = self.shared.handler.buffer(want.place.total as usize);
                peers = self.shared.lock();
                peers.land(&want, memory, packet);
            }
        }
        true
    }

    /// Sends what may leave. True if there may be more.
    fn send(&mut self) -> bool {
        for _ in 0..BURSTS {
            if !self.flush() {
                return false;
            }
            let now = self.shared.now();
            if !self.shared.lock().fill(now, &mut self.burst) {
                return false;
            }
            self.sent = now;
        }
        self.flush()
    }

    /// `false` if the kernel takes no more for now.
    fn flush(&mut self) -> bool {
        if self.burst.is_empty() {
            return true;
        }
        match self.shared.socket.send(&mut self.burst) {
            Ok(0) => true,
            Ok(unsent) => {
                self.shared.lock().refused.unsent += unsent;
                true
            }
            Err(_) => false,
        }
    }

    fn report(&mut self) {
        self.shared.lock().poll_events(&mut self.notices);
        let handler = &self.shared.handler;
        for notice in self.notices.drain(..) {
            match notice {
                Notice::Received { peer, packet_message } => handler.received(peer, packet_message),
                Notice::Delivered { peer, ticket, missing } => handler.delivered(peer, ticket, missing),
                Notice::Broken { peer, why } => handler.broken(peer, why),
            }
        }
    }

    fn sleep(&self) {
        let blocked = !self.burst.is_empty();
        let next = self.shared.lock().next_timeout();
        let now = self.shared.now();
        let left = next.map(|at| at.saturating_sub(now));
        let left = if blocked { left.map(|left| left.max(BLOCKED)) } else { left };
        let sending = now.saturating_sub(self.sent) < SPIN;
        if !(sending && left.is_some_and(|left| left < SPIN)) {
            self.shared.waker.sleep(self.shared.socket.as_raw_fd(), blocked, left);
        }
    }
}
