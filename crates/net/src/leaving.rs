//! The end of a node: it leaves its groups and the network in good order, whoever else hangs.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tweed_proto::engine::Engine;

use crate::engine::callbacks::wait_for;
use crate::engine::driver::Driver;
use crate::engine::live::Live;
use crate::node::Node;

/// A process that leaves gives calls under way and its peers so long.
const SHUTDOWN: Duration = Duration::from_secs(1);

/// And its last messages so long to arrive: the kernel sends again what was lost, each time after twice as long.
const LAST_MESSAGES: Duration = Duration::from_secs(5);

/// And its threads so long, which may be in a callback of the user. Who does not come back from it is left there.
const LAST_CALLBACK: Duration = Duration::from_secs(5);

impl Node {
    /// Leaves all groups and the network in good order, within `SHUTDOWN` where no callback takes longer and no link
    /// loses packets. Calls that are still under way end as aborted. Again, or in a fork, nothing happens.
    ///
    /// It goes on reading until all peers have closed, or at least until all that it has said has reached their hosts:
    /// were its sockets closed with something unread in them, or did something come later, the kernel would reset the
    /// connections and throw away what is still to be sent again, perhaps that this process has left in good order.
    pub fn leave(&self) {
        if self.driver().check_process().is_err() {
            return;
        }
        let threads = std::mem::take(&mut *self.threads.lock());
        if threads.is_empty() {
            return;
        }
        let joined = self.joined.lock().take().unwrap_or_default();
        let driver = Arc::clone(self.driver());
        // Calls that end call back, and who never comes back from that must not hold up the end of the process.
        let closing = std::thread::Builder::new().name("tweed-leave".into()).spawn(move || {
            driver.drive_for_others(driver.engine.lock());
            driver.wait_until(Instant::now() + SHUTDOWN / 2, |engine| !engine.is_busy());
            joined.into_iter().for_each(|number| driver.close_group(number));
        });
        wait_for(closing.into_iter().collect(), SHUTDOWN + LAST_CALLBACK);
        self.driver().send_bye();
        let closed = |engine: &Engine<Live>| (0..engine.peers.len()).all(|peer| engine.peers.is_lost(peer));
        self.driver().wait_until(Instant::now() + SHUTDOWN / 2, closed);
        self.driver().wait_until(Instant::now() + LAST_MESSAGES, has_reached_all);
        // Others that this process is between may not have come so far.
        self.driver().wait_until(Instant::now() + LAST_MESSAGES, |_| self.connector.relay.pairs() == 0);
        self.stop(threads);
    }

    fn stop(&self, mut threads: Vec<JoinHandle<()>>) {
        self.driver().endpoints.close();
        self.driver().stopping.store(true, Ordering::Release);
        if let Some(listener) = &self.connector.listener {
            listener.close();
        }
        self.connector.local_listener.close();
        threads.extend(self.connector.relay.close());
        self.driver().watcher.wake();
        self.driver().ring();
        self.driver().callbacks.stop(LAST_CALLBACK);
        wait_for(threads, LAST_CALLBACK);
    }
}

/// Whether all that was said to peers that are not lost is at their hosts.
fn has_reached_all(engine: &Engine<Live>) -> bool {
    let there = |peer: usize| engine.host.links[peer].streams.iter().all(|stream| stream.has_arrived());
    (0..engine.peers.len()).all(|peer| engine.peers.is_lost(peer) || there(peer))
}

impl Driver {
    /// Writes down what is traced, and tells all peers that it leaves.
    fn send_bye(&self) {
        let mut engine = self.engine.lock();
        engine.save_traces();
        engine.send_bye();
        let lines = engine.take_lines();
        self.release(engine);
        lines.iter().for_each(|line| crate::stderr::print_line(line));
    }

    /// Lets the threads work until `done`, or until it is too late. It looks every few milliseconds: what is done once
    /// at the very end is not worth a signal of its own.
    fn wait_until(&self, deadline: Instant, done: impl Fn(&Engine<Live>) -> bool) {
        self.ring();
        while !done(&self.engine.lock()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
