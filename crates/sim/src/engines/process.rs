//! One process: its engine, its locks, its threads, its calls.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use tweed_kernels::{DType, ReduceOp};
use tweed_proto::engine::config::GroupConfig;
use tweed_proto::engine::driving::Workers;
use tweed_proto::engine::members::{Members, Tuning, SELF};
use tweed_proto::engine::request::{Operation, Request, Segment};
use tweed_proto::engine::{Draft, Engine, EngineError, Peer, Settings, Time};
use tweed_proto::Reach;
use tweed_schedule::Collective;

use super::host::{peer_of, SimHost};
use super::kernel::{CallId, Kernel, ThreadId};
use super::scenario::{plan, Kind, Op, Scenario, AHEAD_BYTES, DEADLINE};
use super::thread::{Callback, Incoming, Program, Role, Source, Thread, Watching, Working};

/// A call, for its caller.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) op: usize,
    /// Where its value lies.
    pub(super) at: u64,
    pub(super) result: Option<Result<(), EngineError>>,
    pub(super) callback: Option<Callback>,
}

/// See the module's documentation.
pub(super) struct Process {
    pub(super) me: usize,
    pub(super) engine: Engine<SimHost>,
    pub(super) lock: Option<ThreadId>,
    pub(super) seat: Option<ThreadId>,
    pub(super) workers: Workers<Callback>,
    pub(super) threads: Vec<Thread>,
    pub(super) calls: Vec<Call>,
    /// By operation of the scenario.
    pub(super) call_of: BTreeMap<usize, CallId>,
    pub(super) members: Vec<Arc<Members>>,
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
        let n = scenario.hosts.len();
        let host = SimHost { me, kernel: Rc::clone(kernel) };
        let settings = Settings { deadline: Some(DEADLINE), records: false, leases: 64, ahead_bytes: ahead };
        let mut engine = Engine::new(host, settings);
        let others: Vec<usize> = (0..n).filter(|&q| q != me).collect();
        let mut sources = BTreeSet::new();
        for &q in &others {
            let (shared, streams) = {
                let kernel = kernel.borrow();
                (kernel.neighbours[me][q], kernel.streams(me, q))
            };
            engine.peers.add(Peer::new(format!("process-{q}"), format!("host-{q}"), shared, streams));
            sources.extend((0..streams).map(|stream| Source::Stream(q, stream)));
            sources.extend(shared.then_some(Source::Process(q)));
        }
        let groups = (0..scenario.groups).map(|number| Arc::new(members(me, number, scenario)));
        let members: Vec<Arc<Members>> = groups.collect();
        for group in &members {
            engine.open_group(Arc::clone(group)).expect("numbers differ");
        }
        let mut threads =
            vec![Thread::new(0, Role::Watcher(Watching::Idle)), Thread::new(1, Role::Worker(Working::Next))];
        for script in &scenario.scripts[me] {
            let program =
                Program { script: script.iter().cloned().collect(), doing: super::thread::Doing::Next };
            threads.push(Thread::new(threads.len(), Role::Caller(program)));
        }
        Process {
            me,
            engine,
            lock: None,
            seat: None,
            workers: Workers::new(),
            threads,
            calls: Vec::new(),
            call_of: BTreeMap::new(),
            members,
            sources,
            incoming: BTreeMap::new(),
            stopped: None,
            alive: true,
            closed: BTreeSet::new(),
        }
    }

    /// Makes a call ready: its memory is filled with this rank's values.
    pub(super) fn draft(
        &mut self,
        number: usize,
        op: &Op,
        now: Time,
        kernel: &RefCell<Kernel>,
    ) -> Draft<CallId> {
        let group = Arc::clone(&self.members[op.group as usize]);
        let bytes = op.numel * 8;
        let at = kernel.borrow_mut().user_memory(self.me, bytes, op.shared);
        let values = (0..op.numel).flat_map(|i| value(number, self.me, i).to_le_bytes()).collect::<Vec<_>>();
        kernel.borrow_mut().write(self.me, Kernel::address(self.me, at), &values);
        let segment = Segment { data: Kernel::address(self.me, at), bytes };
        let call = self.calls.len();
        let callback = op.then.map(|op| Callback { op });
        self.calls.push(Call { op: number, at, result: None, callback });
        self.call_of.insert(number, call);
        let (me, n) = (self.me as u32, group.ranks());
        let both = (vec![segment], vec![segment]);
        let (operation, plan, (inputs, outputs)) = match op.kind {
            Kind::Send(from, to) if me == from => {
                let operation = Operation::Send { to, tag: 0 };
                (operation, group.single_send(0), (vec![segment], Vec::new()))
            }
            Kind::Send(from, _) => {
                let operation = Operation::Receive { from: Some(from), tag: 0 };
                (operation, group.single_send(1), (Vec::new(), vec![segment]))
            }
            Kind::AllReduce(_) => {
                let operation = Operation::Collective { what: Collective::AllReduce, root: 0 };
                (operation, plan(op.kind, n, me), both)
            }
            Kind::Broadcast(root) => {
                let operation = Operation::Collective { what: Collective::Broadcast, root };
                (operation, plan(op.kind, n, me), both)
            }
        };
        let request = Request {
            operation,
            dtype: DType::I64,
            reduce_op: ReduceOp::Sum,
            factor: 1.0,
            priority: op.priority,
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
        let n = self.members[op.group as usize].ranks() as usize;
        let expected = |i: u64| match op.kind {
            Kind::AllReduce(_) => (0..n).fold(0i64, |sum, rank| sum.wrapping_add(value(number, rank, i))),
            Kind::Broadcast(root) | Kind::Send(root, _) => value(number, root as usize, i),
        };
        let bytes = kernel.read(Kernel::address(self.me, at), op.numel * 8);
        (0..op.numel).zip(bytes.chunks_exact(8)).find_map(|(i, word)| {
            let found = i64::from_le_bytes(word.try_into().expect("eight bytes"));
            let wanted = expected(i);
            (found != wanted).then(|| {
                format!(
                    "process {} call {number} ({:?}) element {i}: {found:#x}, not {wanted:#x}",
                    self.me, op.kind
                )
            })
        })
    }
}

/// What a rank contributes at a place: no two are alike.
fn value(op: usize, rank: usize, i: u64) -> i64 {
    crate::rng::mix((op as u64) << 40 | (rank as u64) << 32 | i) as i64 >> 8
}

fn members(me: usize, number: u32, scenario: &Scenario) -> Members {
    let n = scenario.hosts.len();
    let near = |q: usize| q == me || scenario.hosts[q] == scenario.hosts[me];
    Members {
        number,
        name: format!("group {number}"),
        rank: me as u32,
        peers: (0..n).map(|q| if q == me { SELF } else { peer_of(me, q) }).collect(),
        reach: (0..n).map(|q| if near(q) { Reach::Shared } else { Reach::Wire }).collect(),
        has_wires: scenario.hosts.iter().any(|&host| host != scenario.hosts[0]),
        tuning: Tuning { piece_bytes: scenario.piece_bytes, window: scenario.window },
        timeout: DEADLINE * 4,
        config: GroupConfig::default(),
        endpoint: None,
    }
}

/// What a sender may be ahead in a run.
pub(super) fn ahead_bytes(sabotage: Option<super::scenario::Sabotage>) -> u64 {
    match sabotage {
        Some(super::scenario::Sabotage::NoBackPressure) => u64::MAX / 4,
        _ => AHEAD_BYTES,
    }
}
