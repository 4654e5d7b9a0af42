//! What a thread does in one step: how it drives the engine, and what workers do between. `callers` has the rest.
//!
//! The live counterparts are `driving` and `callbacks` of `tweed-net`: the decisions are the same machines, and so is the
//! order of what is done.

use std::collections::VecDeque;

use tweed_proto::engine::driving::{Sleeper, Task, Wake};
use tweed_proto::engine::{Address, Ended, Event, Job, Step, Time};

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
            Role::Caller(program) => Role::Caller(match self.run_program(p, t, program)? {
                Some(program) => program,
                None => {
                    self.processes[p].threads[t].sleep = Sleep::Ended;
                    Program { script: VecDeque::new(), doing: Doing::Next }
                }
            }),
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
            Driving::Report { ended, needs, deadline, oversleeps } => {
                let driven = Driven { needs, deadline, oversleeps, ended: false, callbacks: vec![] };
                self.report_ended(p, t, ended, driven);
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

    /// Gives the callers the results of what has ended, and notes it beside what this thread has driven before.
    fn report_ended(&mut self, p: usize, t: ThreadId, ended: Vec<Ended<CallId>>, mut driven: Driven) {
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
        Driving::Report { ended, needs, deadline, oversleeps }
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

    pub(super) fn hand_over(&mut self, p: usize, callbacks: Vec<Callback>) {
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

    pub(super) fn has_messages(&self, p: usize) -> bool {
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
        (seen, reads, until): (u32, bool, Option<Time>),
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
