//! The turns that threads take at driving the engine: `tweed_proto::engine::driving` decides, this waits and wakes.

use std::sync::Arc;
use std::time::Duration;

use tweed_proto::engine::driving::{Sleeper, WaitStep, Waiter};
use tweed_proto::engine::{Engine, Event, GroupNumber, Step, Ticket, Time};

use super::driver::Driver;
use super::live::{page_of, Live};
use crate::link::stream::Stream;
use crate::link::wakeup::Wakeup;
use crate::operation::compute::compute;
use crate::operation::op::{Callback, Op};
use crate::sync::MutexGuard;

/// How the engine stands after it was driven.
struct Driven {
    /// What is still needed, as [`Engine::needs`] has it.
    needs: Option<u32>,
    deadline: Option<Time>,
    /// Nobody wakes in time for the deadline.
    oversleeps: bool,
    /// Some operation has ended.
    ended: bool,
    callbacks: Vec<Callback>,
}

/// What a waiter has seen before its last drive.
#[derive(Default)]
struct Seen {
    count: u32,
    needs: Option<u32>,
    until: Time,
}

impl Driver {
    /// Time since the node was started.
    pub(crate) fn now(&self) -> Time {
        self.began.elapsed()
    }

    fn wakeup(&self) -> &Wakeup {
        &page_of(&self.arena, self.page).wakeup
    }

    pub(crate) fn ring(&self) {
        self.wakeup().ring_all();
    }

    /// Leaves something for the engine, to be seen when it is next driven.
    pub(crate) fn enqueue(&self, event: Event<Arc<Op>>) {
        self.inbox.lock().push(event);
    }

    /// Leaves something for the engine and has it driven.
    pub(crate) fn post(&self, event: Event<Arc<Op>>) {
        self.enqueue(event);
        self.ring();
    }

    /// Has what was enqueued begun: on this thread if it is little and the engine is free, else by whoever drives.
    pub(crate) fn set_off(self: &Arc<Self>, little: bool) {
        match self.engine.try_lock() {
            Some(engine) if little => self.drive_for_others(engine),
            _ => self.ring(),
        }
    }

    /// Drives the engine on a thread that does not sleep on the wake-up: those who do are woken if they have to.
    pub(crate) fn drive_for_others<'d>(self: &'d Arc<Self>, engine: MutexGuard<'d, Engine<Live>>) {
        let driven = self.drive(engine, None);
        if driven.oversleeps || (driven.ended && self.wakeup().is_attended()) {
            self.ring();
        }
        self.hand_over(driven.callbacks);
    }

    /// Drives the engine, notes until when `sleeper` will sleep, then tells the callers of what has ended, and seals what
    /// waits for the lock to be free. What has left by that makes work again: it is done before anybody sleeps.
    fn drive<'d>(
        &'d self,
        mut engine: MutexGuard<'d, Engine<Live>>,
        sleeper: Option<(Sleeper, Time)>,
    ) -> Driven {
        let (mut any, mut callbacks) = (false, Vec::new());
        loop {
            self.step(&mut engine);
            let (ended, lines) = (engine.take_ended(), engine.take_lines());
            let (needs, deadline) = (engine.needs(), engine.next_deadline());
            if let Some((who, most)) = sleeper {
                engine.turns.arm(who, Some(deadline.map_or(most, |d| d.min(most))));
            }
            let oversleeps = engine.turns.oversleeps(deadline);
            let unsealed = std::mem::take(&mut engine.host.unsealed);
            drop(engine);
            any |= !ended.is_empty();
            callbacks.extend(ended.into_iter().filter_map(|e| e.call.end(e.result, e.source)));
            lines.iter().for_each(|line| crate::stderr::print_line(line));
            let left = flush(&unsealed);
            if left.is_empty() {
                return Driven { needs, deadline, oversleeps, ended: any, callbacks };
            }
            self.enqueue(Event::Left(left));
            engine = self.engine.lock();
        }
    }

    /// Has the engine do what it can.
    fn step(&self, engine: &mut Engine<Live>) {
        while let Step::Compute(job) = engine.step(self.now()) {
            // SAFETY: the engine hands out what lies in memory of this process and of peers that it has claimed, and the
            // executor lets nobody else touch it meanwhile.
            unsafe { compute(&job) };
            engine.handle_computed(job);
        }
    }

    /// Gives the engine back to whoever drives it, and seals what waits for that.
    pub(crate) fn release(&self, mut engine: MutexGuard<'_, Engine<Live>>) {
        let unsealed = std::mem::take(&mut engine.host.unsealed);
        drop(engine);
        let left = flush(&unsealed);
        if !left.is_empty() {
            self.post(Event::Left(left));
        }
    }

    /// One round of the leader: drives, and sleeps unless there are callbacks, which it returns.
    pub(super) fn lead_once(&self) -> Vec<Callback> {
        let seen = self.wakeup().count();
        let driven = self.drive(self.engine.lock(), Some((Sleeper::Leader, Time::MAX)));
        if driven.ended && self.wakeup().is_attended() {
            self.ring();
        }
        if driven.callbacks.is_empty() && !self.is_stopping() {
            let timeout = driven.deadline.map(|d| d.saturating_sub(self.now()));
            self.wakeup().sleep_in_background(seen, driven.needs.is_none(), timeout, || self.has_messages());
        }
        driven.callbacks
    }

    fn has_messages(&self) -> bool {
        self.engine.lock().host.has_messages()
    }

    /// Waits until `op` has ended, driving the engine meanwhile unless somebody else does. `false` if a signal came in,
    /// or the time is over.
    pub(crate) fn wait(self: &Arc<Self>, op: &Op, limit: Option<Duration>) -> bool {
        let limit = limit.unwrap_or(Duration::from_secs(3600));
        let mut waiter = Waiter::new(self.now().saturating_add(limit));
        let (mut seat, mut seen) = (None, Seen::default());
        loop {
            match waiter.step() {
                WaitStep::Look => waiter.handle_look(op.is_ended(), self.now()),
                WaitStep::TrySeat => {
                    seat = self.seat.try_lock();
                    if seat.is_some() {
                        self.wakeup().attend();
                    }
                    waiter.handle_seat(seat.is_some());
                }
                WaitStep::Announce => {
                    self.set_off(true);
                    waiter.handle_announced();
                }
                WaitStep::Park(until) => waiter.handle_slept(op.sleep(until.saturating_sub(self.now()))),
                WaitStep::Drive(until) => {
                    seen = self.drive_as_waiter(until);
                    waiter.handle_driven(op.is_ended());
                }
                WaitStep::Sleep => waiter.handle_slept(self.sleep_as_waiter(&seen)),
                WaitStep::Leave => {
                    self.leave(seen.count);
                    seat = None;
                    waiter.handle_left();
                }
                WaitStep::Done(ended) => {
                    drop(seat);
                    return ended;
                }
            }
        }
    }

    fn drive_as_waiter(self: &Arc<Self>, until: Time) -> Seen {
        let count = self.wakeup().count();
        let driven = self.drive(self.engine.lock(), Some((Sleeper::Waiter, until)));
        self.hand_over(driven.callbacks);
        Seen { count, needs: driven.needs, until: driven.deadline.map_or(until, |d| d.min(until)) }
    }

    fn sleep_as_waiter(&self, seen: &Seen) -> bool {
        let left = seen.until.saturating_sub(self.now());
        self.wakeup().sleep_as_waiter(seen.count, seen.needs, left, || self.has_messages())
    }

    /// The waiter gives up driving. What came in after its last look, it sees to now; later signals wake the leader.
    fn leave(self: &Arc<Self>, seen: u32) {
        let more = self.wakeup().leave(seen, || true);
        let mut engine = self.engine.lock();
        engine.turns.disarm(Sleeper::Waiter);
        if more || engine.turns.oversleeps(engine.next_deadline()) {
            self.drive_for_others(engine);
        }
    }

    pub(crate) fn close_group(self: &Arc<Self>, number: GroupNumber) {
        if self.check_process().is_err() {
            return;
        }
        let mut engine = self.engine.lock();
        self.step(&mut engine);
        engine.close_group(number);
        engine.host.status.remove(&number);
        self.drive_for_others(engine);
    }
}

/// The tickets of what has left.
fn flush(streams: &[Arc<Stream>]) -> Vec<Ticket> {
    streams.iter().flat_map(|stream| stream.flush()).collect()
}
