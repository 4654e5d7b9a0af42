//! A node that leaves: what it had sent arrives, and what it had under way ends.

mod support;

use std::sync::Barrier;

use support::{complete, join, options, request, PATIENCE};
use tweed_kernels::ReduceOp;
use tweed_net::{EngineError, Node, Operation, Segment};

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
