//! The wake-up under loom: a process and its peers, in all interleavings. A wake-up that is lost ends in a deadlock there.

use std::sync::Arc;

use loom::thread;

use super::*;
use crate::link::shm_queue::model::Shared;
use crate::{bounded, model};
use tweed_proto::engine::message::Kind;

/// What a process has, as far as sleeping goes: a queue per peer, and the word that the peers ring.
struct Process {
    wakeup: Wakeup,
    queues: Vec<loom::sync::Arc<Shared>>,
    /// Messages that have been taken. Its lock stands for the engine's: one thread at a time takes.
    taken: loom::sync::Mutex<u32>,
}

const LONG: Duration = Duration::from_secs(1);

impl Process {
    fn new(peers: usize) -> Arc<Process> {
        let zero = || AtomicU32::new(0);
        Arc::new(Process {
            wakeup: Wakeup { count: zero(), state: zero(), wake_at: zero() },
            queues: (0..peers).map(|_| Shared::new()).collect(),
            taken: loom::sync::Mutex::new(0),
        })
    }

    /// A peer puts one message in and rings.
    fn peer(self: &Arc<Self>, index: usize, kind: Kind) -> thread::JoinHandle<()> {
        let process = Arc::clone(self);
        thread::spawn(move || {
            assert!(process.queues[index].put(kind, 0));
            match kind {
                Kind::Read => process.wakeup.ring_for_read(),
                _ => process.wakeup.ring(1),
            }
        })
    }

    /// Takes what has come; how many have been taken so far.
    fn drive(&self) -> u32 {
        let mut taken = self.taken.lock().expect("no thread panics");
        for queue in &self.queues {
            while queue.take().is_some() {
                *taken += 1;
            }
        }
        *taken
    }

    fn has_messages(&self) -> bool {
        let _engine = self.taken.lock().expect("no thread panics");
        self.queues.iter().any(|queue| !queue.is_empty())
    }

    /// As `Driver::wait`: until so many messages have been taken. `needs` of how many are missing.
    fn attend(&self, wanted: u32, needs: impl Fn(u32) -> Option<u32>) {
        self.wakeup.attend();
        let mut seen;
        loop {
            seen = self.wakeup.count();
            let taken = self.drive();
            if taken >= wanted {
                break;
            }
            self.wakeup.sleep_as_waiter(seen, needs(wanted - taken), LONG, || self.has_messages());
        }
        if self.wakeup.leave(seen, || self.has_messages()) {
            self.wakeup.ring_all();
        }
    }

    /// As `Driver::lead_once`, until so many messages have been taken.
    fn background(self: &Arc<Self>, wanted: u32, reads: bool) -> thread::JoinHandle<()> {
        let process = Arc::clone(self);
        thread::spawn(move || loop {
            let seen = process.wakeup.count();
            if process.drive() >= wanted {
                return;
            }
            process.wakeup.sleep_in_background(seen, reads, None, || process.has_messages());
        })
    }
}

fn join(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().expect("it ends"));
}

#[test]
fn a_waiter_wakes_when_all_it_needs_has_come() {
    model(|| {
        let process = Process::new(2);
        let peers = [process.peer(0, Kind::Placed), process.peer(1, Kind::Placed)];
        process.attend(2, Some);
        join(peers);
    });
}

#[test]
fn a_waiter_that_could_use_anything_wakes_for_a_signal_or_an_acknowledgement() {
    model(|| {
        let process = Process::new(2);
        let peers = [process.peer(0, Kind::Placed), process.peer(1, Kind::Read)];
        process.attend(2, |_| None);
        join(peers);
    });
}

#[test]
fn the_background_thread_wakes_for_a_signal() {
    model(|| {
        let process = Process::new(2);
        let peers = [process.peer(0, Kind::Placed), process.peer(1, Kind::Placed)];
        let background = process.background(2, false);
        join(peers.into_iter().chain([background]));
    });
}

#[test]
fn the_background_thread_wakes_for_an_acknowledgement_if_it_could_use_one() {
    model(|| {
        let process = Process::new(1);
        let peer = process.peer(0, Kind::Read);
        let background = process.background(1, true);
        join([peer, background]);
    });
}

/// Two peers ring, one for the waiter and one for nobody in particular, while the waiter comes and goes.
#[test]
fn what_comes_while_a_waiter_leaves_is_left_to_the_background_thread() {
    bounded(2, || {
        let process = Process::new(2);
        let background = process.background(2, false);
        let peers = [process.peer(0, Kind::Placed), process.peer(1, Kind::Placed)];
        process.attend(1, Some);
        if !process.has_messages() {
            // The waiter has taken both, and nobody wakes the background thread for nothing.
            process.wakeup.ring_all();
        }
        join(peers.into_iter().chain([background]));
    });
}

/// A caller leaves work and wakes whoever sleeps.
#[test]
fn what_a_thread_of_the_process_leaves_is_seen_by_a_waiter() {
    model(|| {
        let process = Process::new(1);
        let caller = Arc::clone(&process);
        let poster = thread::spawn(move || {
            assert!(caller.queues[0].put(Kind::Placed, 0));
            caller.wakeup.ring_all();
        });
        process.attend(1, |_| Some(3));
        join([poster]);
    });
}
