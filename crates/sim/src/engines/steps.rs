//! What a thread does in one step. The live counterparts are `driving` and `callbacks` of `tweed-net`: the
//! decisions are the same machines, and so is the order of what is done.

use std::collections::VecDeque;
use std::time::Duration;

use tweed_proto::engine::driving::{Sleeper, Task, WaitStep, Waiter, Wake};
use tweed_proto::engine::{Address, Ended, Event, Job, Step};

use super::join::Joining;
use super::kernel::{CallId, Kernel, ThreadId};
use super::locks::Lock;
use super::scenario::{Action, Fault, Sabotage};
use super::thread::*;
use super::world::{Violation, World};

impl World {
    pub(super) fn run_thread(&mut self, p: usize, t: ThreadId) -> Result<(), Violation> {
        if let Some((purpose, driving)) = self.processes[p].threads[t].driving.take() {
            let next = self.drive(p, t, purpose, driving);
            self.processes[p].threads[t].driving = next.map(|driving| (purpose, driving));
            return Ok(());
        }
        let role = std::mem::replace(&mut self.processes[p].threads[t].role, Role::Watcher(Watching::Idle));
        let role = match role {
            Role::Caller(program) => match self.run_program(p, t, program)? {
                Some(program) => Role::Caller(program),
                None => {
                    self.processes[p].threads[t].sleep = Sleep::Ended;
                    Role::Caller(Program { script: VecDeque::new(), doing: Doing::Next })
                }
            },
            Role::Worker(working) => Role::Worker(self.work(p, t, working)?),
            Role::Watcher(watching) => Role::Watcher(self.watch(p, t, watching)?),
        };
        self.processes[p].threads[t].role = role;
        Ok(())
    }

    // Driving.

    pub(super) fn start_driving(&mut self, p: usize, t: ThreadId, purpose: Purpose, locked: bool) {
        let driving = if locked { Driving::Step } else { Driving::Lock };
        self.processes[p].threads[t].driving = Some((purpose, driving));
    }

    /// One step of driving; `None` when it is over and its outcome lies in `driven`.
    fn drive(&mut self, p: usize, t: ThreadId, purpose: Purpose, driving: Driving) -> Option<Driving> {
        match driving {
            Driving::Lock => {
                if matches!(purpose, Purpose::Waiter(_)) {
                    self.kernel.borrow_mut().processes[p].locks.note(Lock::Seat, Lock::Engine);
                }
                self.processes[p].lock = Some(t);
                Some(Driving::Step)
            }
            Driving::Step => match self.processes[p].engine.step(self.now) {
                Step::Compute(job) => Some(Driving::Read(job)),
                Step::Idle => Some(self.unlock(p, purpose)),
            },
            Driving::Read(job) => {
                let values = self.compute(&job);
                Some(Driving::Write(job, values))
            }
            Driving::Write(job, values) => {
                self.finish(p, job, &values);
                Some(Driving::Step)
            }
            Driving::Tell { ended, needs, deadline, oversleeps } => {
                self.tell(
                    p,
                    t,
                    ended,
                    Driven { needs, deadline, oversleeps, ended: false, callbacks: vec![] },
                );
                let unsealed = std::mem::take(&mut self.kernel.borrow_mut().processes[p].unsealed);
                (!unsealed.is_empty()).then_some(Driving::Seal(unsealed, Vec::new()))
            }
            Driving::Seal(mut streams, mut left) => {
                let mut kernel = self.kernel.borrow_mut();
                if let Some((peer, stream)) = streams.pop_first() {
                    left.extend(kernel.flush(p, peer, stream));
                    return Some(Driving::Seal(streams, left));
                }
                let any = !left.is_empty();
                any.then(|| kernel.processes[p].inbox.push(Event::Left(left)));
                any.then_some(Driving::Lock)
            }
        }
    }

    /// Tells the callers of what has ended, and notes it beside what this thread has driven before.
    fn tell(&mut self, p: usize, t: ThreadId, ended: Vec<Ended<CallId>>, mut driven: Driven) {
        let process = &mut self.processes[p];
        if let Some(before) = process.threads[t].driven.take() {
            (driven.ended, driven.callbacks) = (before.ended, before.callbacks);
        }
        driven.ended |= !ended.is_empty();
        for end in ended {
            let call = &mut process.calls[end.call];
            call.result = Some(end.result);
            driven.callbacks.extend(call.callback.take());
        }
        if !driven.callbacks.is_empty() {
            self.report.faults.insert(Fault::WaitingCallback);
        }
        process.threads[t].driven = Some(driven);
    }

    fn unlock(&mut self, p: usize, purpose: Purpose) -> Driving {
        let sabotaged = self.sabotage == Some(Sabotage::LostDeadline);
        let process = &mut self.processes[p];
        let engine = &mut process.engine;
        let (ended, needs, deadline) = (engine.take_ended(), engine.needs(), engine.next_deadline());
        engine.take_lines();
        match purpose {
            Purpose::Leader => engine.turns.arm(Sleeper::Leader, deadline),
            Purpose::Waiter(most) => {
                engine.turns.arm(Sleeper::Waiter, Some(deadline.map_or(most, |d| d.min(most))));
            }
            Purpose::Others => {}
        }
        let oversleeps = engine.turns.oversleeps(deadline) && !sabotaged;
        process.lock = None;
        Driving::Tell { ended, needs, deadline, oversleeps }
    }

    /// Reads the sources: what they hold at this moment is what counts.
    pub(super) fn compute(&self, job: &Job) -> Vec<u8> {
        let kernel = self.kernel.borrow();
        let mut values = job.sources.iter().map(|source| kernel_read(&kernel, source.at, job.bytes));
        let first = values.next().unwrap_or_default();
        values.fold(first, |sum, value| add(&sum, &value))
    }

    pub(super) fn finish(&mut self, p: usize, job: Job, values: &[u8]) {
        let mut kernel = self.kernel.borrow_mut();
        job.targets.iter().for_each(|target| kernel.write(p, target.at, values));
        drop(kernel);
        self.processes[p].engine.handle_computed(job);
    }

    /// What a thread that does not sleep on the wake-up does after it has driven.
    pub(super) fn after_others(&mut self, p: usize, driven: Driven) {
        let attended = self.kernel.borrow().processes[p].wakeup.attended;
        if driven.oversleeps || (driven.ended && attended) {
            self.kernel.borrow_mut().processes[p].wakeup.ring_all();
        }
        self.hand_over(p, driven.callbacks);
    }

    fn hand_over(&mut self, p: usize, callbacks: Vec<Callback>) {
        for callback in callbacks {
            let wake = self.processes[p].workers.add(callback);
            self.wake_worker(p, wake);
        }
    }

    fn wake_worker(&mut self, p: usize, wake: Wake) {
        let threads = &mut self.processes[p].threads;
        match wake {
            Wake::Nobody => {}
            Wake::Resting => {
                let resting = threads.iter_mut().find(|thread| thread.sleep == Sleep::Resting);
                resting.expect("one rests").sleep = Sleep::Awake;
            }
            Wake::New => threads.push(Thread::new(threads.len(), Role::Worker(Working::Next))),
        }
    }

    pub(super) fn take_driven(&mut self, p: usize, t: ThreadId) -> Option<Driven> {
        self.processes[p].threads[t].driven.take()
    }

    fn has_messages(&self, p: usize) -> bool {
        let kernel = self.kernel.borrow();
        (0..kernel.processes[p].peers.len()).any(|peer| !kernel.here(p, peer).queue.is_empty())
    }

    // Workers.

    fn work(&mut self, p: usize, t: ThreadId, working: Working) -> Result<Working, Violation> {
        match working {
            Working::Next => Ok(match self.processes[p].workers.next_task() {
                Task::Lead => Working::Lead(0),
                Task::Run(callback) => self.callback(callback),
                Task::Rest | Task::Stop => {
                    self.processes[p].threads[t].sleep = Sleep::Resting;
                    Working::Next
                }
            }),
            Working::Lead(seen) => Ok(match self.take_driven(p, t) {
                Some(driven) => self.after_leading(p, seen, driven),
                None => {
                    let count = self.kernel.borrow().processes[p].wakeup.count;
                    self.start_driving(p, t, Purpose::Leader, false);
                    Working::Lead(count)
                }
            }),
            Working::LeadSleep { seen, reads, until, dozing } => {
                Ok(self.doze_as_leader(p, t, (seen, reads, until), dozing))
            }
            Working::Run(program) => Ok(self.run_program(p, t, program)?.map_or(Working::Next, Working::Run)),
        }
    }

    fn callback(&self, callback: Callback) -> Working {
        let script = VecDeque::from([Action::Submit(callback.op), Action::Wait(callback.op)]);
        Working::Run(Program { script, doing: Doing::Next })
    }

    fn after_leading(&mut self, p: usize, seen: u32, driven: Driven) -> Working {
        if driven.ended && self.kernel.borrow().processes[p].wakeup.attended {
            self.kernel.borrow_mut().processes[p].wakeup.ring_all();
        }
        match &driven.callbacks[..] {
            [] => {
                let (reads, until) = (driven.needs.is_none(), driven.deadline);
                Working::LeadSleep { seen, reads, until, dozing: Dozing::Awake }
            }
            [callback, ..] if self.sabotage == Some(Sabotage::CallbacksOnLeader) => self.callback(*callback),
            _ => self.step_down(p, driven.callbacks),
        }
    }

    fn step_down(&mut self, p: usize, callbacks: Vec<Callback>) -> Working {
        let (callback, wake) = self.processes[p].workers.step_down(callbacks);
        self.wake_worker(p, wake);
        callback.map_or(Working::Lead(0), |callback| self.callback(callback))
    }

    fn doze_as_leader(
        &mut self,
        p: usize,
        t: ThreadId,
        (seen, reads, until): (u32, bool, Option<tweed_proto::engine::Time>),
        dozing: Dozing,
    ) -> Working {
        let pending = reads && self.has_messages(p);
        let mut kernel = self.kernel.borrow_mut();
        let wakeup = &mut kernel.processes[p].wakeup;
        match dozing {
            Dozing::Awake => {
                wakeup.leader = Some(reads);
                Working::LeadSleep { seen, reads, until, dozing: Dozing::Marked }
            }
            Dozing::Marked if !pending && wakeup.count == seen => {
                self.processes[p].threads[t].sleep = Sleep::OnWakeup(Seat::Leader, until);
                Working::LeadSleep { seen, reads, until, dozing: Dozing::Asleep }
            }
            Dozing::Marked | Dozing::Asleep => {
                (wakeup.leader, wakeup.woken[1]) = (None, false);
                drop(kernel);
                self.step_down(p, Vec::new())
            }
        }
    }

    // Callers, and callbacks.

    /// One step of a script; `None` at its end.
    fn run_program(
        &mut self,
        p: usize,
        t: ThreadId,
        mut program: Program,
    ) -> Result<Option<Program>, Violation> {
        program.doing = match program.doing {
            Doing::Next => match program.script.pop_front() {
                None => return Ok(None),
                Some(action) => self.act(p, t, action),
            },
            Doing::SetOff => {
                if let Some(driven) = self.take_driven(p, t) {
                    self.after_others(p, driven);
                    Doing::Next
                } else if self.processes[p].lock.is_none() && self.rng.uniform() < 0.7 {
                    self.processes[p].lock = Some(t);
                    self.start_driving(p, t, Purpose::Others, true);
                    Doing::SetOff
                } else {
                    self.kernel.borrow_mut().processes[p].wakeup.ring_all();
                    Doing::Next
                }
            }
            Doing::Wait(wait) => self.wait(p, t, wait)?,
            Doing::Leave(wait) => self.leave(p, t, wait),
            Doing::Close(group) => self.close(p, t, group),
            Doing::Join(joining) => {
                self.join(p, t, joining, &mut program);
                return Ok(Some(program));
            }
        };
        Ok(Some(program))
    }

    fn act(&mut self, p: usize, t: ThreadId, action: Action) -> Doing {
        match action {
            Action::Submit(op) => {
                let spec = self.scenario.ops[op].clone();
                let draft = self.processes[p].draft(op, &spec, self.now, &self.kernel);
                self.kernel.borrow_mut().processes[p].inbox.push(Event::Submit(draft));
                if spec.blocking {
                    Doing::Next
                } else {
                    Doing::SetOff
                }
            }
            Action::Wait(op) => {
                let call = self.processes[p].call_of[&op];
                let waiter = Waiter::new(self.now + Duration::from_secs(3600));
                Doing::Wait(Wait { call, waiter, seen: (0, None, self.now), dozing: Dozing::Awake })
            }
            Action::Sleep(time) => {
                self.processes[p].threads[t].sleep = Sleep::Until(self.now + time);
                Doing::Next
            }
            Action::Abort(group) => {
                self.report.faults.insert(Fault::Abort);
                self.post(p, Event::Abort(group, "a test aborts it".into()));
                Doing::Next
            }
            Action::Close(group) => Doing::Close(group),
            Action::Join => Doing::Join(Joining::Tell),
        }
    }

    fn wait(&mut self, p: usize, t: ThreadId, mut wait: Wait) -> Result<Doing, Violation> {
        let ended = |world: &World, call: CallId| world.processes[p].calls[call].result.is_some();
        match wait.waiter.step() {
            WaitStep::Look => wait.waiter.handle_look(ended(self, wait.call), self.now),
            WaitStep::TrySeat => {
                let free = self.processes[p].seat.is_none();
                if free {
                    self.processes[p].seat = Some(t);
                    self.kernel.borrow_mut().processes[p].wakeup.attended = true;
                }
                wait.waiter.handle_seat(free);
            }
            WaitStep::Announce => self.announce(p, t, &mut wait),
            WaitStep::Park(until) if wait.dozing == Dozing::Awake && !ended(self, wait.call) => {
                wait.dozing = Dozing::Asleep;
                self.processes[p].threads[t].sleep = Sleep::OnCall(wait.call, until);
            }
            WaitStep::Park(_) => {
                wait.dozing = Dozing::Awake;
                wait.waiter.handle_slept(true);
            }
            WaitStep::Drive(until) => match self.take_driven(p, t) {
                None => {
                    wait.seen.0 = self.kernel.borrow().processes[p].wakeup.count;
                    self.start_driving(p, t, Purpose::Waiter(until), false);
                }
                Some(driven) => {
                    wait.seen.1 = driven.needs;
                    wait.seen.2 = driven.deadline.map_or(until, |d| d.min(until));
                    self.hand_over(p, driven.callbacks);
                    wait.waiter.handle_driven(ended(self, wait.call));
                }
            },
            WaitStep::Sleep => self.doze_as_waiter(p, t, &mut wait),
            WaitStep::Leave => {
                self.kernel.borrow_mut().processes[p].wakeup.attended = false;
                return Ok(Doing::Leave(wait));
            }
            WaitStep::Done(_) => {
                self.judge(p, wait.call)?;
                return Ok(Doing::Next);
            }
        }
        Ok(Doing::Wait(wait))
    }

    fn announce(&mut self, p: usize, t: ThreadId, wait: &mut Wait) {
        if self.sabotage == Some(Sabotage::SilentPark) {
            return wait.waiter.handle_announced();
        }
        if let Some(driven) = self.take_driven(p, t) {
            self.after_others(p, driven);
            wait.waiter.handle_announced();
        } else if self.processes[p].lock.is_none() {
            self.processes[p].lock = Some(t);
            self.start_driving(p, t, Purpose::Others, true);
        } else {
            self.kernel.borrow_mut().processes[p].wakeup.ring_all();
            wait.waiter.handle_announced();
        }
    }

    fn doze_as_waiter(&mut self, p: usize, t: ThreadId, wait: &mut Wait) {
        let (seen, needs, until) = wait.seen;
        let target = seen.wrapping_add(needs.unwrap_or(1));
        let pending = needs.is_none() && self.has_messages(p);
        let mut kernel = self.kernel.borrow_mut();
        let wakeup = &mut kernel.processes[p].wakeup;
        match wait.dozing {
            Dozing::Awake => {
                wakeup.waiter = Some((target, needs.is_none()));
                wait.dozing = Dozing::Marked;
            }
            Dozing::Marked if !pending && (wakeup.count.wrapping_sub(target) as i32) < 0 => {
                self.processes[p].threads[t].sleep = Sleep::OnWakeup(Seat::Waiter, Some(until));
                wait.dozing = Dozing::Asleep;
            }
            Dozing::Marked | Dozing::Asleep => {
                (wakeup.waiter, wakeup.woken[0]) = (None, false);
                wait.dozing = Dozing::Awake;
                wait.waiter.handle_slept(true);
            }
        }
    }

    /// The mark is off: looks once more, and gives the seat free.
    fn leave(&mut self, p: usize, t: ThreadId, mut wait: Wait) -> Doing {
        let driven = self.take_driven(p, t);
        if driven.is_none() {
            let count = self.kernel.borrow().processes[p].wakeup.count;
            let process = &mut self.processes[p];
            process.lock = Some(t);
            process.engine.turns.disarm(Sleeper::Waiter);
            let due = process.engine.next_deadline();
            let oversleeps =
                process.engine.turns.oversleeps(due) && self.sabotage != Some(Sabotage::LostDeadline);
            if count != wait.seen.0 || oversleeps {
                self.start_driving(p, t, Purpose::Others, true);
                return Doing::Leave(wait);
            }
            process.lock = None;
        }
        driven.into_iter().for_each(|driven| self.after_others(p, driven));
        self.processes[p].seat = None;
        wait.waiter.handle_left();
        Doing::Wait(wait)
    }

    fn close(&mut self, p: usize, t: ThreadId, group: u32) -> Doing {
        if let Some(driven) = self.take_driven(p, t) {
            self.after_others(p, driven);
            return Doing::Next;
        }
        let process = &mut self.processes[p];
        process.lock = Some(t);
        while let Step::Compute(job) = self.processes[p].engine.step(self.now) {
            let values = self.compute(&job);
            self.finish(p, job, &values);
        }
        self.processes[p].engine.close_group(group);
        self.processes[p].closed.insert(group);
        self.start_driving(p, t, Purpose::Others, true);
        Doing::Close(group)
    }
}

fn kernel_read(kernel: &Kernel, at: Address, bytes: u64) -> Vec<u8> {
    if Kernel::owns(at) {
        return kernel.read(at, bytes);
    }
    // SAFETY: what came over a wire and has no place yet lies in a buffer of the engine, which keeps it until the job
    // that uses it is done.
    unsafe { std::slice::from_raw_parts(at.as_ptr(), bytes as usize) }.to_vec()
}

fn add(a: &[u8], b: &[u8]) -> Vec<u8> {
    let word = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let sums = a.chunks_exact(8).zip(b.chunks_exact(8)).map(|(a, b)| word(a).wrapping_add(word(b)));
    sums.flat_map(i64::to_le_bytes).collect()
}
