//! Ranks as threads of one process, each with a node of its own. Each file of tests uses its part of this.

#![allow(dead_code)]

use std::sync::{Arc, Barrier};
use std::time::Duration;

use tweed_kernels::{DType, ReduceOp};
use tweed_net::{
    Admission, EngineError, Group, GroupConfig, GroupSpec, Ltp, Node, NodeOptions, Op, Operation, PlanRow,
    Request, Segment,
};
use tweed_schedule::{Collective, Draft, Schedule, Send};

/// How long a group may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// How the ranks of a test reach each other.
pub(crate) fn options(wire_only: bool) -> NodeOptions {
    NodeOptions {
        host: [127, 0, 0, 1].into(),
        streams: 2,
        congestion: None,
        wire_only,
        traces: None,
        deadline: None,
        admission: Admission::default(),
    }
}

/// Settings of the loss-tolerant transport that lose little.
pub(crate) fn ltp() -> Ltp {
    Ltp {
        fraction: 0.98,
        slack: Duration::from_millis(30),
        lossless: false,
        divide_by_delivered: false,
        return_lost: true,
        epoch: 100,
        cipher: "auto".into(),
    }
}

/// Runs `body` on `ranks` threads that share a group with these schedules; returns what it returned, by rank.
pub(crate) fn run<T: std::marker::Send>(
    ranks: u32,
    wire_only: bool,
    rows: Vec<PlanRow>,
    body: impl Fn(&Group, u32) -> T + Sync,
) -> Vec<T> {
    run_with(ranks, wire_only, rows, GroupConfig::default(), body)
}

/// As [`run`], with another configuration.
pub(crate) fn run_with<T: std::marker::Send>(
    ranks: u32,
    wire_only: bool,
    rows: Vec<PlanRow>,
    config: GroupConfig,
    body: impl Fn(&Group, u32) -> T + Sync,
) -> Vec<T> {
    let nodes: Vec<Node> =
        (0..ranks).map(|_| Node::start(options(wire_only)).expect("a node starts")).collect();
    let descriptors: Vec<Vec<u8>> = nodes.iter().map(Node::descriptor).collect();
    let barrier = Barrier::new(ranks as usize);
    join_with(&nodes, &descriptors, &rows, (PATIENCE, config), |group, rank| {
        let group = group.expect("ranks meet");
        let result = body(&group, rank);
        barrier.wait();
        result
    })
}

/// Has each node join a group on a thread of its own, with these descriptors, and runs `body` on what came of it.
pub(crate) fn join<T: std::marker::Send>(
    nodes: &[Node],
    descriptors: &[Vec<u8>],
    rows: &[PlanRow],
    patience: Duration,
    body: impl Fn(Result<Group, EngineError>, u32) -> T + Sync,
) -> Vec<T> {
    join_with(nodes, descriptors, rows, (patience, GroupConfig::default()), body)
}

fn join_with<T: std::marker::Send>(
    nodes: &[Node],
    descriptors: &[Vec<u8>],
    rows: &[PlanRow],
    (patience, config): (Duration, GroupConfig),
    body: impl Fn(Result<Group, EngineError>, u32) -> T + Sync,
) -> Vec<T> {
    let body = &body;
    let spec = |rank| GroupSpec {
        name: "test".into(),
        number: 7,
        rank,
        descriptors: descriptors.to_vec(),
        rows: rows.to_vec(),
        timeout: patience,
        config: config.clone(),
    };
    std::thread::scope(|scope| {
        let spawned: Vec<_> =
            (0..).zip(nodes).map(|(r, n)| scope.spawn(move || body(n.join(spec(r)), r))).collect();
        spawned.into_iter().map(|t| t.join().expect("a rank ends well")).collect()
    })
}

/// One schedule for all sizes.
pub(crate) fn row(collective: Collective, ranks: u32, chunks: u32, sends: Vec<Send>) -> PlanRow {
    let draft = Draft { name: "test".into(), collective, root: 0, ranks, chunks, sends, topology: None };
    PlanRow {
        collective,
        up_to_bytes: None,
        schedule: Arc::new(Schedule::new(draft).expect("a right schedule")),
    }
}

/// Reduce-scatter to the owners, then all-gather from them.
pub(crate) fn pairwise(n: u32) -> PlanRow {
    let pairs = || (0..n).flat_map(move |a| (0..n).filter(move |&b| b != a).map(move |b| (a, b)));
    let to_owner = pairs().map(|(src, owner)| Send::new(0, src, owner, owner, true));
    let from_owner = pairs().map(|(owner, dst)| Send::new(1, owner, dst, owner, false));
    row(Collective::AllReduce, n, n, to_owner.chain(from_owner).collect())
}

/// Everybody sends everything to everybody.
pub(crate) fn exchange(n: u32) -> PlanRow {
    let pairs = (0..n).flat_map(|a| (0..n).filter(move |&b| b != a).map(move |b| (a, b)));
    row(Collective::AllReduce, n, 1, pairs.map(|(a, b)| Send::new(0, a, b, 0, true)).collect())
}

/// Around a ring, twice.
pub(crate) fn ring(n: u32) -> PlanRow {
    let send = move |step: u32, rank: u32| {
        let reduce = step < n - 1;
        let chunk = if reduce { rank + n - step } else { rank + 2 * n - step };
        Send::new(step, rank, (rank + 1) % n, chunk % n, reduce)
    };
    row(Collective::AllReduce, n, n, (0..2 * (n - 1)).flat_map(|s| (0..n).map(move |r| send(s, r))).collect())
}

/// A request for an all-reduce in place.
pub(crate) fn all_reduce(data: &mut [f32], reduce_op: ReduceOp) -> Request {
    let segment = Segment { data: data.as_mut_ptr().into(), bytes: std::mem::size_of_val(data) as u64 };
    request(
        Operation::Collective { what: Collective::AllReduce, root: 0 },
        vec![segment],
        vec![segment],
        reduce_op,
    )
}

/// A request over f32.
pub(crate) fn request(
    operation: Operation,
    inputs: Vec<Segment>,
    outputs: Vec<Segment>,
    reduce_op: ReduceOp,
) -> Request {
    let shape = format!("{:?}", inputs.iter().map(|s| s.bytes / 4).collect::<Vec<_>>());
    Request {
        operation,
        dtype: DType::F32,
        reduce_op,
        factor: 1.0,
        priority: 0,
        blocking: true,
        inputs,
        outputs,
        shape,
        timeout: None,
    }
}

/// Submits and waits.
pub(crate) fn complete(group: &Group, request: Request) -> Result<(), tweed_net::EngineError> {
    // SAFETY: tests keep their buffers until the operation has ended.
    let op: Arc<Op> = unsafe { group.submit(request) };
    while !group.wait(&op, Some(Duration::from_secs(30))) {}
    op.result().expect("it has ended")
}
