//! Which thread drives the engine, how threads sleep, and who is woken: the protocol between the threads of a process.
//!
//! # Theory of operation
//!
//! Whoever holds the engine's lock may drive it. Two threads at most sleep on the process's wake-up word: the *waiter*, a
//! caller that has the seat and drives for itself and all others until its own operation has ended, and the *leader*, one
//! of the workers, which drives when there is no waiter. Callers that find the seat taken park on their own operation.
//!
//! - A sleeper reads the wake-up's count, locks, drives, notes under the lock until when it will sleep ([`Turns::arm`]),
//!   unlocks, and sleeps unless the count has changed. So whatever is rung after it has looked keeps it awake.
//! - Everybody else who drives (a caller that starts an operation, the thread that reads sockets, a parked caller before
//!   it parks) asks under the same lock whether somebody sleeps past the next deadline ([`Turns::oversleeps`]), and rings.
//! - A caller that finds the engine locked rings after it has left its event: the holder looks again, or the next sleeper.
//! - A waiter that leaves takes its mark off the wake-up word first and only then looks for messages once more: a peer
//!   puts its message first and looks at the mark afterwards, so one of them sees the other.
//! - User callbacks run on workers that lead no more: who has found some gives up the lead to another worker, which is
//!   started if all others are busy. So a callback may wait for anything, also for other callbacks.
//!
//! Locks, in the order in which they may be taken: the seat, the engine, the inbox; the workers' lock alone.
//!
//! What cannot happen: a deadline passes while all threads sleep; a message lies in a queue while its reader sleeps;
//! nobody leads.

use std::collections::VecDeque;

use super::host::Time;

/// So many callbacks may wait for something at a time, each on a thread of its own.
const MOST_WORKERS: usize = 256;

/// Until when the sleepers of a process sleep. Guarded by the engine's lock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turns {
    waiter: Option<Time>,
    leader: Option<Time>,
}

/// One of the two that sleep on the wake-up word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleeper {
    /// A caller that waits for its operation.
    Waiter,
    /// The worker that drives otherwise.
    Leader,
}

impl Turns {
    /// It is about to sleep, until then at most; `None`: until it is woken.
    pub fn arm(&mut self, who: Sleeper, until: Option<Time>) {
        *self.of(who) = Some(until.unwrap_or(Time::MAX));
    }

    /// It sleeps no more, and will not come back before it has looked.
    pub fn disarm(&mut self, who: Sleeper) {
        *self.of(who) = None;
    }

    /// Everybody who sleeps does so past `deadline`: somebody must be woken.
    #[must_use]
    pub fn oversleeps(&self, deadline: Option<Time>) -> bool {
        let first = [self.waiter, self.leader].into_iter().flatten().min();
        deadline.is_some_and(|deadline| first.is_none_or(|first| first > deadline))
    }

    fn of(&mut self, who: Sleeper) -> &mut Option<Time> {
        match who {
            Sleeper::Waiter => &mut self.waiter,
            Sleeper::Leader => &mut self.leader,
        }
    }
}

/// What a caller that waits does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitStep {
    /// Look whether the operation has ended; answer with [`Waiter::handle_look`].
    Look,
    /// Try to take the seat; answer with [`Waiter::handle_seat`].
    TrySeat,
    /// Drive, or ring if somebody else is at it: the operation may not have been begun. Answer with
    /// [`Waiter::handle_announced`].
    Announce,
    /// Sleep on the operation itself until it has ended, or then. Answer with [`Waiter::handle_slept`].
    Park(Time),
    /// Read the wake-up's count, drive, and arm the waiter until then or an earlier deadline. Answer with
    /// [`Waiter::handle_driven`].
    Drive(Time),
    /// Sleep on the wake-up as the last drive had it; answer with [`Waiter::handle_slept`].
    Sleep,
    /// Take the mark off the wake-up word. Then, if there are messages or somebody oversleeps, see to it; give the seat
    /// free; and look once more.
    Leave,
    /// Return; whether it has ended.
    Done(bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    Looking,
    Seating,
    Announcing,
    Parked,
    Driving,
    Sleeping,
    Leaving,
    Done(bool),
}

/// A caller that waits for an operation, as a state machine: [`Waiter::step`] says what to do, a `handle` what came of it.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    state: Waiting,
    seated: bool,
    disturbed: bool,
    until: Time,
}

impl Waiter {
    /// Waits until then at most.
    pub fn new(until: Time) -> Waiter {
        Waiter { state: Waiting::Looking, seated: false, disturbed: false, until }
    }

    /// What to do next.
    #[must_use]
    pub fn step(&self) -> WaitStep {
        match self.state {
            Waiting::Looking => WaitStep::Look,
            Waiting::Seating => WaitStep::TrySeat,
            Waiting::Announcing => WaitStep::Announce,
            Waiting::Parked => WaitStep::Park(self.until),
            Waiting::Driving => WaitStep::Drive(self.until),
            Waiting::Sleeping => WaitStep::Sleep,
            Waiting::Leaving => WaitStep::Leave,
            Waiting::Done(ended) => WaitStep::Done(ended),
        }
    }

    /// Whether the operation has ended, and the time.
    pub fn handle_look(&mut self, ended: bool, now: Time) {
        let over = ended || self.disturbed || now >= self.until;
        self.state = match (over, self.seated) {
            (true, true) => Waiting::Leaving,
            (true, false) => Waiting::Done(ended),
            (false, true) => Waiting::Driving,
            (false, false) => Waiting::Seating,
        };
    }

    /// Whether the seat was free.
    pub fn handle_seat(&mut self, taken: bool) {
        self.seated = taken;
        self.state = if taken { Waiting::Driving } else { Waiting::Announcing };
    }

    /// The operation was begun, or will be by somebody else.
    pub fn handle_announced(&mut self) {
        self.state = Waiting::Parked;
    }

    /// The engine was driven. Whether the operation has ended.
    pub fn handle_driven(&mut self, ended: bool) {
        self.state = if ended { Waiting::Leaving } else { Waiting::Sleeping };
    }

    /// It woke; `false` if a signal has come for the program.
    pub fn handle_slept(&mut self, undisturbed: bool) {
        self.disturbed = !undisturbed;
        self.state = Waiting::Looking;
    }

    /// The seat is free again.
    pub fn handle_left(&mut self) {
        self.seated = false;
        self.state = Waiting::Looking;
        // Whatever there was to wait for, this call is over.
        self.disturbed = true;
    }
}

/// What a worker does next.
#[derive(Debug, PartialEq, Eq)]
pub enum Task<C> {
    /// Drive whenever there is something to do, until [`Workers::step_down`] takes the lead away.
    Lead,
    /// The worker runs a callback.
    Run(C),
    /// Sleep until it is woken.
    Rest,
    /// The worker ends its thread.
    Stop,
}

/// Whom to wake after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// No thread is woken.
    Nobody,
    /// A worker that rests.
    Resting,
    /// A new worker is to be started.
    New,
}

/// The workers of a process: one leads, the others run callbacks or rest. Guarded by a lock of their own.
#[derive(Debug)]
pub struct Workers<C> {
    led: bool,
    resting: usize,
    threads: usize,
    queue: VecDeque<C>,
    stopping: bool,
}

impl<C> Workers<C> {
    /// A task for a worker that has none.
    #[must_use]
    pub fn next_task(&mut self) -> Task<C> {
        if self.stopping {
            // Callbacks that are queued still run: somebody waits for them.
            return self.queue.pop_front().map_or(Task::Stop, Task::Run);
        }
        if !self.led {
            self.led = true;
            return Task::Lead;
        }
        match self.queue.pop_front() {
            Some(callback) => Task::Run(callback),
            None => {
                self.resting += 1;
                Task::Rest
            }
        }
    }

    /// The leader has found callbacks. It gives up the lead, if there is another worker that takes it, and runs one.
    #[must_use]
    pub fn step_down(&mut self, callbacks: Vec<C>) -> (Option<C>, Wake) {
        self.queue.extend(callbacks);
        if self.queue.is_empty() {
            return (None, Wake::Nobody);
        }
        match self.wake() {
            Wake::Nobody => (None, Wake::Nobody),
            wake => {
                self.led = false;
                (self.queue.pop_front(), wake)
            }
        }
    }

    /// Another thread has found a callback.
    #[must_use]
    pub fn add(&mut self, callback: C) -> Wake {
        self.queue.push_back(callback);
        self.wake()
    }

    /// Lets all workers end from now on.
    pub fn stop(&mut self) {
        self.stopping = true;
        self.resting = 0;
    }

    fn wake(&mut self) -> Wake {
        if self.resting > 0 {
            self.resting -= 1;
            return Wake::Resting;
        }
        if self.threads == MOST_WORKERS {
            return Wake::Nobody;
        }
        self.threads += 1;
        Wake::New
    }
}

impl<C> Default for Workers<C> {
    /// One worker, which is about to ask for its first task.
    fn default() -> Workers<C> {
        Workers { led: false, resting: 0, threads: 1, queue: VecDeque::new(), stopping: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_deadline_than_that_of_all_sleepers_rings() {
        let (mut turns, at) = (Turns::default(), Time::from_secs);
        assert!(turns.oversleeps(Some(at(1))), "nobody sleeps, so nobody comes back");
        turns.arm(Sleeper::Leader, None);
        assert!(turns.oversleeps(Some(at(9))));
        turns.arm(Sleeper::Waiter, Some(at(5)));
        assert!(turns.oversleeps(Some(at(4))) && !turns.oversleeps(Some(at(5))));
        turns.disarm(Sleeper::Waiter);
        assert!(turns.oversleeps(Some(at(5))) && !turns.oversleeps(None));
    }

    #[test]
    fn a_waiter_without_the_seat_announces_its_operation_before_it_parks() {
        let mut waiter = Waiter::new(Time::from_secs(1));
        waiter.handle_look(false, Time::ZERO);
        assert_eq!(waiter.step(), WaitStep::TrySeat);
        waiter.handle_seat(false);
        assert_eq!(waiter.step(), WaitStep::Announce);
        waiter.handle_announced();
        assert_eq!(waiter.step(), WaitStep::Park(Time::from_secs(1)));
        waiter.handle_slept(true);
        waiter.handle_look(true, Time::ZERO);
        assert_eq!(waiter.step(), WaitStep::Done(true));
    }

    #[test]
    fn a_signal_ends_the_wait_and_gives_the_seat_free() {
        let mut waiter = Waiter::new(Time::from_secs(1));
        waiter.handle_look(false, Time::ZERO);
        waiter.handle_seat(true);
        waiter.handle_driven(false);
        assert_eq!(waiter.step(), WaitStep::Sleep);
        waiter.handle_slept(false);
        waiter.handle_look(false, Time::ZERO);
        assert_eq!(waiter.step(), WaitStep::Leave);
        waiter.handle_left();
        waiter.handle_look(false, Time::ZERO);
        assert_eq!(waiter.step(), WaitStep::Done(false));
    }

    #[test]
    fn somebody_leads_while_callbacks_run() {
        let mut workers: Workers<u32> = Workers::default();
        assert_eq!(workers.next_task(), Task::Lead);
        assert_eq!(workers.step_down(vec![1, 2]), (Some(1), Wake::New));
        assert_eq!(workers.next_task(), Task::Lead, "the new one leads first, however much is queued");
        assert_eq!(workers.step_down(Vec::new()), (Some(2), Wake::New));
        assert_eq!(workers.next_task(), Task::Lead);
        assert_eq!(workers.next_task(), Task::Rest, "the first has run its callback");
        assert_eq!(workers.add(3), Wake::Resting);
        assert_eq!(workers.next_task(), Task::Run(3));
        workers.stop();
        assert_eq!(workers.next_task(), Task::Stop);
    }
}
