//! A node that leaves: what it had sent arrives, and what it had under way ends.

mod strangers;
mod support;

use std::io::Read;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::{mpsc, Barrier};
use std::time::{Duration, Instant};

use strangers::field;
use support::{complete, join, options, request, PATIENCE};
use tweed_kernels::ReduceOp;
use tweed_net::{EngineError, GroupConfig, GroupSpec, Node, Operation, Segment};

fn nodes(wire_only: bool) -> (Vec<Node>, Vec<Vec<u8>>) {
    let nodes: Vec<Node> = (0..2).map(|_| Node::start(options(wire_only)).expect("a node starts")).collect();
    let descriptors = nodes.iter().map(Node::descriptor).collect();
    (nodes, descriptors)
}

#[test]
fn what_was_sent_arrives_at_a_call_that_comes_later() {
    for wire_only in [false, true] {
        let ((nodes, descriptors), left) = (nodes(wire_only), Barrier::new(2));
        let results = join(&nodes, &descriptors, &[], PATIENCE, |group, rank| {
            let group = group.expect("ranks meet");
            let mut data = vec![if rank == 0 { 3f32 } else { 0.0 }; 50_000];
            let segment = vec![Segment { data: data.as_mut_ptr().into(), bytes: 200_000 }];
            if rank == 0 {
                let send = Operation::Send { to: 1, tag: 0 };
                complete(&group, request(send, segment, vec![], ReduceOp::Sum)).expect("it is sent");
                nodes[0].leave();
                left.wait();
            } else {
                left.wait();
                let receive = Operation::Receive { from: Some(0), tag: 0 };
                complete(&group, request(receive, vec![], segment, ReduceOp::Sum)).expect("it had been sent");
            }
            data
        });
        assert!(results[1].iter().all(|&x| x == 3.0));
    }
}

#[test]
fn a_call_under_way_is_aborted_and_later_ones_are_refused() {
    for wire_only in [false, true] {
        let ((nodes, descriptors), left) = (nodes(wire_only), Barrier::new(2));
        join(&nodes, &descriptors, &[], PATIENCE, |group, rank| {
            let group = group.expect("ranks meet");
            let mut place = [0f32];
            let mut receive = || {
                let segment = vec![Segment { data: place.as_mut_ptr().into(), bytes: 4 }];
                request(Operation::Receive { from: Some(1 - rank), tag: 0 }, vec![], segment, ReduceOp::Sum)
            };
            if rank == 0 {
                // SAFETY: `place` outlives the operation, which `leave` ends.
                let op = unsafe { group.submit(receive()) };
                nodes[0].leave();
                assert!(matches!(op.error(), Some(EngineError::Aborted(_))), "{:?}", op.error());
                left.wait();
            } else {
                left.wait();
                let lost = complete(&group, receive()).expect_err("rank 0 has not sent");
                assert!(matches!(lost, EngineError::PeerLost(_)), "{lost:?}");
            }
        });
        nodes[0].leave();
    }
}

/// `leave` closes the groups that it knows of, and this one comes about after it has looked.
#[test]
fn a_group_that_comes_about_while_the_node_leaves_is_refused() {
    let (mut nodes, _) = nodes(true);
    // The first calls, and the second listens only once it joins.
    nodes.sort_by_key(|node| field(&node.descriptor(), "uid"));
    let descriptors: Vec<_> = nodes.iter().map(Node::descriptor).collect();
    let spec = |rank| GroupSpec {
        name: "late".into(),
        number: 3,
        rank,
        descriptors: descriptors.clone(),
        rows: vec![],
        timeout: PATIENCE,
        config: GroupConfig::default(),
    };
    let (has_left, left) = mpsc::channel();
    let joined = std::thread::scope(|scope| {
        let (second, spec) = (&nodes[1], &spec);
        scope.spawn(move || {
            left.recv().expect("the first leaves");
            second.join(spec(1)).map(|_| ())
        });
        nodes[0].join_unless(spec(0), &|| {
            nodes[0].leave();
            let _ = has_left.send(());
            false
        })
    });
    let Err(EngineError::Usage(text)) = joined.map(|_| ()) else { panic!("it has left") };
    assert!(text.contains("has left the network"), "{text}");
}

#[test]
fn who_calls_from_this_host_and_is_silent_holds_up_no_end() {
    let node = Node::start(options(false)).expect("a node starts");
    let name = SocketAddr::from_abstract_name(field(&node.descriptor(), "local")).unwrap();
    let mut callers = [(); 3].map(|()| UnixStream::connect_addr(&name).unwrap());
    // By its first words all are being heard.
    callers.iter_mut().for_each(|caller| caller.read_exact(&mut [0; 3]).unwrap());
    let begin = Instant::now();
    node.leave();
    callers.iter_mut().for_each(|caller| drop(caller.read_to_end(&mut Vec::new())));
    assert!(
        begin.elapsed() < Duration::from_secs(2),
        "an introduction may take longer: {:?}",
        begin.elapsed()
    );
    assert!(UnixStream::connect_addr(&name).is_err(), "nobody listens any more");
}
