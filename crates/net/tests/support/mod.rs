//! Ranks as threads of one process, each with a node of its own. Each file of tests uses its part of this.

#![allow(dead_code)]

use std::sync::{Arc, Barrier};
use std::time::Duration;

use tweed_kernels::{DType, ReduceOp};
use tweed_net::{
    Admission, EngineError, Group, GroupConfig, GroupSpec, Ltp, Node, NodeOptions, Op, Operation, PlanRow,
    Ports, Request, Secret, Segment,
};
use tweed_schedule::{Collective, Draft, Schedule, Send};

/// How long a group may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// How the ranks of a test reach each other.
pub(crate) fn options(wire_only: bool) -> NodeOptions {
    NodeOptions {
        host: [127, 0, 0, 1].into(),
        ports: Ports::default(),
        streams: 2,
        congestion: None,
        wire_only,
        traces: None,
        deadline: None,
        admission: Admission::default(),
    }
}

/// A node that reaches others in that way.
pub(crate) fn start(wire_only: bool) -> Node {
    Node::start(options(wire_only)).expect("a node starts")
}

/// A node that lets in whom `change` says.
pub(crate) fn start_with(wire_only: bool, change: impl FnOnce(&mut Admission)) -> Node {
    let mut options = options(wire_only);
    change(&mut options.admission);
    Node::start(options).expect("a node starts")
}

pub(crate) fn secret(text: &str) -> Option<Secret> {
    Some(Secret::new(text).expect("it is long enough"))
}

pub(crate) fn descriptors(nodes: &[Node]) -> Vec<Vec<u8>> {
    nodes.iter().map(Node::descriptor).collect()
}

/// What a rank says of its group.
pub(crate) fn spec(number: u32, rank: u32, descriptors: &[Vec<u8>], rows: Vec<PlanRow>) -> GroupSpec {
    let (descriptors, config) = (descriptors.to_vec(), GroupConfig::default());
    let missing = Vec::new();
    let (hash, epoch) = (number.into(), None);
    GroupSpec {
        name: "test".into(),
        hash,
        epoch,
        rank,
        descriptors,
        missing,
        rows,
        timeout: PATIENCE,
        config,
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
    let nodes: Vec<Node> = (0..ranks).map(|_| start(wire_only)).collect();
    let barrier = Barrier::new(ranks as usize);
    join_with(&nodes, &descriptors(&nodes), &rows, (PATIENCE, config), |group, rank| {
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
    let spec = |rank| {
        let (timeout, config) = (patience, config.clone());
        GroupSpec { timeout, config, ..spec(7, rank, descriptors, rows.to_vec()) }
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
    let schedule = Arc::new(Schedule::new(draft).expect("a right schedule"));
    PlanRow { collective, up_to_bytes: None, schedule, in_flight_bytes: None, piece_bytes: None }
}

/// All ordered pairs of ranks.
pub(crate) fn pairs(n: u32) -> impl Iterator<Item = (u32, u32)> {
    (0..n).flat_map(move |a| (0..n).filter(move |&b| b != a).map(move |b| (a, b)))
}

/// Reduce-scatter to the owners, then all-gather from them.
pub(crate) fn pairwise(n: u32) -> PlanRow {
    let to_owner = pairs(n).map(|(src, owner)| Send::new(0, src, owner, owner, true));
    let from_owner = pairs(n).map(|(owner, dst)| Send::new(1, owner, dst, owner, false));
    row(Collective::AllReduce, n, n, to_owner.chain(from_owner).collect())
}

/// Everybody sends everything to everybody.
pub(crate) fn exchange(n: u32) -> PlanRow {
    row(Collective::AllReduce, n, 1, pairs(n).map(|(a, b)| Send::new(0, a, b, 0, true)).collect())
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
    let operation = Operation::Collective { what: Collective::AllReduce, root: 0 };
    request(operation, vec![segment], vec![segment], reduce_op)
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
        urgency: 0,
        blocking: true,
        inputs,
        outputs,
        shape,
        timeout: None,
    }
}

/// Submits a request, and waits for its end.
pub(crate) fn complete(group: &Group, request: Request) -> Result<(), EngineError> {
    // SAFETY: tests keep their buffers until the operation has ended.
    let op: Arc<Op> = unsafe { group.submit(request) };
    while !group.wait(&op, Some(Duration::from_secs(30))) {}
    op.result().expect("it has ended")
}

/// What rank `rank` contributes at a place.
pub(crate) fn value(rank: u32, index: usize) -> f32 {
    (rank as usize * 31 + index % 97) as f32
}

/// Takes the sum of [`value`]s, three times over the same memory.
pub(crate) fn sum_three_times(group: &Group, rank: u32, data: &mut [f32]) {
    for _ in 0..3 {
        data.iter_mut().enumerate().for_each(|(i, x)| *x = value(rank, i));
        complete(group, all_reduce(data, ReduceOp::Sum)).expect("the sum is taken");
    }
}

/// Ranks that disagree on a shape are told what each of them has called.
pub(crate) fn check_disagreement(wire_only: bool, config: GroupConfig) {
    let results = run_with(3, wire_only, vec![pairwise(3)], config, |group, rank| {
        let mut data = vec![0f32; 4 + rank as usize];
        complete(group, all_reduce(&mut data, ReduceOp::Sum)).expect_err("shapes differ")
    });
    for error in results {
        let EngineError::ShapeMismatch(text) = error else { panic!("{error:?}") };
        for rank in 0..3 {
            let called = format!("rank {rank}: all_reduce SUM float32 [{}]", 4 + rank);
            assert!(text.contains(&called), "{text}");
        }
    }
}

/// A rank that never calls is named at the others.
pub(crate) fn check_absence(wire_only: bool, config: GroupConfig) {
    let results = run_with(3, wire_only, vec![pairwise(3)], config, |group, rank| {
        let mut data = vec![0f32; 400];
        let timeout = Some(Duration::from_millis(50));
        if rank == 2 {
            return Ok(());
        }
        complete(group, Request { timeout, ..all_reduce(&mut data, ReduceOp::Sum) })
    });
    for error in results.into_iter().take(2) {
        let Err(EngineError::Deadline(text)) = error else { panic!("{error:?}") };
        assert!(text.contains("culprit: rank 2"), "{text}");
    }
}

/// Sends meet receives of their tag, in order; one receive is from anybody. In packets a send ends when they are there;
/// its receive may be called later.
pub(crate) fn check_tags(wire_only: bool, config: GroupConfig) {
    let results = run_with(2, wire_only, vec![], config, |group, rank| {
        let mut data = [[10f32], [20.0], [30.0]];
        let tags = if rank == 0 { [1, 2, 1] } else { [2, 1, 1] };
        for (value, tag) in data.iter_mut().zip(tags) {
            let segment = vec![Segment { data: value.as_mut_ptr().into(), bytes: 4 }];
            let from = Some(0).filter(|_| tag != 2);
            let (operation, inputs, outputs) = match rank {
                0 => (Operation::Send { to: 1, tag }, segment, vec![]),
                _ => (Operation::Receive { from, tag }, vec![], segment),
            };
            complete(group, request(operation, inputs, outputs, ReduceOp::Sum)).expect("it arrives");
        }
        data.concat()
    });
    assert_eq!(results[1], [20.0, 10.0, 30.0]);
}
