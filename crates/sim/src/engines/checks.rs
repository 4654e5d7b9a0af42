//! What must be so in every run: values and errors of calls, who sleeps until when, what is held, what is left.

use tweed_proto::engine::{EngineError, Time};

use super::kernel::CallId;
use super::link::Link;
use super::process::Process;
use super::scenario::{Fault, AHEAD_BYTES, MOST_NUMEL};
use super::thread::Sleep;
use super::world::{Violation, World};

impl World {
    /// Somebody comes back by the time at which something is due.
    pub(super) fn check_deadline(&self, process: &Process) -> Result<(), Violation> {
        if !self.kernel.borrow().processes[process.me].inbox.is_empty() {
            let me = process.me;
            return Err(format!("process {me}: something was left for the engine, and everybody sleeps"));
        }
        let Some(due) = process.engine.next_deadline() else { return Ok(()) };
        let sleepers = process.threads.iter().filter_map(|thread| match thread.sleep {
            Sleep::OnWakeup(_, until) => Some(until.unwrap_or(Time::MAX)),
            _ => None,
        });
        match sleepers.min() {
            Some(first) if first <= due.max(self.now) => Ok(()),
            first => {
                let (me, now) = (process.me, self.now);
                Err(format!("process {me} sleeps until {first:?}, past {due:?} (now {now:?})"))
            }
        }
    }

    /// What a caller makes of the end of its call.
    pub(super) fn judge(&mut self, process: usize, call: CallId) -> Result<(), Violation> {
        let p = &self.processes[process];
        let op = &self.scenario.ops[p.calls[call].op];
        match p.calls[call].result.as_ref().expect("it has ended") {
            Ok(()) => {
                self.report.well += 1;
                p.check(call, op, &self.kernel.borrow())
                    .map_or(Ok(()), |wrong| Err(format!("wrong value: {wrong}")))
            }
            Err(error) => {
                self.report.failed += 1;
                self.judge_error(process, call, error)
            }
        }
    }

    fn judge_error(&self, process: usize, call: CallId, error: &EngineError) -> Result<(), Violation> {
        let text = error.to_string();
        if self.scenario.is_harmless() {
            return Err(format!("process {process} call {call} failed without a cause: {text}"));
        }
        let named = text.contains("rank ") || matches!(error, EngineError::Aborted(_));
        if !named {
            return Err(format!("process {process} call {call}: nobody is named: {text}"));
        }
        let only_kills = self.scenario.faults.iter().all(|fault| {
            use Fault::{Abort, CloseEarly, Cut, Late, Stop};
            ![Abort, CloseEarly, Cut, Late, Stop].contains(fault)
        });
        // A survivor that could not join, because of the death, is late for those who could.
        let joined = self.processes[process].calls[call].op != self.round.op || self.round.members.is_empty();
        if only_kills && joined && !matches!(error, EngineError::PeerLost(_)) {
            return Err(format!("process {process} call {call}: a death is reported as {error:?}"));
        }
        Ok(())
    }

    /// Early messages take bounded memory.
    pub(super) fn check_memory(&self, process: usize) -> Result<(), Violation> {
        // Of each peer what it may be ahead, one value that is longer than that, and what the values' messages take.
        let each = AHEAD_BYTES + self.scenario.piece_bytes.max(MOST_NUMEL * 8) + MOST_NUMEL * 8 + 4096;
        let most = self.processes.len() as u64 * u64::from(self.scenario.groups) * each;
        let held = self.processes[process].engine.early_bytes();
        match held > most {
            true => Err(format!("process {process} holds {held} bytes of early messages, more than {most}")),
            false => Ok(()),
        }
    }

    /// Nothing is left of what has ended.
    pub(super) fn check_quiet(&self) -> Result<(), Violation> {
        let kernel = self.kernel.borrow();
        for p in self.processes.iter().filter(|p| p.alive) {
            let me = p.me;
            let shared = p.calls.iter().map(|call| &self.scenario.ops[call.op]).filter(|op| op.shared);
            let user: u64 = shared.map(|op| (op.numel * 8).next_multiple_of(64)).sum();
            let reserved = kernel.reserved(me);
            let lost = (0..p.engine.peers.len())
                .filter(|&peer| p.engine.peers.is_lost(peer) && kernel.here(me, peer).mapped);
            let excess = format!("{reserved} bytes of shared memory are taken, {user} by the program");
            let wrong = [
                (!p.engine.is_quiet(), format!("the engine holds {}", p.engine.holdings())),
                (reserved > user, excess),
                (kernel.holds_leases(me), "a lease is left".to_owned()),
                (lost.count() > 0, "a lost neighbour's memory is mapped".to_owned()),
                (p.lock.is_some() || p.seat.is_some(), "a lock is held".to_owned()),
            ];
            if let Some((_, what)) = wrong.into_iter().find(|(wrong, _)| *wrong) {
                return Err(format!("leak: process {me}: {what}"));
            }
        }
        // A call that nobody has answered waits for the next group.
        let stands = |link: &&Link| {
            link.ends.iter().all(|end| kernel.processes[end.process].alive && end.peer.is_some())
        };
        match kernel.links.iter().filter(stands).find(|link| !link.is_drained()) {
            Some(link) => Err(format!("leak: something was never sent or read: {link:?}")),
            None => Ok(()),
        }
    }
}
