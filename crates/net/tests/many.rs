//! Many ranks on one host, and many peers of one node: what each costs in descriptors, addresses and memory.
//!
//! Ranks are processes: this program again, told by an environment variable what to be. At full size:
//! `cargo test --release -p tweed-net --test many -- --ignored --nocapture --test-threads 1`

mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use support::{all_reduce, complete, options, row, start};
use tweed_kernels::ReduceOp;
use tweed_net::{Group, GroupSpec, Node, NodeOptions, PlanRow};
use tweed_schedule::{Collective, Send};

/// What a process is to be: a word, and a number.
const ROLE: &str = "TWEED_MANY";
/// Begins each line that is meant for the first process; the test harness prints others.
const MARK: &str = "many: ";
/// The patience for hundreds of processes on few cores.
const PATIENCE: Duration = Duration::from_secs(300);

/// What a process takes.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
struct Footprint {
    descriptors: f64,
    /// How much memory is shared with others.
    mapped_mib: f64,
    address_mib: f64,
    resident_mib: f64,
    threads: f64,
}

impl Footprint {
    fn now() -> Footprint {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let value = |name: &str| -> f64 {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        Footprint {
            descriptors: std::fs::read_dir("/proc/self/fd").unwrap().count() as f64,
            mapped_mib: mapped_bytes() as f64 / f64::from(1 << 20),
            address_mib: value("VmSize:") / 1024.0,
            resident_mib: value("VmRSS:") / 1024.0,
            threads: value("Threads:"),
        }
    }

    /// Over `before`, for each of `peers`.
    fn per_peer(self, before: Footprint, peers: u32) -> Footprint {
        let threads = self.threads - before.threads;
        Footprint { threads, ..self.zip(before, |now, then| (now - then) / f64::from(peers)) }
    }

    fn zip(self, other: Footprint, f: impl Fn(f64, f64) -> f64) -> Footprint {
        Footprint {
            descriptors: f(self.descriptors, other.descriptors),
            mapped_mib: f(self.mapped_mib, other.mapped_mib),
            address_mib: f(self.address_mib, other.address_mib),
            resident_mib: f(self.resident_mib, other.resident_mib),
            threads: f(self.threads, other.threads),
        }
    }
}

/// How much of engines' shared memory, this process's own and others', has addresses here.
fn mapped_bytes() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let bytes = |line: &str| {
        let (begin, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        u64::from_str_radix(end, 16).unwrap() - u64::from_str_radix(begin, 16).unwrap()
    };
    maps.lines().filter(|line| line.contains("memfd:tweed")).map(bytes).sum()
}

/// Another process of this program; it ends with its input.
struct Other {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Other {
    fn start(role: &str, number: u32) -> Other {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "another_process", "--nocapture"])
            .env(ROLE, format!("{role} {number}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process can be started");
        let (to, from) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Other { child, to, from }
    }

    fn send(&mut self, lines: &[String]) {
        let mut text = lines.join("\n");
        text.push('\n');
        self.to.as_mut().unwrap().write_all(text.as_bytes()).expect("it listens");
    }

    fn receive(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.from.read_line(&mut line).unwrap() > 0, "process {} ended early", self.child.id());
            // The harness leaves its own line unfinished.
            if let Some((_, text)) = line.trim_end().split_once(MARK) {
                return text.to_owned();
            }
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.to.take());
        let _ = self.child.wait();
    }
}

fn report(text: &str) {
    println!("{MARK}{text}");
}

fn read_line() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

#[test]
fn another_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (word, number) = role.split_once(' ').unwrap();
    let number = number.parse().unwrap();
    match word {
        "rank" => be_a_rank(number),
        "lost" => be_lost(start(false), number),
        "lost_by_tcp" => be_lost(start(true), number),
        _ => be_peers(number),
    }
}

fn text_of(node: &Node) -> String {
    String::from_utf8(node.descriptor()).unwrap()
}

/// The sum to rank 0 and back, each along a binomial tree.
fn tree(ranks: u32) -> PlanRow {
    let depth = 32 - (ranks - 1).leading_zeros();
    let pairs = |bit: u32| (1 << bit..ranks).step_by(2 << bit).map(move |far| (far, far - (1 << bit)));
    let there = (0..depth).flat_map(|bit| pairs(bit).map(move |(a, b)| Send::new(bit, a, b, 0, true)));
    let turn = |s: Send| Send::new(2 * depth - 1 - s.step, s.dst, s.src, 0, false);
    let back = there.clone().map(turn);
    row(Collective::AllReduce, ranks, 1, there.chain(back).collect())
}

fn spec(number: u32, rank: u32, descriptors: Vec<Vec<u8>>) -> GroupSpec {
    let rows = vec![tree(descriptors.len() as u32)];
    GroupSpec { timeout: PATIENCE, ..support::spec(number, rank, &descriptors, rows) }
}

fn sum(group: &Group) {
    let mut data = [1f32; 4];
    complete(group, all_reduce(&mut data, ReduceOp::Sum)).expect("a sum");
    assert_eq!(data[0], group.ranks() as f32);
}

fn be_a_rank(rank: u32) {
    let node = start(false);
    let before = Footprint::now();
    report(&text_of(&node));
    let ranks: u32 = read_line().parse().unwrap();
    let descriptors = (0..ranks).map(|_| read_line().into_bytes()).collect();
    let begin = Instant::now();
    let group = node.join(spec(7, rank, descriptors)).expect("ranks meet");
    let joined = begin.elapsed();
    sum(&group);
    report(&serde_json::to_string(&Footprint::now().per_peer(before, ranks - 1)).unwrap());
    report(&joined.as_secs_f64().to_string());
    read_line();
    // The first sums have waited for ranks that were not there yet.
    let begin = Instant::now();
    sum(&group);
    report(&begin.elapsed().as_secs_f64().to_string());
    read_line();
}

/// A third rank, until it is killed.
fn be_lost(node: Node, number: u32) {
    report(&text_of(&node));
    let mut descriptors: Vec<Vec<u8>> = (0..2).map(|_| read_line().into_bytes()).collect();
    descriptors.push(node.descriptor());
    let group = node.join(spec(number, 2, descriptors)).expect("it meets the others");
    sum(&group);
    read_line();
}

/// Two nodes of this process make a group, and take a sum; then `after` runs at each.
fn both(nodes: &[Node; 2], number: u32, descriptors: &[Vec<u8>], after: impl Fn(&Group) + Sync) {
    let summed = Barrier::new(2);
    std::thread::scope(|scope| {
        for (rank, node) in (0..).zip(nodes) {
            let (spec, after, summed) = (spec(number, rank, descriptors.to_vec()), &after, &summed);
            scope.spawn(move || {
                let group = node.join(spec).expect("they meet");
                sum(&group);
                summed.wait();
                after(&group);
            });
        }
    });
}

/// What this process has open after each time that its two nodes have met a third one, lost it, and met without it.
fn after_losses(role: &str, nodes: &[Node; 2], losses: u32) -> Vec<[u64; 3]> {
    let mut found = Vec::new();
    for number in 0..losses {
        let mut third = Other::start(role, 2 * number);
        let [first, second] = nodes.each_ref().map(Node::descriptor);
        let descriptors = [first, second, third.receive().into_bytes()];
        third.send(&nodes.each_ref().map(text_of));
        let process = third.child.id() as libc::pid_t;
        both(nodes, 2 * number, &descriptors, |group| {
            // SAFETY: a plain system call; the process is a child of this one that nobody has waited for.
            unsafe { libc::kill(process, libc::SIGKILL) };
            let mut data = [1f32; 4];
            while complete(group, all_reduce(&mut data, ReduceOp::Sum)).is_ok() {}
        });
        both(nodes, 2 * number + 1, &descriptors[..2], |_| {});
        drop(third);
        let Footprint { descriptors, mapped_mib, threads, .. } = Footprint::now();
        found.push([descriptors, mapped_mib, threads].map(|value| value as u64));
    }
    found
}

/// As many nodes, each of which knows only the process that it is a peer of.
fn be_peers(count: u32) {
    let first: u32 = read_line().parse().unwrap();
    let hub = read_line().into_bytes();
    let nodes: Vec<Node> = (0..count).map(|_| Node::start(over_tcp()).expect("a node starts")).collect();
    nodes.iter().for_each(|node| report(&text_of(node)));
    read_line();
    std::thread::scope(|scope| {
        let joining = (first..).zip(&nodes).map(|(number, node)| {
            let spec = spec(number, 1, vec![hub.clone(), node.descriptor()]);
            scope.spawn(move || node.join(spec).expect("a peer meets the hub"))
        });
        let joining: Vec<_> = joining.collect();
        let groups: Vec<Group> = joining.into_iter().map(|thread| thread.join().unwrap()).collect();
        report("joined");
        if read_line() == "sum" {
            sum(&groups[0]);
        }
        read_line();
    });
}

fn over_tcp() -> NodeOptions {
    NodeOptions { streams: 1, ..options(true) }
}

/// Starts as many ranks, which share memory, and gives the most that any of them takes per peer.
fn ranks_on_one_host(ranks: u32) -> Footprint {
    let begin = Instant::now();
    let mut all: Vec<Other> = (0..ranks).map(|rank| Other::start("rank", rank)).collect();
    let mut text = vec![ranks.to_string()];
    text.extend(all.iter_mut().map(Other::receive).collect::<Vec<_>>());
    let started = begin.elapsed();
    all.iter_mut().for_each(|rank| rank.send(&text));
    let footprints: Vec<Footprint> =
        all.iter_mut().map(|rank| serde_json::from_str(&rank.receive()).unwrap()).collect();
    let slowest = |all: &mut [Other]| {
        let spans = all.iter_mut().map(|rank| rank.receive().parse::<f64>().unwrap());
        spans.fold(0.0, f64::max)
    };
    let joined = slowest(&mut all);
    all.iter_mut().for_each(|rank| rank.send(&["again".into()]));
    let call = slowest(&mut all);
    let most = footprints.into_iter().reduce(|a, b| a.zip(b, f64::max)).unwrap();
    println!(
        "{ranks} ranks on one host: processes started in {:.1} s, group joined in {joined:.1} s, 16 bytes summed in {:.0} ms; \
         most per peer: {most:.2?}",
        started.as_secs_f64(),
        call * 1e3
    );
    most
}

/// One node in a group with as many others, each of which has joined it alone: all that this node has to hold. What it
/// takes per peer.
fn peers_of_one_node(peers: u32, per_process: u32) -> Footprint {
    let hub = Node::start(over_tcp()).expect("a node starts");
    let mut others: Vec<Other> =
        (0..peers / per_process).map(|_| Other::start("peers", per_process)).collect();
    let mut descriptors = vec![hub.descriptor()];
    for (first, other) in (0..).step_by(per_process as usize).zip(&mut others) {
        other.send(&[(100 + first).to_string(), text_of(&hub)]);
        descriptors.extend((0..per_process).map(|_| other.receive().into_bytes()));
    }
    let pair = vec![descriptors[0].clone(), descriptors[1].clone()];
    let before = Footprint::now();
    others.iter_mut().for_each(|other| other.send(&["join".into()]));
    let begin = Instant::now();
    let group = hub.join(GroupSpec { rows: vec![], ..spec(7, 0, descriptors) }).expect("all peers come");
    let joined = begin.elapsed();
    others.iter_mut().for_each(|other| assert_eq!(other.receive(), "joined"));
    // A thread that has made a link ends behind that, on a busy machine some time later.
    let settled = || Footprint::now().threads <= before.threads + f64::from(peers);
    while !settled() && begin.elapsed() < Duration::from_secs(10) {
        std::thread::yield_now();
    }
    let footprints = Footprint::now().per_peer(before, peers);
    let with_one = hub.join(spec(100, 0, pair)).expect("they have met");
    others[0].send(&["sum".into()]);
    let begin = Instant::now();
    sum(&with_one);
    println!(
        "one node with {peers} peers over TCP: joined in {:.1} s, 16 bytes summed with one of them in {:.1} ms; \
         per peer: {footprints:.3?}",
        joined.as_secs_f64(),
        begin.elapsed().as_secs_f64() * 1e3
    );
    drop(group);
    footprints
}

/// One test, as all of it looks at what this process has open.
#[test]
fn a_peer_costs_little_and_one_that_was_lost_nothing() {
    let near = ranks_on_one_host(32);
    assert!(near.descriptors <= 3.0, "a link's socket, the peer's memory, and its process");
    assert!(near.mapped_mib <= 16.0, "the first part of the peer's memory");
    let far = peers_of_one_node(40, 20);
    assert!(far.descriptors <= 1.0, "one stream");
    for footprints in [near, far] {
        assert!(footprints.resident_mib <= 0.5);
        assert!(footprints.threads <= 1.0, "threads do not grow with peers");
    }
    for (role, by_tcp) in [("lost", false), ("lost_by_tcp", true)] {
        let held = after_losses(role, &[start(by_tcp), start(by_tcp)], 50);
        // A thread may be about to end; what is not freed is there each time.
        let is_held = |what: usize| {
            let each = |rounds: &[[u64; 3]]| rounds.iter().map(|of| of[what]).collect::<Vec<_>>();
            each(&held[45..]).into_iter().min() > each(&held[5..10]).into_iter().max()
        };
        assert!(
            !(0..3).any(is_held),
            "descriptors, MiB of others' memory, threads after each loss: {held:?}"
        );
    }
}

#[test]
#[ignore = "takes a minute, and the machine"]
fn two_hundred_and_fifty_six_ranks_start_on_one_host() {
    ranks_on_one_host(256);
}

#[test]
#[ignore = "takes a minute, and the machine"]
fn a_thousand_peers_of_one_node_start() {
    peers_of_one_node(1000, 100);
}
