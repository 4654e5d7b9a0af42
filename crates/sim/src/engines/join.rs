//! How the processes that are left meet again once the scripts have ended, as programs do after an error: over the links
//! that stand, and over new ones where they have broken. Then they reduce once more, and must get it right.
//!
//! The live counterparts are `meeting` and `discovery` of `tweed-net`; the directory of links is the same machine.

use std::collections::BTreeMap;
use std::time::Duration;

use tweed_proto::engine::members::SELF;
use tweed_proto::engine::{Event, Time};

use super::kernel::ThreadId;
use super::link::Link;
use super::locks::Lock;
use super::process::{uid, Process};
use super::scenario::{number_of, Action, Kind, Op, Sabotage, DEADLINE, MOST_NUMEL};
use super::thread::{Doing, Program, Role, Sleep, Thread};
use super::world::{Violation, World};

/// Links that are cut are noticed one after the other, and until then a round may fail.
const MOST_ROUNDS: usize = 10;
/// How often somebody who joins looks again.
const SLICE: Duration = Duration::from_millis(1);

/// How far a thread has come with joining.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joining {
    /// Puts into the store which links it has lost.
    Publish,
    /// Waits for what all others have put there, and gives up what they have lost.
    GiveUp,
    /// Calls those whom it has to call.
    Call,
    /// Waits for those who call it.
    Look,
    /// Opens an endpoint for packets.
    Endpoint,
    /// Opens the group of those that met.
    Open,
}

/// A group of those that are left.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) group: u32,
    pub(super) op: usize,
    /// The process behind each rank.
    pub(super) members: Vec<usize>,
    /// The links that each process has lost, as its descriptor says.
    broken: BTreeMap<usize, Vec<(String, u64)>>,
    /// The processes that each process has found, by rank.
    found: BTreeMap<usize, Vec<usize>>,
    until: Time,
}

impl World {
    /// Has the survivors form a group and use it, until one comes about.
    pub(super) fn regroup(&mut self) -> Result<(), Violation> {
        for _ in 0..MOST_ROUNDS {
            if !self.begin_round() {
                return Ok(());
            }
            self.run_until(World::callers_have_ended)?;
            let Round { op, members, .. } = &self.round;
            let well = |&q: &usize| {
                let p = &self.processes[q];
                p.call_of.get(op).is_some_and(|&call| p.calls[call].result == Some(Ok(())))
            };
            if members.iter().all(well) {
                return Ok(());
            }
        }
        Err(format!("the survivors do not come together in {MOST_ROUNDS} rounds"))
    }

    /// `false` if there are not two of them.
    fn begin_round(&mut self) -> bool {
        let members: Vec<usize> = self.processes.iter().filter(|p| p.alive).map(|p| p.me).collect();
        if members.len() < 2 {
            return false;
        }
        let (op, group) = (self.scenario.ops.len(), self.scenario.groups);
        self.scenario.groups += 1;
        let kind = Kind::AllReduce(["direct", "ring", "star"][self.rng.index(3)]);
        let numel = 1 + self.rng.below(MOST_NUMEL - 1);
        self.scenario.ops.push(Op { group, kind, numel, ..Op::default() });
        for &q in &members {
            let threads = &mut self.processes[q].threads;
            let script = [Action::Join, Action::Submit(op), Action::Wait(op), Action::Close(group)];
            let program = Program { script: script.into(), doing: Doing::Next };
            threads.push(Thread::new(threads.len(), Role::Caller(program)));
        }
        self.round = Round { group, op, members, until: self.now + DEADLINE, ..Round::default() };
        true
    }

    /// One step of joining. Who cannot join in time makes no call either.
    pub(super) fn join(&mut self, p: usize, t: ThreadId, joining: Joining, program: &mut Program) {
        program.doing = match self.join_on(p, joining) {
            Some(next) => next.map_or(Doing::Next, Doing::Join),
            None if self.now < self.round.until => {
                self.processes[p].threads[t].sleep = Sleep::Until(self.now + SLICE);
                Doing::Join(joining)
            }
            None => {
                self.processes[p].engine.close_group(number_of(self.round.group));
                program.script.clear();
                Doing::Next
            }
        };
    }

    /// What comes next, `Some(None)` at the end; `None` if it has to wait.
    fn join_on(&mut self, p: usize, joining: Joining) -> Option<Option<Joining>> {
        Some(Some(match joining {
            Joining::Publish => {
                let Process { directory, engine, .. } = &self.processes[p];
                let broken = directory.broken(|peer| engine.peers.is_lost(peer));
                self.round.broken.insert(p, broken);
                Joining::GiveUp
            }
            Joining::GiveUp => {
                if self.round.broken.len() < self.round.members.len() {
                    return None;
                }
                self.give_up(p);
                Joining::Call
            }
            Joining::Call => {
                self.call(p);
                Joining::Look
            }
            Joining::Look => {
                self.kernel.borrow_mut().processes[p].locks.note(Lock::Pending, Lock::Engine);
                self.answer(p);
                let peer = |&q: &usize| if q == p { Some(SELF) } else { self.find(p, q) };
                let peers = self.round.members.iter().map(peer).collect::<Option<Vec<usize>>>()?;
                self.round.found.insert(p, peers);
                Joining::Endpoint
            }
            Joining::Endpoint => {
                if self.sabotage == Some(Sabotage::LockOrder) {
                    self.kernel.borrow_mut().processes[p].locks.note(Lock::Endpoints, Lock::Engine);
                }
                Joining::Open
            }
            Joining::Open => {
                let Round { group, members, found, .. } = &self.round;
                self.processes[p].open_group(*group, members, found[&p].clone(), &self.scenario);
                return Some(None);
            }
        }))
    }

    /// Gives up the links that another has lost, or that it says this one has.
    fn give_up(&mut self, p: usize) {
        if self.sabotage == Some(Sabotage::NeverMends) {
            return;
        }
        let own = uid(p);
        let others = self.round.broken.iter().filter(|&(&q, _)| q != p);
        let links = others.flat_map(|(&q, broken)| broken.iter().map(move |(to, attempt)| (q, to, *attempt)));
        let lost = links.filter(|(_, to, _)| **to == own).map(|(q, _, attempt)| (q, attempt));
        for (q, attempt) in lost.collect::<Vec<_>>() {
            if let Some(peer) = self.processes[p].directory.give_up(&uid(q), attempt) {
                self.post(p, Event::Lost(peer, "its other end has lost the connection".into()));
            }
        }
    }

    /// The link of a process to another that stands.
    fn find(&self, p: usize, q: usize) -> Option<usize> {
        let process = &self.processes[p];
        let peer = process.directory.find(&uid(q))?.peer;
        let stands = !process.engine.peers.is_lost(peer) || self.sabotage == Some(Sabotage::NeverMends);
        stands.then_some(peer)
    }

    /// Calls the others: of two processes, the one with the lower number calls.
    fn call(&mut self, p: usize) {
        for q in self.round.members.clone().into_iter().filter(|&q| q > p) {
            if self.find(p, q).is_some() || !self.processes[q].alive {
                continue;
            }
            let attempt = self.processes[p].next_attempt();
            let link = self.kernel.borrow_mut().connect([p, q], attempt);
            self.processes[p].add_link(link, &self.kernel);
        }
    }

    /// Takes the calls of others: the latest of each.
    fn answer(&mut self, p: usize) {
        let links: Vec<usize> = {
            let kernel = self.kernel.borrow();
            let waits = |link: &&Link| link.ends[1].process == p && link.ends[1].peer.is_none();
            let all = (0..).zip(&kernel.links);
            all.filter(|(_, link)| waits(link)).map(|(number, _)| number).collect()
        };
        links.into_iter().for_each(|link| self.processes[p].add_link(link, &self.kernel));
    }
}
