//! How a group is made when something goes wrong on the way: ranks that die, links that break, crowds, interruptions.

mod strangers;
mod support;

use std::cell::Cell;
use std::net::TcpStream;
use std::os::fd::RawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as SocketAddrUnix, UnixStream};
use std::process::{Child, Command};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use strangers::{address, edit, field, relayed, until, Between};
use support::{
    all_reduce, complete, descriptors, join, ltp, options, pairwise, secret, start, start_with, PATIENCE,
};
use tweed_kernels::ReduceOp;
use tweed_net::{Admission, EngineError, Group, GroupConfig, GroupSpec, Node, NodeOptions};

fn spec(number: u32, rank: u32, descriptors: &[Vec<u8>]) -> GroupSpec {
    support::spec(number, rank, descriptors, Vec::new())
}

fn sum(group: &Group, rank: u32) -> Result<f32, EngineError> {
    let mut data = [rank as f32 + 1.0; 1000];
    complete(group, all_reduce(&mut data, ReduceOp::Sum))?;
    Ok(data[999])
}

/// The descriptor of another process, which does nothing; its uid makes it the one to call.
fn idle(like: &Node) -> (Child, Vec<u8>) {
    let child = Command::new("sleep").arg("600").spawn().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let started: u64 = stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap().parse().unwrap();
    let descriptor = edit(edit(like.descriptor(), "uid", "0".repeat(32)), "pid", child.id());
    (child, edit(descriptor, "started", started))
}

#[test]
fn a_rank_that_dies_before_it_has_met_anybody_is_named_at_once() {
    for wire_only in [false, true] {
        let node = start(wire_only);
        let (mut child, descriptor) = idle(&node);
        let asked = Cell::new(0);
        let timeout = Duration::from_secs(3600);
        let spec = GroupSpec { timeout, ..spec(1, 0, &[node.descriptor(), descriptor]) };
        let joined = node.join_unless(spec, &|| {
            // It dies while it is waited for.
            asked.set(asked.get() + 1);
            if asked.get() == 2 {
                // SAFETY: a plain system call; the process is a child of this one that nobody has waited for.
                unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGKILL) };
            }
            false
        });
        let Err(EngineError::PeerLost(text)) = joined.map(|_| ()) else { panic!("it is lost") };
        assert!(text.contains("rank 1 on") && text.contains("ended before the group was made"), "{text}");
        child.wait().unwrap();
    }
}

#[test]
fn who_waits_can_be_interrupted() {
    let node = start(true);
    let (mut child, descriptor) = idle(&node);
    let asked = Cell::new(0);
    let joined = node.join_unless(spec(1, 0, &[node.descriptor(), descriptor]), &|| {
        asked.set(asked.get() + 1);
        asked.get() == 3
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let Err(EngineError::Aborted(text)) = joined.map(|_| ()) else { panic!("it is interrupted") };
    assert!(text.contains("interrupted while it waited for rank 1"), "{text}");
}

#[test]
fn who_calls_somebody_that_does_not_answer_can_be_interrupted() {
    // It takes calls, and says nothing.
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let node = start(true);
    let (mut child, descriptor) = idle(&node);
    let descriptor = edit(descriptor, "tcp", mute.local_addr().unwrap().to_string());
    let descriptor = edit(descriptor, "uid", "f".repeat(32));
    let called = Cell::new(false);
    mute.set_nonblocking(true).unwrap();
    let joined = node.join_unless(spec(1, 0, &[node.descriptor(), descriptor]), &|| {
        called.set(called.get() || mute.accept().is_ok());
        called.get()
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(matches!(joined, Err(EngineError::Aborted(_))));
}

#[test]
fn nothing_listens_where_all_share_memory() {
    let nodes = [start(false), start(false)];
    let sums = join(&nodes, &descriptors(&nodes), &[pairwise(2)], PATIENCE, |g, rank| sum(&g.unwrap(), rank));
    assert_eq!(sums, [Ok(3.0), Ok(3.0)]);
    for node in &nodes {
        let refused = TcpStream::connect(address(node)).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    }
}

/// The nodes make a group of that number and take a sum; then `after` runs at each, before any of them leaves.
fn meet(
    nodes: &[Node],
    descriptors: &[Vec<u8>],
    (number, config): (u32, &GroupConfig),
    after: impl Fn(&Group, u32) + Sync,
) -> Vec<Result<f32, EngineError>> {
    let (done, after) = (Barrier::new(nodes.len()), &after);
    std::thread::scope(|scope| {
        let spawned: Vec<_> = (0..)
            .zip(nodes)
            .map(|(rank, node)| {
                let rows = vec![pairwise(nodes.len() as u32)];
                let spec = GroupSpec { rows, config: config.clone(), ..spec(number, rank, descriptors) };
                let done = &done;
                scope.spawn(move || {
                    let group = node.join(spec);
                    let sum = group.as_ref().map_err(Clone::clone).and_then(|g| sum(g, rank));
                    done.wait();
                    group.iter().for_each(|group| after(group, rank));
                    sum
                })
            })
            .collect();
        spawned.into_iter().map(|t| t.join().expect("a rank ends well")).collect()
    })
}

/// Two ranks make a group, something breaks their link, and they make the group anew: with a new link.
fn mend(
    nodes: &[Node; 2],
    descriptors: impl Fn() -> Vec<Vec<u8>>,
    config: &GroupConfig,
    cut: impl Fn() + Sync,
) {
    for round in 0..3 {
        let sums = meet(nodes, &descriptors(), (round, config), |group, rank| {
            if rank == 0 {
                cut();
            }
            // The loss shows as soon as somebody looks.
            let mut data = [0f32; 4];
            while complete(group, all_reduce(&mut data, ReduceOp::Sum)).is_ok() {}
        });
        assert_eq!(sums, [Ok(3.0), Ok(3.0)], "round {round}");
    }
}

#[test]
fn a_broken_wire_is_mended_by_a_new_group() {
    let lossy = GroupConfig { ltp: Some(ltp()), ..GroupConfig::default() };
    for (text, config) in
        [(None, GroupConfig::default()), (Some("a secret of the tests"), lossy.clone()), (None, lossy)]
    {
        let nodes = [(); 2].map(|()| start_with(true, |admission| admission.secret = text.and_then(secret)));
        let between = nodes.each_ref().map(|n| Between::new(address(n), |_, _| {}));
        mend(&nodes, || relayed(&nodes, &between), &config, || between.iter().for_each(Between::cut));
    }
}

#[test]
fn a_broken_link_between_neighbours_is_mended_too() {
    let nodes = [start(false), start(false)];
    let names: Vec<String> = nodes.iter().map(|n| field(&n.descriptor(), "local")).collect();
    mend(&nodes, || descriptors(&nodes), &GroupConfig::default(), || cut_local_sockets(&names));
}

/// Ends the connections of this process to the local sockets of these names.
fn cut_local_sockets(names: &[String]) {
    for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
        let fd: RawFd = entry.file_name().to_str().unwrap().parse().unwrap();
        if peer_name(fd).is_some_and(|name| names.contains(&name)) {
            // SAFETY: a plain system call.
            unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
        }
    }
}

/// The name of the local socket at the other end.
fn peer_name(fd: RawFd) -> Option<String> {
    // SAFETY: all zero is a valid address to be filled in.
    let mut peer: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    let mut bytes = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: the address is as long as said, and a descriptor that is no socket is refused.
    let connected = unsafe { libc::getpeername(fd, (&raw mut peer).cast(), &mut bytes) } == 0;
    let length = (bytes as usize).checked_sub(size_of::<libc::sa_family_t>() + 1)?;
    let local = connected && i32::from(peer.sun_family) == libc::AF_UNIX;
    local.then(|| peer.sun_path[1..=length].iter().map(|&c| c as u8 as char).collect())
}

#[test]
fn a_link_that_only_one_end_knows_to_be_broken_is_made_anew_by_both() {
    let nodes = [start(true), start(true)];
    let first = join(&nodes, &descriptors(&nodes), &[pairwise(2)], PATIENCE, |g, _| g.expect("they meet"));
    for broken in 0..2 {
        // What its descriptor would say, had it lost the link.
        let mut descriptors = descriptors(&nodes);
        let link = serde_json::json!([[field(&descriptors[1 - broken], "uid"), 1 + broken]]);
        descriptors[broken] = edit(nodes[broken].descriptor(), "broken", link);
        let groups = meet(&nodes, &descriptors, (20 + broken as u32, &GroupConfig::default()), |_, _| {});
        assert_eq!(groups, [Ok(3.0), Ok(3.0)]);
    }
    drop(first);
}

/// So many call at once.
const CROWD: usize = 100;

#[test]
fn a_crowd_of_callers_that_all_take_long_gets_in() {
    for text in [None, Some("a secret of the tests")] {
        let start = |dial_only| {
            let admission = Admission { secret: text.and_then(secret), dial_only, ..Admission::default() };
            Node::start(NodeOptions { admission, streams: 1, ..options(true) }).expect("a node starts")
        };
        let called = start(false);
        // Nobody is heard before all have called, so all are being introduced at once.
        let all = Arc::new(Barrier::new(CROWD));
        let hold = move |at: usize, _: &mut [u8]| {
            if at == 0 {
                all.wait();
            }
        };
        let between = Between::new(address(&called), hold);
        let far = edit(called.descriptor(), "tcp", between.address());
        let first = start(true);
        std::thread::scope(|scope| {
            // A group of its own makes the called one listen.
            let descriptors = [called.descriptor(), first.descriptor()];
            let opened = scope.spawn({
                let spec = spec(1, 0, &descriptors);
                || called.join(spec).map(|_| ())
            });
            first.join(spec(1, 1, &descriptors)).expect("the first gets in");
            opened.join().unwrap().expect("the first is heard");
            let callers: Vec<_> = (0..CROWD as u32)
                .map(|i| {
                    let far = far.clone();
                    scope.spawn(move || {
                        let node = start(true);
                        node.join(spec(100 + i, 1, &[far, node.descriptor()])).map(|_| ())
                    })
                })
                .collect();
            let joined: Vec<_> = callers.into_iter().map(|t| t.join().unwrap()).collect();
            let failed: Vec<_> = joined.iter().filter_map(|j| j.as_ref().err()).collect();
            assert!(failed.is_empty(), "{} did not get in: {}", failed.len(), failed[0]);
        });
    }
}

#[test]
fn who_has_called_and_says_no_more_makes_room() {
    // An introduction may then take three seconds, and one that stalls a quarter of that.
    let deadline = Some(Duration::from_secs(8));
    let nodes = [(); 2].map(|()| {
        let admission = Admission { secret: secret("a secret of the tests"), ..Admission::default() };
        Node::start(NodeOptions { admission, deadline, ..options(true) }).expect("a node starts")
    });
    let descriptors = descriptors(&nodes);
    let called = usize::from(field(&descriptors[0], "uid") < field(&descriptors[1], "uid"));
    let mut preamble = b"\x89tweed\r\n\0\0\x01\0".to_vec();
    preamble[9] = field(&descriptors[0], "protocol").parse().unwrap();
    let stalled: Vec<TcpStream> = (0..300)
        .map(|_| {
            let mut socket = TcpStream::connect(address(&nodes[called])).unwrap();
            std::io::Write::write_all(&mut socket, &preamble).unwrap();
            socket
        })
        .collect();
    let sums = meet(&nodes, &descriptors, (3, &GroupConfig::default()), |_, _| {});
    assert_eq!(sums, [Ok(3.0), Ok(3.0)]);
    until("a crowd", || nodes[called].refused().iter().any(|&(reason, n)| reason == "crowd" && n > 0));
    drop(stalled);
}

#[test]
fn a_crowd_of_silent_processes_of_this_host_makes_room() {
    let nodes = [start(false), start(false)];
    let descriptors = descriptors(&nodes);
    let called = usize::from(field(&descriptors[0], "uid") < field(&descriptors[1], "uid"));
    let name = SocketAddrUnix::from_abstract_name(field(&descriptors[called], "local")).unwrap();
    let silent: Vec<UnixStream> = (0..600).map(|_| UnixStream::connect_addr(&name).unwrap()).collect();
    let sums = meet(&nodes, &descriptors, (3, &GroupConfig::default()), |_, _| {});
    assert_eq!(sums, [Ok(3.0), Ok(3.0)]);
    until("a crowd", || nodes[called].refused().iter().any(|&(reason, n)| reason == "crowd" && n > 0));
    let greeting = threads_named("tweed-greet");
    assert!(greeting <= 2 * 256, "{greeting} threads hear callers out");
    drop(silent);
}

/// How many threads of this process have that name.
fn threads_named(name: &str) -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let called = |thread: &std::fs::DirEntry| std::fs::read_to_string(thread.path().join("comm"));
    threads.filter(|thread| called(thread).is_ok_and(|found| found.trim() == name)).count()
}
