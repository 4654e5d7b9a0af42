//! How the processes of a group find each other: each calls some, the others call it, and one thread waits for all.
//!
//! Theory of operation. Of each pair, the descriptors decide who dials (`Connector::calls`). The thread that joins starts the
//! calls, one thread for all neighbours and one for each process behind a wire, and then looks, in slices of
//! `stop::SLICE`, at what has come about. For each other rank it ends when
//!
//! - it is *found*: a link to it stands, made by its call (from `pending`), by ours, or before this meeting. A later call
//!   of the same process replaces what was found, until the meeting is over;
//! - or the meeting *fails*: a call was refused for good, a process of this host has ended, the caller was interrupted,
//!   or the deadline has come. Then `stop` ends all calls within a slice, and the error names the rank.
//!
//! Locks: `pending`, then `directory` or the engine, one at a time; `failed` inside of `pending`. Whoever changes what is
//! waited for takes `pending` once before it notifies `met`, so that no change is missed. No lock is held while
//! `interrupted` is asked: it may run code of the caller's.

use std::sync::Arc;
use std::thread::Scope;
use std::time::{Duration, Instant};

use crate::connect::admission::pending::Caller;
use crate::connect::agreement::Agreement;
use crate::connect::connector::Connector;
use crate::connect::descriptor::PeerDescriptor;
use crate::connect::tcp_handshake::Call;
use crate::framing::Refusal;
use crate::sync::stop::{Stop, SLICE};
use crate::sync::{LockRank, Mutex};
use tweed_proto::engine::{EngineError, Event};

/// A meeting that takes longer says once whom it waits for.
const LONG: Duration = Duration::from_secs(10);
/// So many of those that are missing are looked at in a slice.
const AT_A_TIME: usize = 8;
/// Calls end by themselves at the deadline, and know better than the thread that waits why they have failed.
const GRACE: Duration = Duration::from_millis(250);

/// One meeting.
pub(crate) struct Meeting<'a> {
    pub(crate) connector: &'a Arc<Connector>,
    pub(crate) known: &'a Agreement<'a>,
    pub(crate) deadline: Instant,
    /// Whether to give up at once; asked in every slice, on the thread that joins.
    pub(crate) interrupted: &'a dyn Fn() -> bool,
}

/// What the calls of a meeting share with the thread that waits.
struct Calls {
    stop: Stop,
    /// By rank.
    failed: Mutex<Vec<(usize, Refusal)>>,
}

impl Meeting<'_> {
    /// The peer of each rank; `usize::MAX` stands for this process.
    pub(crate) fn run(&self) -> Result<Vec<usize>, EngineError> {
        self.give_up_broken();
        self.listen()?;
        let calls = Calls { stop: Stop::default(), failed: Mutex::new(LockRank::Failed, Vec::new()) };
        std::thread::scope(|scope| {
            self.start_calls(scope, &calls);
            let met = self.wait(&calls);
            calls.stop.set();
            met
        })
    }

    fn others(&self) -> impl Iterator<Item = (usize, &PeerDescriptor)> {
        self.known.descriptors.iter().enumerate().filter(|(_, c)| c.uid != self.connector.descriptor.uid)
    }

    /// A link that one end has lost, as its descriptor says, is of no use, even where the other end has not noticed.
    fn give_up_broken(&self) {
        let own = self.connector.descriptor.uid.as_str();
        for descriptor in self.known.descriptors {
            for (uid, attempt) in &descriptor.broken {
                let other = if descriptor.uid == own { uid } else { &descriptor.uid };
                if descriptor.uid == own || uid == own {
                    let lost = self.connector.directory.lock().give_up(other, *attempt);
                    let lost =
                        lost.map(|peer| Event::Lost(peer, "its other end has lost the connection".into()));
                    lost.into_iter().for_each(|event| self.connector.driver.post(event));
                }
            }
        }
    }

    /// Listens if anybody has to call this process over TCP.
    fn listen(&self) -> Result<(), EngineError> {
        let comes = |descriptor: &PeerDescriptor| {
            !self.connector.descriptor.shares_memory_with(descriptor) && !self.connector.calls(descriptor)
        };
        match &self.connector.listener {
            Some(listener) if self.others().any(|(_, c)| comes(c)) => {
                listener.listen().map_err(|e| EngineError::setup("the engine cannot listen", e))
            }
            _ => Ok(()),
        }
    }

    fn start_calls<'s>(&'s self, scope: &'s Scope<'s, '_>, calls: &'s Calls) {
        let ours =
            self.others().filter(|(_, c)| self.connector.calls(c) && self.connector.find(&c.uid).is_none());
        let (near, far): (Vec<_>, Vec<_>) =
            ours.partition(|(_, c)| self.connector.descriptor.shares_memory_with(c));
        let (connector, deadline) = (self.connector, self.deadline);
        let call = move |rank, descriptor| {
            let call = Call { descriptor, attempt: connector.next_attempt(), deadline, stop: &calls.stop };
            let near = connector.descriptor.shares_memory_with(descriptor);
            let called = if near { connector.dial_neighbour(&call) } else { connector.dial_wire(&call) };
            if let Err(refusal) = called {
                calls.failed.lock().push((rank, refusal));
                connector.notify_met();
            }
        };
        if !near.is_empty() {
            scope.spawn(move || near.into_iter().for_each(|(rank, descriptor)| call(rank, descriptor)));
        }
        for (rank, descriptor) in far {
            scope.spawn(move || call(rank, descriptor));
        }
    }

    fn wait(&self, calls: &Calls) -> Result<Vec<usize>, EngineError> {
        let begin = Instant::now();
        let mut found = vec![None; self.known.descriptors.len()];
        found[self.known.rank as usize] = Some(usize::MAX);
        let (mut warned, mut checked, mut rounds) = (false, None::<Instant>, 0);
        loop {
            self.look(calls, &mut found)?;
            if let Some(peers) = found.iter().copied().collect() {
                return Ok(peers);
            }
            let missing: Vec<usize> = (0..found.len()).filter(|&rank| found[rank].is_none()).collect();
            // Where hundreds meet, somebody comes every few microseconds.
            if checked.is_none_or(|last| last.elapsed() >= SLICE) {
                self.check(&missing, rounds)?;
                (checked, rounds) = (Some(Instant::now()), rounds + 1);
            }
            if !warned && begin.elapsed() > LONG {
                warned = true;
                self.warn(&missing);
            }
        }
    }

    /// Notes who is found by now. If nobody new is, waits for a slice or for a change.
    fn look(&self, calls: &Calls, found: &mut [Option<usize>]) -> Result<(), EngineError> {
        let mut pending = self.connector.pending.lock();
        let mut came = Vec::new();
        let mut any = false;
        for (rank, descriptor) in self.others() {
            if let Some((attempt, links)) = pending.take(&caller(descriptor)) {
                came.push((rank, descriptor, attempt, links));
            } else if found[rank].is_none() {
                found[rank] = self.connector.find(&descriptor.uid);
                any |= found[rank].is_some();
            }
        }
        let failed = calls.failed.lock().pop();
        if !any && came.is_empty() && failed.is_none() {
            drop(self.connector.met.wait_timeout(pending, SLICE));
            return Ok(());
        }
        drop(pending);
        for (rank, descriptor, attempt, links) in came {
            match self.connector.link(descriptor, attempt, links) {
                Ok(peer) => found[rank] = Some(peer),
                Err(Refusal::Outdated) => {}
                Err(why) => return Err(self.unreachable(rank, &why)),
            }
        }
        match failed {
            // Its own call may have replaced ours meanwhile.
            Some((rank, why)) if found[rank].is_none() => Err(self.unreachable(rank, &why)),
            _ => Ok(()),
        }
    }

    /// Whether the ranks that are missing can still be waited for.
    fn check(&self, missing: &[usize], round: usize) -> Result<(), EngineError> {
        let own = &self.connector.descriptor;
        // The kernel is asked about a few at a time: else hundreds that ask about hundreds do nothing else.
        let turn = missing.iter().cycle().skip(round * AT_A_TIME % missing.len());
        let mut turn = turn.take(AT_A_TIME.min(missing.len()));
        if let Some(&rank) = turn.find(|&&rank| self.known.descriptors[rank].has_ended(own)) {
            return Err(self.unreachable(rank, &Refusal::Ended));
        }
        if (self.interrupted)() {
            return Err(self.unreachable(missing[0], &Refusal::Interrupted));
        }
        let now = Instant::now();
        let over = |&&rank: &&usize| {
            let calls = self.connector.calls(&self.known.descriptors[rank]);
            now >= self.deadline + if calls { GRACE } else { Duration::ZERO }
        };
        let Some(&rank) = missing.iter().find(over) else { return Ok(()) };
        let (descriptor, pending) = (&self.known.descriptors[rank], self.connector.pending.lock());
        let why = match descriptor.key() {
            _ if pending.has_impostor(&caller(descriptor)) => Refusal::Key,
            Some(key) if pending.is_suspect(&key) => Refusal::Secret,
            _ => Refusal::Silent,
        };
        drop(pending);
        Err(self.unreachable(rank, &why))
    }

    fn warn(&self, missing: &[usize]) {
        let names: Vec<String> = missing.iter().take(8).map(|&rank| self.name(rank)).collect();
        let more = missing.len().saturating_sub(names.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let left = self.deadline.saturating_duration_since(Instant::now()).as_secs();
        let (group, after) = (self.known.group, LONG.as_secs());
        crate::stderr::print_line(&format!(
            "tweed: group {group:?}: after {after} s, rank {} still waits for {}{more}; it gives up in {left} s",
            self.known.rank,
            names.join(", ")
        ));
    }

    fn place(&self, descriptor: &PeerDescriptor) -> String {
        match self.connector.descriptor.shares_memory_with(descriptor) {
            true => format!("process {}", descriptor.pid),
            false => descriptor.place(),
        }
    }

    fn name(&self, rank: usize) -> String {
        let descriptor = &self.known.descriptors[rank];
        format!("rank {rank} on {} ({})", descriptor.host, self.place(descriptor))
    }

    fn unreachable(&self, rank: usize, why: &Refusal) -> EngineError {
        let (group, name) = (self.known.group, self.name(rank));
        let descriptor = &self.known.descriptors[rank];
        let text = match why {
            Refusal::Ended => {
                let pid = descriptor.pid;
                return EngineError::PeerLost(format!(
                    "group {group:?}: {name} is gone: its process {pid} ended before the group was made. See its own output, \
                     and start it anew"
                ));
            }
            Refusal::Interrupted => {
                let text = format!("group {group:?}: interrupted while it waited for {name}");
                return EngineError::Aborted(text);
            }
            _ => {
                let (rank, host) = (self.known.rank, &self.connector.descriptor.host);
                format!("group {group:?}: {name} cannot be reached from rank {rank} on {host}: {why}")
            }
        };
        if why.is_final() {
            return EngineError::Usage(text);
        }
        let place = self.place(descriptor);
        EngineError::PeerLost(format!(
            "{text}. Is it still running, and does a firewall let {place} through?"
        ))
    }
}

fn caller(descriptor: &PeerDescriptor) -> Caller {
    Caller { uid: descriptor.uid.clone(), key: descriptor.key() }
}
