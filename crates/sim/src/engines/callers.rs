//! What a caller does in one step of its script, and a callback in one of its own: it starts operations, and waits for them.
//!
//! The live counterparts are `Group::submit` and `Driver::wait` of `tweed-net`. A wait takes several steps, so that others
//! act between its last look and its sleep: there wake-ups get lost, where they do.

use std::time::Duration;

use tweed_proto::engine::driving::{Sleeper, WaitStep, Waiter};
use tweed_proto::engine::{Event, Step};

use super::join::Joining;
use super::kernel::{CallId, ThreadId};
use super::scenario::{number_of, Action, Fault, Sabotage};
use super::thread::*;
use super::world::{Violation, World};

impl World {
    /// One step of a script; `None` at its end.
    pub(super) fn run_program(
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
                // A caller that waits at once drives by itself.
                match spec.blocking {
                    true => Doing::Next,
                    false => Doing::SetOff,
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
                self.post(p, Event::Abort(number_of(group), "a test aborts it".into()));
                Doing::Next
            }
            Action::Close(group) => Doing::Close(group),
            Action::Join => Doing::Join(Joining::Publish),
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
            let oversleeps = process.engine.turns.oversleeps(due);
            let oversleeps = oversleeps && self.sabotage != Some(Sabotage::LostDeadline);
            // What came since the last look has woken nobody, because this thread was there.
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
        self.processes[p].engine.close_group(number_of(group));
        self.processes[p].closed.insert(group);
        self.start_driving(p, t, Purpose::Others, true);
        Doing::Close(group)
    }
}
