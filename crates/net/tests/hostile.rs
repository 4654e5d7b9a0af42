//! Strangers, wrong secrets, bytes changed on the way: each ends in a clear error, and a run goes on unharmed.

mod strangers;
mod support;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as SocketAddrUnix, UnixStream};
use std::time::Duration;

use proptest::prelude::*;
use strangers::{address, edit, field, flood, relayed, until, Between, Counting, LARGEST};
use support::*;
use tweed_kernels::ReduceOp;
use tweed_net::parsers::PARSERS;
use tweed_net::{Admission, EngineError, Group, Node, NodeOptions, PlanRow};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// For groups that cannot come about.
const BRIEFLY: Duration = Duration::from_secs(2);
const OURS: &str = "a secret of the tests";

fn node(text: Option<&str>) -> Node {
    start_with(true, |admission| admission.secret = text.and_then(secret))
}

fn sum(group: Result<Group, EngineError>, rank: u32, numel: usize) -> Result<Vec<f32>, EngineError> {
    let group = group?;
    let mut data: Vec<f32> = (0..numel).map(|i| (rank as usize + i % 7) as f32).collect();
    for _ in 0..2 {
        data.iter_mut().enumerate().for_each(|(i, x)| *x = (rank as usize + i % 7) as f32);
        complete(&group, all_reduce(&mut data, ReduceOp::Sum))?;
    }
    Ok(data)
}

/// The nodes form a group and take sums, all of which are right.
fn check_sums(nodes: &[Node], row: PlanRow, numel: usize) {
    let n = nodes.len();
    for sums in join(nodes, &descriptors(nodes), &[row], PATIENCE, |group, rank| {
        sum(group, rank, numel).expect("a sum")
    }) {
        let right = |(i, x): (usize, &f32)| *x == (n * (n - 1) / 2 + n * (i % 7)) as f32;
        assert!(sums.iter().enumerate().all(right));
    }
}

/// What each rank that failed says of a group that cannot come about.
fn failures(nodes: &[Node], descriptors: &[Vec<u8>]) -> Vec<String> {
    let failed = join(nodes, descriptors, &[], BRIEFLY, |group, _| group.err().map(|e| e.to_string()));
    failed.into_iter().flatten().collect()
}

fn refused(node: &Node, reason: &str) -> u64 {
    node.refused().iter().find(|(r, _)| *r == reason).map_or(0, |(_, count)| *count)
}

/// Sends `bytes` to the node, and reads its answer until it hangs up.
fn send(node: &Node, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(address(node)).unwrap();
    // The node may have hung up before all is sent.
    let _ = socket.write_all(bytes).and_then(|()| socket.shutdown(std::net::Shutdown::Write));
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    answer
}

fn preamble(version: u8, sealed: bool) -> Vec<u8> {
    let mut bytes = b"\x89tweed\r\n\0\0\0\0".to_vec();
    (bytes[9], bytes[10]) = (version, u8::from(sealed));
    bytes
}

/// Calls a node that listens only once a group needs it.
fn dial(node: &Node) -> TcpStream {
    let socket = std::cell::OnceCell::new();
    until("it listens", || TcpStream::connect(address(node)).is_ok_and(|s| socket.set(s).is_ok()));
    socket.into_inner().unwrap()
}

#[test]
fn sums_over_sealed_links() {
    for (ranks, build) in [(2, pairwise as fn(u32) -> PlanRow), (3, ring), (3, exchange)] {
        for numel in [0, 1, 1000, 300_000] {
            let nodes: Vec<Node> = (0..ranks).map(|_| node(Some(OURS))).collect();
            check_sums(&nodes, build(ranks), numel);
        }
    }
}

#[test]
fn who_only_dials_out_is_a_full_member() {
    for listener in 0..3 {
        let nodes: Vec<Node> = (0..2)
            .map(|rank| {
                start_with(true, |admission| {
                    admission.secret = secret(OURS);
                    admission.dial_only = rank != listener && listener < 2;
                })
            })
            .collect();
        check_sums(&nodes, pairwise(2), 1000);
    }
}

#[test]
fn two_that_only_dial_out_get_an_error_that_says_so() {
    let nodes = [0, 1].map(|_| start_with(true, |admission| admission.dial_only = true));
    let errors = failures(&nodes, &descriptors(&nodes));
    assert_eq!(errors.len(), 2);
    for error in errors {
        assert!(["rank 0", "rank 1", "only dial out"].iter().all(|part| error.contains(part)), "{error}");
    }
}

#[test]
fn a_member_with_another_secret_is_named_on_both_sides() {
    for (secret, says) in [(Some("another secret entirely"), "wrong secret"), (None, "secret")] {
        let nodes = [node(Some(OURS)), node(secret)];
        let errors = join(&nodes, &descriptors(&nodes), &[], BRIEFLY, |group, _| group.err().unwrap());
        for (rank, error) in errors.into_iter().enumerate() {
            let EngineError::Usage(text) = error else { panic!("{error:?}") };
            assert!(text.contains(&format!("rank {}", 1 - rank)) && text.contains(says), "{text}");
        }
    }
}

#[test]
fn strangers_are_counted_by_reason_and_the_run_goes_on() {
    let nodes = [node(Some(OURS)), node(Some(OURS))];
    let protocol: u8 = field(&nodes[0].descriptor(), "protocol").parse().unwrap();
    let cases: [(&str, Vec<u8>); 7] = [
        ("not tweed", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        ("version", preamble(protocol + 1, true)),
        ("sealed or not", preamble(protocol, false)),
        ("hung up", Vec::new()),
        ("hung up", preamble(protocol, true)),
        ("garbled", [preamble(protocol, true), vec![1, 0xff, 0xff, 0]].concat()),
        ("garbled", [preamble(protocol, true), vec![1, 0, 4, 1, 2, 3, 4]].concat()),
    ];
    for (reason, bytes) in cases {
        let before = refused(&nodes[0], reason);
        send(&nodes[0], &bytes);
        until(reason, || refused(&nodes[0], reason) == before + 1);
    }
    check_sums(&nodes, pairwise(2), 1000);
}

#[test]
fn who_does_not_speak_is_sent_away_in_time() {
    let admission = Admission { secret: secret(OURS), ..Admission::default() };
    // An introduction may then take three seconds, the least there is.
    let deadline = Some(Duration::from_secs(1));
    let node = Node::start(NodeOptions { admission, deadline, ..options(true) }).expect("a node starts");
    let mut socket = TcpStream::connect(address(&node)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    // A byte now and then does not help: there is one limit for all.
    let hung_up = |socket: &mut TcpStream| match socket.read(&mut [0; 64]) {
        Ok(bytes) => bytes == 0,
        Err(e) => e.kind() != std::io::ErrorKind::WouldBlock,
    };
    let slow = preamble(0, true).into_iter().take(8).chain(std::iter::repeat(0));
    for byte in slow.take(9) {
        socket.write_all(&[byte]).unwrap();
        assert!(!hung_up(&mut socket));
    }
    while !hung_up(&mut socket) {}
    until("late", || refused(&node, "late") == 1);
}

#[test]
fn who_has_not_read_the_descriptors_takes_nobodys_place() {
    let nodes = [node(None), node(None)];
    let victim = field(&nodes[1].descriptor(), "uid");
    check_sums(&nodes, pairwise(2), 1000);
    // It knows the uid of a member, a port and the protocol; only the nonce is missing.
    let called = nodes.iter().find(|n| TcpStream::connect(address(n)).is_ok()).expect("one of them listens");
    let before = refused(called, "stranger");
    let guess = edit(called.descriptor(), "nonce", "0".repeat(32));
    let mut socket = TcpStream::connect(address(called)).unwrap();
    assert_eq!(strangers::introduce(&mut socket, &guess, &victim), None);
    until("it is counted", || refused(called, "stranger") == before + 1);
}

#[test]
fn a_neighbour_that_has_not_read_the_descriptors_gets_no_memory() {
    let node = start(false);
    let call = |descriptor: &[u8]| {
        let name = SocketAddrUnix::from_abstract_name(field(&node.descriptor(), "local")).unwrap();
        strangers::greet(UnixStream::connect_addr(&name).unwrap(), descriptor, "a stranger")
    };
    let names = std::fs::read_to_string("/proc/net/unix").unwrap();
    assert!(names.contains(&field(&node.descriptor(), "local")));
    for known in ["uid", "nonce"] {
        assert!(!names.contains(&field(&node.descriptor(), known)), "other users can read {known}");
    }
    assert_eq!(call(&edit(node.descriptor(), "nonce", "0".repeat(32))), None);
    until("it is counted", || refused(&node, "stranger") == 1);
    assert!(call(&node.descriptor()).is_some(), "who has read the descriptor goes on to the memory");
}

#[test]
fn what_a_descriptor_holds_does_not_depend_on_the_secret() {
    let [a, b] = [node(Some(OURS)), node(Some("another secret entirely"))].map(|n| n.descriptor());
    let values = |descriptor: &[u8]| -> Vec<String> {
        let fields: BTreeMap<String, serde_json::Value> = serde_json::from_slice(descriptor).unwrap();
        fields.into_keys().collect()
    };
    assert_eq!(values(&a), values(&b));
    // Random, made for the process, or a fact of the machine: nothing is derived from the secret.
    let random = ["uid", "nonce", "local", "key"];
    let facts =
        ["protocol", "host", "pid", "started", "pids", "boot", "network", "tcp", "wire_only", "broken"];
    let mut known: Vec<&str> = random.into_iter().chain(facts).collect();
    known.sort_unstable();
    assert_eq!(values(&a), known);
}

#[test]
fn a_neighbour_with_another_secret_is_named() {
    let nodes = [OURS, "another secret entirely"]
        .map(|text| start_with(false, |admission| admission.secret = secret(text)));
    let errors = failures(&nodes, &descriptors(&nodes));
    assert!(errors.len() == 2 && errors.iter().any(|e| e.contains("wrong secret")), "{errors:?}");
}

#[test]
fn three_thousand_callers_at_once_are_outlived() {
    let nodes = [node(Some(OURS)), node(Some(OURS))];
    // Of two that listen, the one with the greater name is called.
    let called = usize::from(field(&nodes[0].descriptor(), "uid") < field(&nodes[1].descriptor(), "uid"));
    let flood = flood(address(&nodes[called]), 3000);
    // On a busy machine the kernel drops most of them, and their calls come back in waves.
    let met = join(&nodes, &descriptors(&nodes), &[pairwise(2)], 3 * PATIENCE, |group, rank| {
        sum(group, rank, 1000)
    });
    assert!(met.iter().all(Result::is_ok), "{met:?}");
    until("a crowd", || refused(&nodes[called], "crowd") > 0);
    drop(flood);
}

#[test]
fn what_was_recorded_cannot_be_sent_again() {
    let nodes = [node(Some(OURS)), node(Some(OURS))];
    let between = nodes.each_ref().map(|n| Between::new(address(n), |_, _| {}));
    join(&nodes, &relayed(&nodes, &between), &[pairwise(2)], PATIENCE, |group, rank| {
        sum(group, rank, 1000).expect("a sum")
    });
    let called = usize::from(!between[1].recorded().is_empty());
    for recording in between[called].recorded() {
        let before = refused(&nodes[called], "secret");
        send(&nodes[called], &recording);
        until("a replay", || refused(&nodes[called], "secret") == before + 1);
    }
}

#[test]
fn a_mirror_is_not_a_member() {
    let nodes = [node(Some(OURS)), node(Some(OURS))];
    let mirrors = nodes.each_ref().map(|_| strangers::mirror());
    let descriptors: Vec<_> =
        nodes.iter().zip(mirrors).map(|(n, m)| edit(n.descriptor(), "tcp", m.to_string())).collect();
    let errors = failures(&nodes, &descriptors);
    assert!(errors.iter().any(|e| e.contains("what it sent is not")), "{errors:?}");
}

#[test]
fn a_member_that_speaks_for_another_is_not_believed() {
    let nodes = [node(Some(OURS)), node(Some(OURS)), node(Some(OURS))];
    let [honest, victim, _] = nodes.each_ref().map(Node::descriptor);
    // The descriptor of rank 1 leads to where rank 2 listens.
    let descriptors = [honest, victim].map(|d| edit(d, "tcp", address(&nodes[2]).to_string()));
    let errors = failures(&nodes[..2], &descriptors);
    let other_key = "its key is not the one on its descriptor";
    assert!(errors.iter().any(|e| e.contains(other_key)), "{errors:?}");
}

#[test]
fn a_bit_that_flips_on_the_way_ends_the_link_with_a_reason() {
    // The first offset lies in the handshake, the others in records.
    for offset in [40usize, 2000, 30_000] {
        let patience = if offset < 100 { BRIEFLY } else { PATIENCE };
        let nodes = [node(Some(OURS)), node(Some(OURS))];
        let flip = move |at: usize, bytes: &mut [u8]| {
            if let Some(byte) = offset.checked_sub(at).and_then(|i: usize| bytes.get_mut(i)) {
                *byte ^= 4;
            }
        };
        let between = nodes.each_ref().map(|n| Between::new(address(n), flip));
        let results = join(&nodes, &relayed(&nodes, &between), &[pairwise(2)], patience, |group, rank| {
            sum(group, rank, 100_000).err()
        });
        let texts: Vec<String> = results.iter().flatten().map(|e| e.to_string()).collect();
        let clear = ["was lost during", "cannot be reached", "is gone"];
        assert!(!texts.is_empty() && texts.iter().all(|t| clear.iter().any(|c| t.contains(c))), "{texts:?}");
        if offset > 1000 {
            assert!(texts.iter().any(|t| t.contains("has not sealed")), "{texts:?}");
        }
    }
}

#[test]
fn a_peer_that_sends_garbage_is_lost_with_a_reason() {
    let giant = [vec![5], vec![0; 31], vec![0xff; 4], vec![0; 12]].concat();
    let cases = [(giant, "claims to carry 4294967295 bytes"), (vec![0xee; 48], "not a message of tweed")];
    for (bytes, says) in cases {
        let real = node(None);
        // A member that this test plays itself: it dials out only, so it is the one that calls.
        let descriptor = edit(edit(real.descriptor(), "uid", "impostor"), "tcp", None::<&str>);
        let descriptors = [descriptor, real.descriptor()];
        let spec = spec(7, 1, &descriptors, vec![pairwise(2)]);
        let (group, mut socket) = std::thread::scope(|scope| {
            let group = scope.spawn(|| real.join(spec));
            let mut socket = dial(&real);
            strangers::introduce(&mut socket, &real.descriptor(), "impostor")
                .expect("it has read the descriptor");
            (group.join().unwrap(), socket)
        });
        let group = group.expect("who has read the descriptors is let in: there is no secret");
        socket.write_all(&bytes).unwrap();
        let mut data = [1f32; 4];
        let error = complete(&group, all_reduce(&mut data, ReduceOp::Sum)).unwrap_err();
        assert!(matches!(&error, EngineError::PeerLost(text) if text.contains(says)), "{error}");
    }
    let largest = LARGEST.load(std::sync::atomic::Ordering::Relaxed);
    assert!(largest < 4 << 20, "somebody took {largest} bytes at once");
}

proptest! {
    #[test]
    fn no_bytes_make_a_parser_panic_or_take_much(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        for (_, parse) in PARSERS {
            parse(&bytes);
        }
    }

    #[test]
    fn nor_do_bytes_that_begin_well(kind in 0u8..5, length in any::<u16>(), rest in proptest::collection::vec(any::<u8>(), 0..300)) {
        let bytes = [vec![kind], length.to_be_bytes().to_vec(), rest].concat();
        for (name, parse) in PARSERS {
            let accepted = parse(&bytes);
            prop_assert!(!accepted || !["call", "answer", "preamble"].contains(&name), "{name}");
        }
    }
}
