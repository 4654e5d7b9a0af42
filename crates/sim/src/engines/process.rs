//! One process: its engine, its locks, its threads, its calls.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use tweed_kernels::{DType, ReduceOp};
use tweed_proto::engine::config::GroupConfig;
use tweed_proto::engine::directory::Directory;
use tweed_proto::engine::driving::Workers;
use tweed_proto::engine::members::{Members, Tuning};
use tweed_proto::engine::request::{Operation, Request, Segment};
use tweed_proto::engine::{Draft, Engine, EngineError, Event, Peer, Settings, Time};
use tweed_proto::Reach;
use tweed_schedule::Collective;

use super::host::SimHost;
use super::kernel::{CallId, Kernel, ThreadId};
use super::link::Link;
use super::locks::Lock;
use super::scenario::{number_of, plan, Kind, Op, Scenario, DEADLINE};
use super::thread::{Callback, Doing, Incoming, Program, Role, Source, Thread, Watching, Working};

/// A call, for its caller.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) op: usize,
    /// Where its value lies.
    pub(super) at: u64,
    pub(super) result: Option<Result<(), EngineError>>,
    pub(super) callback: Option<Callback>,
}

pub(super) struct Process {
    pub(super) me: usize,
    pub(super) engine: Engine<SimHost>,
    pub(super) lock: Option<ThreadId>,
    pub(super) seat: Option<ThreadId>,
    pub(super) workers: Workers<Callback>,
    pub(super) threads: Vec<Thread>,
    pub(super) calls: Vec<Call>,
    /// The call of each operation of the scenario.
    pub(super) call_of: BTreeMap<usize, CallId>,
    pub(super) directory: Directory<()>,
    attempts: u64,
    /// The members of each group, and the process behind each rank.
    pub(super) groups: BTreeMap<u32, (Arc<Members>, Vec<usize>)>,
    /// What the watcher looks at, and what it has begun to read.
    pub(super) sources: BTreeSet<Source>,
    pub(super) incoming: BTreeMap<(usize, usize), Incoming>,
    pub(super) stopped: Option<Time>,
    pub(super) alive: bool,
    /// It has closed these groups.
    pub(super) closed: BTreeSet<u32>,
}

impl Process {
    pub(super) fn new(me: usize, scenario: &Scenario, kernel: &Rc<RefCell<Kernel>>, ahead: u64) -> Process {
        let host = SimHost { me, kernel: Rc::clone(kernel) };
        let settings = Settings { deadline: Some(DEADLINE), records: false, leases: 64, ahead_bytes: ahead };
        let engine = Engine::new(host, settings);
        let mut threads =
            vec![Thread::new(0, Role::Watcher(Watching::Idle)), Thread::new(1, Role::Worker(Working::Next))];
        for script in &scenario.scripts[me] {
            let program = Program { script: script.iter().cloned().collect(), doing: Doing::Next };
            threads.push(Thread::new(threads.len(), Role::Caller(program)));
        }
        Process {
            me,
            engine,
            lock: None,
            seat: None,
            workers: Workers::default(),
            threads,
            calls: Vec::new(),
            call_of: BTreeMap::new(),
            directory: Directory::default(),
            attempts: 0,
            groups: BTreeMap::new(),
            sources: BTreeSet::new(),
            incoming: BTreeMap::new(),
            stopped: None,
            alive: true,
            closed: BTreeSet::new(),
        }
    }

    /// The number of its next call to another process.
    pub(super) fn next_attempt(&mut self) -> u64 {
        self.attempts += 1;
        self.attempts
    }

    /// Makes a peer of the process at the other end of a link, unless a later call of it has come first.
    pub(super) fn add_link(&mut self, number: usize, kernel: &RefCell<Kernel>) {
        let mut kernel = kernel.borrow_mut();
        let peer = kernel.add_peer(self.me, number);
        kernel.processes[self.me].locks.note(Lock::Engine, Lock::Directory);
        let Link { ends, near, attempt } = &kernel.links[number];
        let (other, streams, near) =
            (ends[1 - kernel.links[number].side(self.me)].process, ends[0].streams.len(), *near);
        let entered = self.directory.enter(&uid(other), peer, (*attempt, None));
        self.engine.peers.add(Peer::new(uid(other), format!("host-{other}"), near, streams));
        self.sources.extend((0..streams).map(|stream| Source::Stream(peer, stream)));
        self.sources.extend(near.then_some(Source::Process(peer)));
        if let Ok(Some(old)) = entered {
            kernel.processes[self.me].inbox.push(Event::Lost(old, "it has called anew".into()));
        }
        kernel.processes[self.me].wakeup.ring_all();
    }

    /// Opens a group of these processes, whom it knows by these numbers.
    pub(super) fn open_group(
        &mut self,
        group: u32,
        processes: &[usize],
        peers: Vec<usize>,
        scenario: &Scenario,
    ) {
        let near = |&q: &usize| scenario.hosts[q] == scenario.hosts[self.me];
        let reach = processes.iter().map(|q| if near(q) { Reach::Shared } else { Reach::Wire });
        let members = Arc::new(Members {
            number: number_of(group),
            epoch: Some(group.into()),
            name: format!("group {group}"),
            rank: processes.iter().position(|&q| q == self.me).expect("it is one of them") as u32,
            peers,
            reach: reach.collect(),
            has_wires: !processes.iter().all(|&q| scenario.hosts[q] == scenario.hosts[processes[0]]),
            tuning: Tuning { piece_bytes: scenario.piece_bytes, window: scenario.window, pieces: 1 },
            timeout: DEADLINE * 4,
            config: GroupConfig::default(),
            endpoint: None,
        });
        self.engine.open_group(Arc::clone(&members)).expect("numbers differ");
        self.groups.insert(group, (members, processes.to_vec()));
    }

    /// Makes a call ready: its memory is filled with this rank's values.
    pub(super) fn draft(
        &mut self,
        number: usize,
        op: &Op,
        now: Time,
        kernel: &RefCell<Kernel>,
    ) -> Draft<CallId> {
        let group = Arc::clone(&self.groups[&op.group].0);
        let bytes = op.numel * 8;
        let at = kernel.borrow_mut().user_memory(self.me, bytes, op.shared);
        let values = (0..op.numel).flat_map(|i| value(number, self.me, i).to_le_bytes()).collect::<Vec<_>>();
        kernel.borrow_mut().write(self.me, Kernel::address(self.me, at), &values);
        let segment = Segment { data: Kernel::address(self.me, at), bytes };
        let call = self.calls.len();
        let callback = op.then.map(|op| Callback { op });
        self.calls.push(Call { op: number, at, result: None, callback });
        self.call_of.insert(number, call);
        let (me, n) = (group.rank, group.ranks());
        let both = (vec![segment], vec![segment]);
        let collective = |what, root| Operation::Collective { what, root };
        let (operation, plan, (inputs, outputs)) = match op.kind {
            Kind::Send(from, to) if me == from => {
                let operation = Operation::Send { to, tag: 0 };
                (operation, group.single_send(0), (vec![segment], Vec::new()))
            }
            Kind::Send(from, _) => {
                let operation = Operation::Receive { from: Some(from), tag: 0 };
                (operation, group.single_send(1), (Vec::new(), vec![segment]))
            }
            Kind::AllReduce(_) => (collective(Collective::AllReduce, 0), plan(op.kind, n, me), both),
            Kind::Broadcast(root) => (collective(Collective::Broadcast, root), plan(op.kind, n, me), both),
        };
        let request = Request {
            operation,
            dtype: DType::I64,
            reduce_op: ReduceOp::Sum,
            factor: 1.0,
            // Each rank has its own mind about that.
            urgency: op.urgency ^ (me & 1) as i32,
            blocking: op.blocking,
            inputs,
            outputs,
            shape: format!("[{}]", op.numel),
            timeout: None,
        };
        Draft { call, group, request, plan: Some(plan), started: now }
    }

    /// What is wrong with the values of a call that has ended well, if anything.
    pub(super) fn check(&self, call: CallId, op: &Op, kernel: &Kernel) -> Option<String> {
        let Call { op: number, at, .. } = self.calls[call];
        let processes = &self.groups[&op.group].1;
        let expected = |i: u64| match op.kind {
            Kind::AllReduce(_) => {
                processes.iter().fold(0i64, |sum, &q| sum.wrapping_add(value(number, q, i)))
            }
            Kind::Broadcast(root) | Kind::Send(root, _) => value(number, processes[root as usize], i),
        };
        let bytes = kernel.read(Kernel::address(self.me, at), op.numel * 8);
        (0..op.numel).zip(bytes.chunks_exact(8)).find_map(|(i, word)| {
            let found = i64::from_le_bytes(word.try_into().expect("eight bytes"));
            let wanted = expected(i);
            let Op { kind, .. } = op;
            let which = || format!("process {} call {number} ({kind:?}) element {i}", self.me);
            (found != wanted).then(|| format!("{}: {found:#x}, not {wanted:#x}", which()))
        })
    }
}

/// What a process contributes at a place: no two are alike.
fn value(op: usize, process: usize, i: u64) -> i64 {
    tweed_rng::mix((op as u64) << 40 | (process as u64) << 32 | i) as i64 >> 8
}

/// The name of a process.
pub(super) fn uid(process: usize) -> String {
    format!("process-{process}")
}
