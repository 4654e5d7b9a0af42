//! The threads of a process: what each is about to do. A step of the scheduler carries out one thing.

use std::collections::{BTreeSet, VecDeque};

use tweed_proto::engine::driving::Waiter;
use tweed_proto::engine::{Ended, Job, Ticket, Time};

use super::join::Joining;
use super::kernel::{CallId, ThreadId};
use super::scenario::Action;

/// What a user has asked to be called: run that operation and wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Callback {
    /// The operation that it runs.
    pub(super) op: usize,
}

/// How a thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Sleep {
    Awake,
    /// On the wake-up, as waiter or as leader.
    OnWakeup(Seat, Option<Time>),
    /// Sleeps until an operation ends.
    OnCall(CallId, Time),
    /// A worker that rests.
    Resting,
    /// For the kernel's events.
    OnEvents,
    /// For nothing, until then.
    Until(Time),
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seat {
    Waiter,
    Leader,
}

/// Why a thread drives the engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Purpose {
    Leader,
    Waiter(Time),
    Others,
}

/// How far a thread has come with driving.
#[derive(Debug)]
pub(super) enum Driving {
    /// It wants the lock.
    Lock,
    /// It has the lock; the engine steps.
    Step,
    /// Sources are to be read.
    Read(Job),
    /// Targets are to be written.
    Write(Job, Vec<u8>),
    /// The lock is free again; callers are to get their results.
    Report { ended: Vec<Ended<CallId>>, needs: Option<u32>, deadline: Option<Time>, oversleeps: bool },
    /// Then streams are flushed one by one; what has left by that.
    Seal(BTreeSet<(usize, usize)>, Vec<Ticket>),
}

/// What came of it.
#[derive(Clone, Debug)]
pub(super) struct Driven {
    pub(super) needs: Option<u32>,
    pub(super) deadline: Option<Time>,
    pub(super) oversleeps: bool,
    pub(super) ended: bool,
    pub(super) callbacks: Vec<Callback>,
}

/// A source that the watcher looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// A peer, and a stream.
    Stream(usize, usize),
    /// The end of a neighbour.
    Process(usize),
}

/// A frame that is being read.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) body: Body,
    pub(super) filled: u64,
}

#[derive(Debug)]
pub(super) enum Body {
    Owned(Vec<u8>),
    Placed,
    Unwanted,
}

/// What the watcher is at.
#[derive(Debug)]
pub(super) enum Watching {
    /// It looks for a source that is ready.
    Idle,
    /// It wants the lock for a source.
    Lock(Source),
    /// It reads, with the lock held.
    Read(usize, usize),
    /// It computes, with the lock held, and reads on.
    Compute(usize, usize, Job),
    /// It drives for others before it unlocks; the second is what comes next.
    Drive(Source, bool),
    /// A source has ended: all others are looked at once more, then the peer is lost.
    Gone(usize, &'static str, VecDeque<Source>),
}

/// What a thread is for.
#[derive(Debug)]
pub(super) enum Role {
    /// Calls operations one after another.
    Caller(Program),
    /// Leads, rests, or runs a callback.
    Worker(Working),
    Watcher(Watching),
}

/// A script, and how far it has come.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) script: VecDeque<Action>,
    pub(super) doing: Doing,
}

#[derive(Debug)]
pub(super) enum Doing {
    Next,
    /// Has what it has enqueued begun.
    SetOff,
    Wait(Wait),
    /// It has taken its mark off the wake-up word, and looks once more.
    Leave(Wait),
    /// It wants the lock to close a group.
    Close(u32),
    /// It joins a group.
    Join(Joining),
}

/// A caller that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    pub(super) call: CallId,
    pub(super) waiter: Waiter,
    /// What it had seen when it last drove: count, needs, and until when it may sleep.
    pub(super) seen: (u32, Option<u32>, Time),
    /// How far it has come with falling asleep.
    pub(super) dozing: Dozing,
}

/// Falling asleep takes two steps: others act between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dozing {
    Awake,
    /// The mark is set; it looks once more, and sleeps.
    Marked,
    Asleep,
}

#[derive(Debug)]
pub(super) enum Working {
    /// Asks for a task.
    Next,
    /// Leads, having read this count.
    Lead(u32),
    /// Falls asleep as leader.
    LeadSleep { seen: u32, reads: bool, until: Option<Time>, dozing: Dozing },
    /// Runs the program of a callback.
    Run(Program),
}

/// A thread of a simulated process.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) id: ThreadId,
    pub(super) role: Role,
    pub(super) sleep: Sleep,
    pub(super) driving: Option<(Purpose, Driving)>,
    pub(super) driven: Option<Driven>,
}

impl Thread {
    pub(super) fn new(id: ThreadId, role: Role) -> Thread {
        Thread { id, role, sleep: Sleep::Awake, driving: None, driven: None }
    }

    /// It can go on only with the engine's lock.
    pub(super) fn wants_lock(&self) -> bool {
        match &self.driving {
            Some((_, driving)) => matches!(driving, Driving::Lock),
            None => match &self.role {
                Role::Watcher(watching) => matches!(watching, Watching::Lock(_)),
                Role::Caller(p) | Role::Worker(Working::Run(p)) => {
                    matches!(p.doing, Doing::Close(_) | Doing::Leave(_) | Doing::Join(_))
                }
                Role::Worker(_) => false,
            },
        }
    }
}
