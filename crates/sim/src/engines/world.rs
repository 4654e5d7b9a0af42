//! The scheduler: which thread of which process does its next thing, and when time goes on.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use tweed_proto::engine::members::SELF;
use tweed_proto::engine::{Event, Time};

use super::join::Round;
use super::kernel::{CallId, Kernel, ThreadId};
use super::link::Link;
use super::process::{uid, Process};
use super::scenario::{Action, Fault, Happening, Sabotage, Scenario, AHEAD_BYTES, SILENCE};
use super::thread::{Doing, Program, Role, Seat, Sleep, Source, Thread};
use tweed_rng::Rng;

/// A run that takes more is one that never ends.
const MOST_STEPS: u64 = 400_000;
/// After the last caller has ended, so long is waited for all to become quiet.
const SETTLING: Duration = Duration::from_secs(4);

/// What a run was like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Things that threads did.
    pub steps: u64,
    /// Calls that ended well.
    pub well: u64,
    /// Calls that ended with an error.
    pub failed: u64,
    /// The faults that came about in it.
    pub faults: BTreeSet<Fault>,
}

pub(super) struct World {
    pub(super) kernel: Rc<RefCell<Kernel>>,
    pub(super) processes: Vec<Process>,
    pub(super) scenario: Scenario,
    pub(super) now: Time,
    pub(super) rng: Rng,
    pub(super) report: Report,
    /// When the kernel gives up a link that is cut, by which of its ends.
    cuts: Vec<(Time, usize, usize)>,
    pub(super) round: Round,
    pub(super) killed: BTreeMap<usize, Time>,
    pub(super) sabotage: Option<Sabotage>,
}

/// The scenario of a seed, and the rest of its randomness.
pub(super) fn draw(seed: u64) -> (Scenario, Rng) {
    let mut rng = Rng::new(tweed_rng::mix(seed.wrapping_mul(tweed_rng::GOLDEN)));
    (Scenario::draw(&mut rng), rng)
}

/// What went wrong, in words.
pub(super) type Violation = String;

impl World {
    pub(super) fn new(seed: u64, sabotage: Option<Sabotage>) -> World {
        let (scenario, rng) = draw(seed);
        let inner = Rng::new(tweed_rng::mix(seed ^ 0x5eed));
        let kernel = Rc::new(RefCell::new(Kernel::new(&scenario, sabotage, inner)));
        let unbounded = sabotage == Some(Sabotage::NoBackPressure);
        let ahead = if unbounded { u64::MAX / 4 } else { AHEAD_BYTES };
        let process = |me| Process::new(me, &scenario, &kernel, ahead);
        let processes = (0..scenario.hosts.len()).map(process).collect();
        let report = Report { faults: scenario.standing_faults(), ..Report::default() };
        let mut world = World {
            kernel,
            processes,
            scenario,
            now: Time::ZERO,
            rng,
            report,
            cuts: Vec::new(),
            round: Round::default(),
            killed: BTreeMap::new(),
            sabotage,
        };
        world.introduce_all();
        world
    }

    /// Links any two processes, and opens the groups.
    fn introduce_all(&mut self) {
        let all: Vec<usize> = (0..self.processes.len()).collect();
        for (a, b) in all.iter().flat_map(|&a| all[a + 1..].iter().map(move |&b| (a, b))) {
            let attempt = self.processes[a].next_attempt();
            let link = self.kernel.borrow_mut().connect([a, b], attempt);
            [a, b].into_iter().for_each(|end| self.processes[end].add_link(link, &self.kernel));
        }
        for process in &mut self.processes {
            let peer = |&q: &usize| process.directory.find(&uid(q)).map(|known| known.peer);
            let peers: Vec<usize> = all.iter().map(|q| peer(q).unwrap_or(SELF)).collect();
            for group in 0..self.scenario.groups {
                process.open_group(group, &all, peers.clone(), &self.scenario);
            }
        }
    }

    pub(super) fn run(mut self) -> Result<Report, Violation> {
        self.run_all().map_err(|violation| format!("{violation}\n{}", self.dump()))?;
        Ok(self.report)
    }

    fn run_all(&mut self) -> Result<(), Violation> {
        self.run_until(World::callers_have_ended)?;
        self.close_all();
        self.run_until(World::callers_have_ended)?;
        self.regroup()?;
        self.settle()?;
        self.check_quiet()
    }

    pub(super) fn callers_have_ended(&self) -> bool {
        let ended = |thread: &Thread| match &thread.role {
            Role::Caller(_) => thread.sleep == Sleep::Ended,
            Role::Worker(super::thread::Working::Run(_)) => false,
            _ => true,
        };
        let reported =
            |p: &Process| p.calls.iter().all(|call| call.result.is_some() && call.callback.is_none());
        self.processes.iter().filter(|p| p.alive).all(|p| p.threads.iter().all(ended) && reported(p))
    }

    /// Closes what groups are open: those of callbacks.
    fn close_all(&mut self) {
        for process in self.processes.iter_mut().filter(|p| p.alive) {
            let open = (0..self.scenario.groups).filter(|group| !process.closed.contains(group));
            let script = open.map(Action::Close).collect();
            let program = Program { script, doing: Doing::Next };
            process.threads.push(Thread::new(process.threads.len(), Role::Caller(program)));
        }
    }

    pub(super) fn run_until(&mut self, done: impl Fn(&World) -> bool) -> Result<(), Violation> {
        while !done(self) {
            if !self.step()? && !done(self) {
                return Err("hang: nobody can go on".into());
            }
        }
        Ok(())
    }

    /// Lets everything come to rest.
    fn settle(&mut self) -> Result<(), Violation> {
        let end = self.now + SETTLING;
        while self.now < end && self.step()? {}
        Ok(())
    }

    /// A text that says how everything stands.
    fn dump(&self) -> String {
        let kernel = self.kernel.borrow();
        let mut text = format!("at {:?}, {} steps, killed {:?}\n", self.now, self.report.steps, self.killed);
        for p in self.processes.iter().filter(|p| p.alive) {
            let (engine, wakeup) = (p.engine.holdings(), &kernel.processes[p.me].wakeup);
            let Process { me, lock, seat, stopped, sources, .. } = p;
            text += &format!("  process {me}: lock {lock:?} seat {seat:?} stopped {stopped:?} {wakeup:?}\n");
            text += &format!("    engine: {engine}\n    sources: {sources:?}\n");
            for t in &p.threads {
                let driving = t.driving.as_ref().map(|(purpose, _)| purpose);
                text += &format!("    thread {}: {:?} {:?} {driving:?}\n", t.id, t.sleep, t.role);
            }
        }
        text
    }

    /// One thing of one thread, or time goes on. `false` if nothing ever happens again.
    fn step(&mut self) -> Result<bool, Violation> {
        self.happen();
        self.wake_sleepers();
        let mut runnable: Vec<(usize, ThreadId)> = Vec::new();
        for process in self.processes.iter().filter(|p| p.alive && p.stopped.is_none()) {
            let can = |thread: &&Thread| self.can_run(process, thread);
            runnable.extend(process.threads.iter().filter(can).map(|thread| (process.me, thread.id)));
        }
        if runnable.is_empty() {
            return self.advance();
        }
        let chosen = self.rng.index(runnable.len());
        let (process, thread) = runnable[chosen.min(runnable.len() - 1)];
        self.run_thread(process, thread)?;
        if let Some((held, taken)) = self.kernel.borrow().processes[process].locks.circle {
            return Err(format!("lock cycle: process {process} takes {taken:?} while it holds {held:?}, and the other way round"));
        }
        self.now += Duration::from_nanos(self.rng.below(4000));
        self.report.steps += 1;
        if self.report.steps > MOST_STEPS {
            return Err(format!("no end after {MOST_STEPS} steps"));
        }
        Ok(true)
    }

    fn can_run(&self, process: &Process, thread: &Thread) -> bool {
        match thread.sleep {
            Sleep::Awake => !thread.wants_lock() || process.lock.is_none(),
            Sleep::OnEvents => process.sources.iter().any(|&source| self.is_ready(process.me, source)),
            _ => false,
        }
    }

    /// The kernel would tell the watcher of it.
    pub(super) fn is_ready(&self, me: usize, source: Source) -> bool {
        let kernel = self.kernel.borrow();
        match source {
            Source::Stream(from, stream) => {
                kernel.there(me, from).streams[stream].is_readable()
                    || kernel.here(me, from).streams[stream].is_writable_again()
            }
            Source::Process(other) => kernel.here(me, other).end_seen,
        }
    }

    /// Whom time or a ring wakes.
    fn wake_sleepers(&mut self) {
        let mut kernel = self.kernel.borrow_mut();
        for process in self.processes.iter_mut().filter(|p| p.alive && p.stopped.is_none()) {
            let woken = &mut kernel.processes[process.me].wakeup.woken;
            for thread in &mut process.threads {
                let (rung, until) = match thread.sleep {
                    Sleep::OnWakeup(Seat::Waiter, until) => (std::mem::take(&mut woken[0]), until),
                    Sleep::OnWakeup(Seat::Leader, until) => (std::mem::take(&mut woken[1]), until),
                    Sleep::OnCall(call, until) => (process.calls[call].result.is_some(), Some(until)),
                    Sleep::Until(until) => (false, Some(until)),
                    _ => continue,
                };
                if rung || until.is_some_and(|until| until <= self.now) {
                    thread.sleep = Sleep::Awake;
                }
            }
        }
    }

    /// Everybody sleeps: time goes on to when somebody wakes.
    fn advance(&mut self) -> Result<bool, Violation> {
        let mut due: Vec<Time> = self.cuts.iter().map(|&(at, ..)| at).collect();
        for process in self.processes.iter().filter(|p| p.alive) {
            if let Some(until) = process.stopped {
                due.push(until);
                continue;
            }
            self.check_deadline(process)?;
            due.extend(process.threads.iter().filter_map(|thread| match thread.sleep {
                Sleep::OnWakeup(_, until) => until,
                Sleep::OnCall(_, until) | Sleep::Until(until) => Some(until),
                _ => None,
            }));
        }
        let next = due.into_iter().min();
        // Steps of the scheduler at which something happens may not be reached otherwise.
        if let (None, Some(&(at, _))) = (next, self.scenario.events.last()) {
            self.report.steps = self.report.steps.max(at);
            return Ok(true);
        }
        let Some(next) = next.filter(|&next| next < Time::MAX) else { return Ok(false) };
        self.now = self.now.max(next);
        Ok(true)
    }

    /// What the scenario has for this step, and what time has brought.
    fn happen(&mut self) {
        while self.scenario.events.last().is_some_and(|&(at, _)| at <= self.report.steps) {
            let (_, happening) = self.scenario.events.pop().expect("just seen");
            match happening {
                Happening::Kill(process, children) => self.kill(process, children),
                Happening::Stop(process, _) if !self.processes[process].alive => {}
                Happening::Stop(process, time) => {
                    self.report.faults.insert(Fault::Stop);
                    self.processes[process].stopped = Some(self.now + time);
                }
                Happening::Cut(a, b) => self.cut(a, b),
            }
        }
        for process in &mut self.processes {
            process.stopped = process.stopped.filter(|&until| until > self.now);
        }
        let now = self.now;
        let over: Vec<_> = self.cuts.iter().copied().filter(|&(at, ..)| at <= now).collect();
        self.cuts.retain(|&(at, ..)| at > now);
        for (_, link, side) in over {
            // What the other end wrote never came.
            for stream in &mut self.kernel.borrow_mut().links[link].ends[1 - side].streams {
                stream.pipe.clear();
                (stream.cut, stream.ended) = (false, true);
            }
        }
    }

    fn kill(&mut self, process: usize, children: bool) {
        let fault = if children { Fault::KillWithChildren } else { Fault::Kill };
        self.report.faults.insert(fault);
        self.processes[process].alive = false;
        self.killed.insert(process, self.now);
        let mut kernel = self.kernel.borrow_mut();
        kernel.processes[process].alive = false;
        if children && self.sabotage == Some(Sabotage::ChildrenHold) {
            return;
        }
        let of_it = |link: &&mut Link| link.ends.iter().any(|end| end.process == process);
        for link in kernel.links.iter_mut().filter(of_it) {
            link.streams_mut().for_each(|stream| stream.ended = true);
            link.ends.iter_mut().for_each(|end| end.end_seen = link.near);
        }
    }

    /// Nothing gets through any more between two processes. Their kernels give up one after the other.
    fn cut(&mut self, a: usize, b: usize) {
        let joins = |link: &Link| [[a, b], [b, a]].contains(&link.ends.each_ref().map(|end| end.process));
        let mut kernel = self.kernel.borrow_mut();
        let Some(number) = kernel.links.iter().rposition(joins) else { return };
        self.report.faults.insert(Fault::Cut);
        kernel.links[number].streams_mut().for_each(|stream| stream.cut = true);
        for side in 0..2 {
            let more = Duration::from_micros(self.rng.below(400_000));
            self.cuts.push((self.now + SILENCE + more, number, side));
        }
    }

    /// Leaves something for a process's engine, and rings.
    pub(super) fn post(&mut self, process: usize, event: Event<CallId>) {
        let mut kernel = self.kernel.borrow_mut();
        kernel.processes[process].inbox.push(event);
        kernel.processes[process].wakeup.ring_all();
    }
}

#[cfg(test)]
mod tests {
    use tweed_proto::engine::message::{Kind, Message, WHOLE_GROUP};
    use tweed_proto::engine::GroupNumber;

    use super::super::scenario::number_of;
    use super::*;

    /// A run into which each process's peers have sent what could do harm, of a group that the process has closed if
    /// it is not one of this run's.
    fn run_with_stragglers(seed: u64, of: GroupNumber) -> Result<Report, Violation> {
        let mut world = World::new(seed, None);
        let kinds = [Kind::Describe, Kind::Begun, Kind::Note, Kind::Leave, Kind::Failed];
        for process in world.processes.iter_mut() {
            if process.groups.values().all(|(members, _)| members.number != of) {
                process.engine.close_group(of);
            }
            let peers = 0..process.engine.peers.len();
            for (peer, kind) in peers.flat_map(|peer| kinds.map(|kind| (peer, kind))) {
                for op in [0, 1, WHOLE_GROUP] {
                    let message = Message::new(kind, of, op);
                    process.engine.handle_message(peer, message, b"of another epoch".to_vec().into());
                }
            }
        }
        world.run()
    }

    /// Whose hash is the same (`number_of`): only their epochs tell them apart.
    #[test]
    fn nothing_of_the_epoch_before_is_taken_for_this_one() {
        let before = number_of(u32::MAX);
        for seed in 0..300 {
            run_with_stragglers(seed, before).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
        let harmed = (0..300).filter(|&seed| run_with_stragglers(seed, number_of(0)).is_err()).count();
        assert!(
            harmed > 100,
            "of its own epoch it would end runs in which nothing may fail: {harmed} of 300"
        );
    }
}
