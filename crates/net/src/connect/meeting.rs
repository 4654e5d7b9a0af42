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
//! Where neither can call the other, both call a third one (`relayed`), and the pair is found as any is.
//!
//! A firewall may let calls through one way only. Where nothing answers our call, it has ended, and we can be called, the
//! pair is *turned*: the other rank is asked, by `turn`, to call us. So at no time do both call, and there are never two links.
//! A pair is turned once; when that call fails too, or does not come, so does the meeting.
//!
//! Locks: `pending`, then `directory` or the engine, one at a time; `failed` inside of `pending`. Whoever changes what is
//! waited for takes `pending` once before it notifies `met`, so that no change is missed. No lock is held while
//! `interrupted` is asked: it may run code of the caller's.

use std::sync::Arc;
use std::thread::Scope;
use std::time::{Duration, Instant};

use crate::connect::admission::pending::Caller;
use crate::connect::agreement::{Agreement, Way};
use crate::connect::connector::Connector;
use crate::connect::descriptor::PeerDescriptor;
use crate::connect::options::Turn;
use crate::connect::tcp_handshake::{Call, PERSISTENCE};
use crate::framing::Refusal;
use crate::sync::stop::{Stop, SLICE};
use crate::sync::{LockRank, Mutex};
use tweed_proto::engine::{EngineError, Event};

/// A meeting that takes longer, or than an introduction may, says once whom it waits for.
const LONG: Duration = Duration::from_secs(10);
/// So long a call is repeated that nothing answers, where the other rank can be asked to call. The kernel's own repetitions
/// come after one second, then after three.
const TURNED_AFTER: Duration = Duration::from_secs(4);
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
    /// Tells the ranks that this one cannot call, and returns those that cannot call this one; `None`: no pair is turned.
    pub(crate) turn: Option<&'a Turn<'a>>,
}

/// What a meeting knows of the ranks that are missing.
struct Missing {
    begin: Instant,
    /// By rank, its peer.
    found: Vec<Option<usize>>,
    /// By rank: why our call has ended, and until when the other one is waited for.
    turned: Vec<Option<(Refusal, Instant)>>,
    /// By rank, whether it was called because it had asked for it.
    asked: Vec<bool>,
}

impl Missing {
    fn ranks(&self) -> Vec<usize> {
        (0..self.found.len()).filter(|&rank| self.found[rank].is_none()).collect()
    }
}

/// What the calls of a meeting share with the thread that waits.
struct Calls<'a> {
    connector: &'a Arc<Connector>,
    known: &'a Agreement<'a>,
    deadline: Instant,
    /// Whether a rank that does not answer can be asked to call this one.
    turns: bool,
    stop: Stop,
    /// By rank.
    failed: Mutex<Vec<(usize, Refusal)>>,
}

impl Calls<'_> {
    /// Calls that rank; `asked`: because it has asked for it.
    fn call(&self, rank: usize, asked: bool) {
        let (connector, descriptor) = (self.connector, &self.known.descriptors[rank]);
        let (attempt, greet) = (connector.next_attempt(), connector.limits().greet);
        let patience = if self.turns && !asked { TURNED_AFTER.min(greet) } else { PERSISTENCE * greet };
        let call = Call { descriptor, attempt, deadline: self.deadline, patience, stop: &self.stop };
        let called = match self.known.way(self.known.rank as usize, rank) {
            Way::Through(third) => connector.dial_relayed(&call, &self.known.descriptors[third]),
            _ if connector.descriptor.shares_memory_with(descriptor) => connector.dial_neighbour(&call),
            _ => connector.dial_wire(&call),
        };
        if let Err(refusal) = called {
            self.failed.lock().push((rank, refusal));
            connector.notify_met();
        }
    }
}

impl Meeting<'_> {
    /// The peer of each rank; `usize::MAX` stands for this process.
    pub(crate) fn run(&self) -> Result<Vec<usize>, EngineError> {
        self.give_up_broken();
        self.give_up_other_ways();
        self.listen()?;
        let calls = Calls {
            connector: self.connector,
            known: self.known,
            deadline: self.deadline,
            turns: self.can_be_called(),
            stop: Stop::default(),
            failed: Mutex::new(LockRank::Failed, Vec::new()),
        };
        std::thread::scope(|scope| {
            self.start_calls(scope, &calls);
            let met = self.wait(scope, &calls);
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

    /// Nor is a direct one that is listed as missing now, nor one through a third process to who can be called by now. Nor,
    /// where members say what is missing, one through who is a member no more: it may be about to leave, or be silent.
    fn give_up_other_ways(&self) {
        for (rank, descriptor) in self.others().filter(|(_, d)| self.connector.descriptor.is_far(d)) {
            let Some(peer) = self.connector.find(&descriptor.uid) else { continue };
            let relay = self.connector.driver.engine.lock().host.links[peer].relay.clone();
            let is_here = |uid: &String| self.known.descriptors.iter().any(|d| d.uid == *uid);
            let fits = match (self.way(rank), &relay) {
                (Way::Direct, relay) => relay.is_none(),
                (Way::Through(_), None) => false,
                (Way::Through(_), Some(uid)) => self.known.missing.is_empty() || is_here(uid),
                (Way::None, _) => true,
            };
            if !fits && self.connector.directory.lock().give_up(&descriptor.uid, u64::MAX).is_some() {
                let why = "its link was made anew, as another way is to be taken now";
                self.connector.driver.post(Event::Lost(peer, why.into()));
            }
        }
    }

    /// How that rank is reached.
    pub(super) fn way(&self, rank: usize) -> Way {
        self.known.way(self.known.rank as usize, rank)
    }

    /// Whether this one begins: it calls that rank, or, as that one does too, a third one.
    fn begins(&self, rank: usize) -> bool {
        match self.way(rank) {
            Way::Direct => self.connector.calls(&self.known.descriptors[rank]),
            Way::Through(_) => true,
            Way::None => false,
        }
    }

    /// Listens if anybody has to call this process over TCP.
    fn listen(&self) -> Result<(), EngineError> {
        let comes = |rank: usize, descriptor: &PeerDescriptor| {
            self.connector.descriptor.is_far(descriptor)
                && self.way(rank) == Way::Direct
                && !self.begins(rank)
        };
        let is_called = || self.others().any(|(rank, c)| comes(rank, c));
        match &self.connector.listener {
            Some(listener) if is_called() || self.known.is_relay(self.known.rank as usize) => {
                listener.listen().map_err(|e| EngineError::setup("the engine cannot listen", e))
            }
            _ => Ok(()),
        }
    }

    fn start_calls<'s>(&self, scope: &'s Scope<'s, '_>, calls: &'s Calls<'_>) {
        let ours =
            self.others().filter(|(rank, c)| self.begins(*rank) && self.connector.find(&c.uid).is_none());
        let (near, far): (Vec<_>, Vec<_>) =
            ours.partition(|(_, c)| self.connector.descriptor.shares_memory_with(c));
        if !near.is_empty() {
            let near: Vec<usize> = near.into_iter().map(|(rank, _)| rank).collect();
            scope.spawn(move || near.into_iter().for_each(|rank| calls.call(rank, false)));
        }
        for (rank, _) in far {
            scope.spawn(move || calls.call(rank, false));
        }
    }

    /// Whether another rank may be asked to call this one.
    fn can_be_called(&self) -> bool {
        self.turn.is_some() && self.connector.listener.is_some()
    }

    fn wait<'s>(&self, scope: &'s Scope<'s, '_>, calls: &'s Calls<'_>) -> Result<Vec<usize>, EngineError> {
        let ranks = self.known.descriptors.len();
        let mut missing = Missing {
            begin: Instant::now(),
            found: vec![None; ranks],
            turned: vec![None; ranks],
            asked: vec![false; ranks],
        };
        missing.found[self.known.rank as usize] = Some(usize::MAX);
        let long = LONG.min(self.connector.limits().greet);
        let (mut warned, mut checked, mut rounds) = (false, None::<Instant>, 0);
        loop {
            self.look(calls, &mut missing)?;
            if let Some(peers) = missing.found.iter().copied().collect() {
                return Ok(peers);
            }
            // Where hundreds meet, somebody comes every few microseconds.
            if checked.is_none_or(|last| last.elapsed() >= SLICE) {
                self.check(&missing, rounds)?;
                self.call_who_asks(scope, calls, &mut missing);
                (checked, rounds) = (Some(Instant::now()), rounds + 1);
            }
            if !warned && missing.begin.elapsed() > long {
                warned = true;
                self.warn(&missing.ranks());
            }
        }
    }

    /// Tells whom this rank cannot call, and calls those that cannot call it.
    fn call_who_asks<'s>(&self, scope: &'s Scope<'s, '_>, calls: &'s Calls<'_>, missing: &mut Missing) {
        let Some(turn) = self.turn else { return };
        let absent = missing.ranks();
        let unreached: Vec<u32> =
            absent.iter().filter(|&&rank| missing.turned[rank].is_some()).map(|&rank| rank as u32).collect();
        for rank in turn(&unreached).into_iter().map(|rank| rank as usize) {
            // It calls us by the rule, and was not called by us: its own call is over.
            let new = absent.contains(&rank) && !missing.asked[rank];
            let descriptor = self.known.descriptors.get(rank).filter(|_| new);
            if descriptor.is_some_and(|d| !self.connector.calls(d) && self.connector.descriptor.is_far(d)) {
                missing.asked[rank] = true;
                scope.spawn(move || calls.call(rank, true));
            }
        }
    }

    /// Notes who is found by now. If nobody new is, waits for a slice or for a change.
    fn look(&self, calls: &Calls<'_>, missing: &mut Missing) -> Result<(), EngineError> {
        let mut pending = self.connector.pending.lock();
        let mut came = Vec::new();
        let mut any = false;
        for (rank, descriptor) in self.others() {
            if let Some((attempt, links)) = pending.take(&caller(descriptor)) {
                came.push((rank, descriptor, attempt, links));
            } else if missing.found[rank].is_none() {
                missing.found[rank] = self.connector.find(&descriptor.uid);
                any |= missing.found[rank].is_some();
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
                Ok(peer) => missing.found[rank] = Some(peer),
                Err(Refusal::Outdated) => {}
                Err(why) => return Err(self.unreachable(rank, &why)),
            }
        }
        match failed {
            // Its own call may have replaced ours meanwhile.
            Some((rank, why)) if missing.found[rank].is_none() => self.turned(rank, why, missing),
            _ => Ok(()),
        }
    }

    /// Our call to that rank has failed: it is to call us, if that may help.
    fn turned(&self, rank: usize, why: Refusal, missing: &mut Missing) -> Result<(), EngineError> {
        let greet = self.connector.limits().greet;
        let wait = match &why {
            Refusal::Unanswered | Refusal::System(_) => (PERSISTENCE + 1) * greet,
            Refusal::Deaf => greet, // its process may have ended, or a firewall says so
            _ => Duration::ZERO,
        };
        let far = self.connector.descriptor.is_far(&self.known.descriptors[rank]);
        let turns = self.way(rank) == Way::Direct && far && self.can_be_called();
        if wait.is_zero() || missing.asked[rank] || !turns {
            return Err(self.unreachable(rank, &why));
        }
        if let Some(listener) = &self.connector.listener {
            listener.listen().map_err(|e| EngineError::setup("the engine cannot listen", e))?;
        }
        missing.turned[rank] = Some((why, Instant::now() + wait));
        Ok(())
    }

    /// Whether the ranks that are missing can still be waited for.
    fn check(&self, known: &Missing, round: usize) -> Result<(), EngineError> {
        let own = &self.connector.descriptor;
        let missing = &known.ranks();
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
        for &rank in missing {
            if let Some((why, _)) = known.turned[rank].as_ref().filter(|(_, until)| now >= *until) {
                return Err(self.unreachable(rank, why));
            }
        }
        let over =
            |&&rank: &&usize| now >= self.deadline + if self.begins(rank) { GRACE } else { Duration::ZERO };
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
}

fn caller(descriptor: &PeerDescriptor) -> Caller {
    Caller { uid: descriptor.uid.clone(), key: descriptor.key() }
}
