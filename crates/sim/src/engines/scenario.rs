//! What happens in a run, drawn from its seed: processes, groups, what their threads call, and which faults.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tweed_proto::engine::{GroupNumber, Time};
use tweed_proto::Program;
use tweed_schedule::{Collective, Draft, Rank, Schedule, Send};

use tweed_rng::Rng;

/// An enum that knows all of its variants.
macro_rules! listed {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident,)* }) => {
        $(#[$meta])*
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// All variants of the enum.
            pub const ALL: [$name; [$($name::$variant),*].len()] = [$($name::$variant),*];
        }
    };
}

listed! {
    /// A fault, as the table of `docs/reliability.md` counts them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    Fault {
        /// A process is killed.
        Kill,
        /// A process is killed whose children keep its connections open.
        KillWithChildren,
        /// A process is stopped for a while, often past the deadline.
        Stop,
        /// A thread comes late to a call, often past the deadline.
        Late,
        /// A link between hosts lets nothing through any more.
        Cut,
        /// Sockets take little at a time.
        FullSockets,
        /// A group is aborted by one of its members.
        Abort,
        /// A member closes a group that others still use.
        CloseEarly,
        /// Callbacks wait for other calls.
        WaitingCallback,
        /// A second thread calls in a group of its own.
        SecondThread,
        /// A rank runs far ahead of the others.
        Ahead,
    }
}

listed! {
    /// An old fault of the engine, put back to see whether it is found. Numbers as in `docs/reliability.md`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    Sabotage {
        /// 1: memory of a failed operation is used again while peers read it.
        NoLeases,
        /// 3: an earlier deadline than that of the sleepers wakes nobody.
        LostDeadline,
        /// 4: callbacks run on the thread that drives.
        CallbacksOnLeader,
        /// 5: children keep the connections of a dead process open, and nobody watches the process.
        ChildrenHold,
        /// 7: the lock of the endpoints is taken before that of the engine, and after it.
        LockOrder,
        /// 9: a link that broke once is never made anew.
        NeverMends,
        /// 12: a caller that finds the seat taken does not have its call begun.
        SilentPark,
        /// 13: nothing is held back for a rank that is behind.
        NoBackPressure,
        /// 14: what a lost peer has shared is kept.
        KeepMappings,
    }
}

/// How late a step may be in the runs.
pub(super) const DEADLINE: Duration = Duration::from_millis(400);
/// A link that lets nothing through is noticed by the kernel after so long.
pub(super) const SILENCE: Duration = Duration::from_millis(900);
/// So much may be ahead in the runs.
pub(super) const AHEAD_BYTES: u64 = 1024;
/// No operation has more elements, but those that work in place.
pub(super) const MOST_NUMEL: u64 = 200;
const IN_PLACE_NUMEL: u64 = 8192;

/// What a thread does, one after the other.
#[derive(Clone, Debug)]
pub(super) enum Action {
    /// Starts an operation; its number within the scenario.
    Submit(usize),
    /// Waits for it, and looks at what came of it.
    Wait(usize),
    Sleep(Time),
    Abort(u32),
    Close(u32),
    /// Joins the group of those that are left.
    Join,
}

/// An operation that all members of a group call.
#[derive(Clone, Debug, Default)]
pub(super) struct Op {
    pub(super) group: u32,
    pub(super) kind: Kind,
    pub(super) numel: u64,
    /// In memory that neighbours share.
    pub(super) shared: bool,
    /// The caller waits at once, so nobody else need be woken.
    pub(super) blocking: bool,
    /// When it has ended, a callback runs this other operation and waits for it.
    pub(super) then: Option<usize>,
    pub(super) urgency: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An all-reduce by the schedule of this name.
    AllReduce(&'static str),
    Broadcast(Rank),
    /// From one rank to another.
    Send(Rank, Rank),
}

impl Default for Kind {
    fn default() -> Kind {
        Kind::AllReduce("star")
    }
}

#[derive(Debug)]
pub(super) struct Scenario {
    /// The host of each process.
    pub(super) hosts: Vec<u32>,
    pub(super) streams: usize,
    pub(super) capacity: u64,
    /// Streams between hosts are sealed, which is done without the engine's lock.
    pub(super) sealed: bool,
    pub(super) piece_bytes: u64,
    pub(super) window: u32,
    /// All processes are in all of these, with rank = process.
    pub(super) groups: u32,
    pub(super) ops: Vec<Op>,
    /// What each thread of each process does.
    pub(super) scripts: Vec<Vec<Vec<Action>>>,
    /// What happens at which step of the scheduler.
    pub(super) events: Vec<(u64, Happening)>,
    pub(super) faults: Vec<Fault>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Happening {
    Kill(usize, bool),
    Stop(usize, Time),
    Cut(usize, usize),
}

/// Draws from a range.
pub(super) fn draw(rng: &mut Rng, from: u64, to: u64) -> u64 {
    (from + rng.below(to - from + 1)).min(to)
}

impl Scenario {
    pub(super) fn draw(rng: &mut Rng) -> Scenario {
        let n = draw(rng, 2, 4) as usize;
        let mut faults: Vec<Fault> = Fault::ALL.into_iter().filter(|_| rng.bernoulli(0.16)).collect();
        for (one, other) in [(Fault::Kill, Fault::KillWithChildren), (Fault::Abort, Fault::CloseEarly)] {
            if faults.contains(&one) && faults.contains(&other) {
                let dropped = if rng.bernoulli(0.5) { one } else { other };
                faults.retain(|&fault| fault != dropped);
            }
        }
        let hosts: Vec<u32> = match draw(rng, 0, 2) {
            0 if !faults.contains(&Fault::Cut) => vec![0; n],
            0 => (0..n as u32).map(|process| process % 2).collect(),
            1 => (0..n as u32).collect(),
            _ => (0..n).map(|_| draw(rng, 0, 1) as u32).collect(),
        };
        let full = faults.contains(&Fault::FullSockets);
        let mut scenario = Scenario {
            hosts,
            streams: draw(rng, 1, 3) as usize,
            capacity: if full { draw(rng, 60, 300) } else { 1 << 20 },
            sealed: rng.bernoulli(0.5),
            piece_bytes: if !full && rng.bernoulli(0.06) { 8192 } else { 64 << draw(rng, 0, 3) },
            window: draw(rng, 1, 3) as u32,
            groups: 0,
            ops: Vec::new(),
            scripts: vec![Vec::new(); n],
            events: Vec::new(),
            faults,
        };
        let threads = 1 + usize::from(scenario.has(Fault::SecondThread));
        (0..threads).for_each(|_| scenario.draw_thread(rng));
        scenario.draw_events(rng);
        scenario
    }

    fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    /// One more thread in each process, with a group of its own.
    fn draw_thread(&mut self, rng: &mut Rng) {
        let (n, group) = (self.hosts.len(), self.groups);
        self.groups += 1;
        let mut calls = Vec::new();
        // Rank 0 runs ahead with what it spreads.
        let ahead = self.has(Fault::Ahead).then_some(0);
        let most = if ahead.is_some() { draw(rng, 5, 12) } else { draw(rng, 1, 4) };
        for number in 0..most {
            calls.push(self.draw_op(rng, group, number == 0));
        }
        let late = self.has(Fault::Late).then(|| draw(rng, 0, n as u64 - 1) as usize);
        let breaker =
            (self.has(Fault::Abort) || self.has(Fault::CloseEarly)).then(|| draw(rng, 0, n as u64 - 1));
        for process in 0..n {
            let mut script = Vec::new();
            let mut waiting = Vec::new();
            if late == Some(process) {
                script.push(Action::Sleep(Time::from_millis(draw(rng, 1, 700))));
            } else if ahead.is_some() && ahead != Some(process) {
                script.push(Action::Sleep(Time::from_millis(draw(rng, 1, 100))));
            }
            for (place, &op) in calls.iter().enumerate() {
                if let Kind::Send(from, to) = self.ops[op].kind {
                    if process as u32 != from && process as u32 != to {
                        continue;
                    }
                }
                script.push(Action::Submit(op));
                let blocking = self.ops[op].blocking;
                if blocking || (ahead != Some(process) && rng.bernoulli(0.5)) {
                    script.push(Action::Wait(op));
                } else {
                    waiting.push(Action::Wait(op));
                }
                if breaker == Some(process as u64) && place == 0 {
                    let close = self.has(Fault::CloseEarly);
                    script.push(if close { Action::Close(group) } else { Action::Abort(group) });
                }
            }
            script.extend(waiting);
            script.push(Action::Close(group));
            self.scripts[process].push(script);
        }
    }

    fn draw_op(&mut self, rng: &mut Rng, group: u32, first: bool) -> usize {
        let n = self.hosts.len() as u64;
        let kind = match draw(rng, 0, 9) {
            _ if self.has(Fault::Ahead) && !first => Kind::Broadcast(0),
            0..=2 => Kind::AllReduce("direct"),
            3..=4 => Kind::AllReduce("ring"),
            5..=6 => Kind::AllReduce("star"),
            7..=8 => Kind::Broadcast(0),
            _ => {
                let from = draw(rng, 0, n - 1);
                Kind::Send(from as u32, ((from + 1) % n) as u32)
            }
        };
        let in_place = first && self.piece_bytes == 8192;
        let numel = if in_place { IN_PLACE_NUMEL } else { draw(rng, 1, MOST_NUMEL) };
        let calls_back = self.has(Fault::WaitingCallback) && first;
        let blocking = !self.has(Fault::Ahead) && !calls_back && rng.bernoulli(0.5);
        let then = calls_back.then(|| {
            let group = self.groups;
            self.groups += 1;
            self.ops.push(Op { group, numel: 3, ..Op::default() });
            self.ops.len() - 1
        });
        let then = then.filter(|_| !matches!(kind, Kind::Send(..)));
        let shared = in_place || rng.bernoulli(0.2);
        let urgency = draw(rng, 0, 1) as i32;
        self.ops.push(Op { group, kind, numel, shared, blocking, then, urgency });
        self.ops.len() - 1
    }

    fn draw_events(&mut self, rng: &mut Rng) {
        let n = self.hosts.len() as u64;
        for fault in self.faults.clone() {
            let at = draw(rng, 0, 600);
            let process = draw(rng, 0, n - 1) as usize;
            let other = (process + draw(rng, 1, n - 1) as usize) % n as usize;
            let happening = match fault {
                Fault::Kill => Happening::Kill(process, false),
                Fault::KillWithChildren => Happening::Kill(process, true),
                Fault::Stop => Happening::Stop(process, Time::from_millis(draw(rng, 1, 1500))),
                Fault::Cut if self.hosts[process] != self.hosts[other] => Happening::Cut(process, other),
                _ => continue,
            };
            self.events.push((at, happening));
        }
        self.events.sort_by_key(|&(at, _)| std::cmp::Reverse(at));
    }

    /// The faults that are there from the beginning. The others are noted when they come about.
    pub(super) fn standing_faults(&self) -> BTreeSet<Fault> {
        let mut scripts = self.scripts.iter().flatten();
        let early = |script: &Vec<Action>| script.iter().rev().skip(1).any(|a| matches!(a, Action::Close(_)));
        let closed_early = scripts.any(early);
        let is_there = |&fault: &Fault| match fault {
            Fault::Ahead | Fault::FullSockets | Fault::Late | Fault::SecondThread => true,
            Fault::CloseEarly => closed_early,
            _ => false,
        };
        self.faults.iter().copied().filter(is_there).collect()
    }

    /// Nothing in it ends an operation: all must go well.
    pub(super) fn is_harmless(&self) -> bool {
        use Fault::{Abort, CloseEarly, Cut, Kill, KillWithChildren, Late, Stop};
        ![Abort, CloseEarly, Cut, Kill, KillWithChildren, Late, Stop].iter().any(|&fault| self.has(fault))
    }
}

/// What names a group. They are of epochs, and have one hash: nothing else tells messages of two of them apart.
pub(super) fn number_of(group: u32) -> GroupNumber {
    GroupNumber::new(0, Some(group.into()))
}

/// The schedule of an operation among `n` ranks, and a rank's part of it.
pub(super) fn plan(kind: Kind, n: u32, rank: Rank) -> (Arc<Schedule>, Arc<Program>) {
    type Row = Vec<(Arc<Schedule>, Vec<Arc<Program>>)>;
    static PLANS: OnceLock<Vec<Row>> = OnceLock::new();
    let plans = PLANS.get_or_init(|| (0..=4).map(|n| if n < 2 { Vec::new() } else { compile(n) }).collect());
    let row = match kind {
        Kind::AllReduce("direct") => 0,
        Kind::AllReduce("ring") => 1,
        Kind::AllReduce(_) => 2,
        Kind::Broadcast(_) | Kind::Send(..) => 3,
    };
    let (schedule, programs) = &plans[n as usize][row];
    (Arc::clone(schedule), Arc::clone(&programs[rank as usize]))
}

fn compile(n: u32) -> Vec<(Arc<Schedule>, Vec<Arc<Program>>)> {
    let gather = (1..n).map(|r| Send::new(0, r, 0, 0, true));
    let star = gather.chain((1..n).map(|r| Send::new(1, 0, r, 0, false)));
    let spread = (1..n).map(|r| Send::new(0, 0, r, 0, false));
    let rows = [
        ("direct", Collective::AllReduce, n, direct(n)),
        ("ring", Collective::AllReduce, n, ring(n)),
        ("star", Collective::AllReduce, 1, star.collect()),
        ("star", Collective::Broadcast, 1, spread.collect()),
    ];
    let make = |(name, collective, chunks, sends): (&str, _, _, _)| {
        let draft = Draft { name: name.into(), collective, root: 0, ranks: n, chunks, sends, topology: None };
        let schedule = Schedule::new(draft).expect("these schedules are right");
        let programs = Program::compile_all(&schedule).into_iter().map(Arc::new).collect();
        (Arc::new(schedule), programs)
    };
    rows.into_iter().map(make).collect()
}

fn direct(n: u32) -> Vec<Send> {
    let pairs = |owner: u32| (0..n).filter(move |&r| r != owner).map(move |r| (owner, r));
    let gather = (0..n).flat_map(pairs).map(|(owner, r)| Send::new(0, r, owner, owner, true));
    let spread = (0..n).flat_map(pairs).map(|(owner, r)| Send::new(1, owner, r, owner, false));
    gather.chain(spread).collect()
}

fn ring(n: u32) -> Vec<Send> {
    let reduce = (0..n - 1).flat_map(|t| (0..n).map(move |r| (t, r, (r + n - t) % n, true)));
    let spread = (0..n - 1).flat_map(|t| (0..n).map(move |r| (n - 1 + t, r, (r + 1 + n - t) % n, false)));
    let hops = reduce.chain(spread);
    hops.map(|(t, r, chunk, reduce)| Send::new(t, r, (r + 1) % n, chunk, reduce)).collect()
}
