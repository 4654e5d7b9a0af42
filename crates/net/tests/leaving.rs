//! A node that leaves: what it had sent arrives, and what it had under way ends.

mod strangers;
mod support;

use std::io::Read;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::{mpsc, Barrier};
use std::time::{Duration, Instant};

use strangers::field;
use support::{complete, descriptors, join, request, spec, start, PATIENCE};
use tweed_kernels::ReduceOp;
use tweed_net::{EngineError, Operation, Segment};

#[test]
fn what_was_sent_arrives_at_a_call_that_comes_later() {
    for wire_only in [false, true] {
        let (nodes, left) = ([start(wire_only), start(wire_only)], Barrier::new(2));
        let results = join(&nodes, &descriptors(&nodes), &[], PATIENCE, |group, rank| {
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
        let (nodes, left) = ([start(wire_only), start(wire_only)], Barrier::new(2));
        join(&nodes, &descriptors(&nodes), &[], PATIENCE, |group, rank| {
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
    let mut nodes = [start(true), start(true)];
    // The first calls, and the second listens only once it joins.
    nodes.sort_by_key(|node| field(&node.descriptor(), "uid"));
    let descriptors = descriptors(&nodes);
    let spec = |rank| spec(3, rank, &descriptors, vec![]);
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
    let node = start(false);
    let name = SocketAddr::from_abstract_name(field(&node.descriptor(), "local")).unwrap();
    let mut callers = [(); 3].map(|()| UnixStream::connect_addr(&name).unwrap());
    // By its first words all are being heard.
    callers.iter_mut().for_each(|caller| caller.read_exact(&mut [0; 3]).unwrap());
    let begin = Instant::now();
    node.leave();
    callers.iter_mut().for_each(|caller| drop(caller.read_to_end(&mut Vec::new())));
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(2), "an introduction may take longer: {took:?}");
    assert!(UnixStream::connect_addr(&name).is_err(), "nobody listens any more");
}
