//! Calling a process anew whose link has broken.
//!
//! Both ends call. A process whose port is closed, or is another one's, has ended, and counts as lost at once; one that does not
//! answer is called until the deadline. Whichever call comes through first makes the link, and two links do no harm.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use tweed_proto::objects::Process;

use super::node::Shared;
use crate::connect::backoff::Backoff;
use crate::sync::stop::Stop;

/// Threads that call, each one process.
#[derive(Default)]
pub(super) struct Dialing(Vec<JoinHandle<()>>);

impl Dialing {
    /// Calls a process until there is a link, or it is lost.
    pub(super) fn begin(&mut self, shared: &Arc<Shared>, process: Process, why: String) {
        self.0.retain(|thread| !thread.is_finished());
        let (caller, reason) = (Arc::clone(shared), why.clone());
        let thread = std::thread::Builder::new().name("tweed-dial".into());
        match thread.spawn(move || caller.dial(process, &reason)) {
            Ok(thread) => self.0.push(thread),
            Err(error) => shared.give_up(process, &format!("{why}; it cannot be called anew: {error}")),
        }
    }
}

impl Drop for Dialing {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl Shared {
    fn dial(&self, process: Process, why: &str) {
        let Some((address, key)) = self.state.lock().peers.place(process) else { return };
        let (until, stop) = (Instant::now() + self.patience, Stop::default());
        let is_late = || Instant::now() >= until;
        let is_over = || self.is_closed() || !self.state.lock().peers.is_away(process);
        let mut pauses = Backoff::new(process);
        while !is_over() {
            let interrupted = || is_late() || self.is_closed();
            let Err(refusal) = self.links.dial(&address.to_string(), Some(key), &interrupted) else { return };
            if refusal.is_end() || is_late() || !stop.sleep(pauses.next_pause(), until) {
                return self.give_up(process, &format!("{why}; called anew: {refusal}"));
            }
        }
    }

    fn give_up(&self, process: Process, why: &str) {
        let mut state = self.state.lock();
        if state.peers.is_away(process) {
            state.lose(process, why);
            state.drive();
        }
        drop(state);
        self.changed.notify_all();
    }

    fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }
}
