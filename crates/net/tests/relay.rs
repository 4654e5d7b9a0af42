//! Ranks that cannot call each other, and reach each other through a third one.
#![allow(clippy::disallowed_types, reason = "tests lock as they like")]

mod strangers;
mod support;

use std::sync::Mutex;

use strangers::{address, edit, Between};
use support::*;
use tweed_kernels::ReduceOp;
use tweed_net::{EngineError, Group, GroupConfig, GroupSpec, Node, Operation, PlanRow, Request, Segment};

const OURS: &str = "a secret of the tests";

/// Nodes by rank; `listen` says which of them listen.
fn nodes(listen: &[bool], text: Option<&str>) -> Vec<Node> {
    let start = |&listens: &bool| {
        start_with(true, |admission| {
            admission.secret = text.and_then(secret);
            admission.dial_only = !listens;
        })
    };
    listen.iter().map(start).collect()
}

/// Each joins a group in which these links are missing, and does that.
fn meet<T: std::marker::Send>(
    nodes: &[Node],
    descriptors: &[Vec<u8>],
    missing: &[(u32, u32)],
    (number, rows, config): (u32, Vec<PlanRow>, GroupConfig),
    body: impl Fn(&Group, u32) -> T + Sync,
) -> Vec<T> {
    let body = &body;
    let spec = |rank| GroupSpec {
        missing: missing.to_vec(),
        config: config.clone(),
        ..support::spec(number, rank, descriptors, rows.clone())
    };
    let done: Vec<_> = std::thread::scope(|scope| {
        let spawned = (0..).zip(nodes).map(|(rank, node)| {
            let joined = spec(rank);
            scope.spawn(move || {
                let group = node.join(joined).expect("they meet");
                (body(&group, rank), group)
            })
        });
        let spawned: Vec<_> = spawned.collect();
        spawned.into_iter().map(|thread| thread.join().expect("a rank ends well")).collect()
    });
    // Nobody leaves before all are done.
    done.into_iter().map(|(done, _)| done).collect()
}

/// All leave at once, as processes do: who is between waits for the others.
fn leave(nodes: Vec<Node>) {
    std::thread::scope(|scope| nodes.iter().for_each(|node| drop(scope.spawn(|| node.leave()))));
}

fn sum(group: &Group, rank: u32, numel: usize) -> Vec<f32> {
    let mut data = vec![0.0; numel];
    sum_three_times(group, rank, &mut data);
    data
}

fn right(ranks: u32, numel: usize) -> Vec<f32> {
    (0..numel).map(|i| (0..ranks).map(|rank| value(rank, i)).sum()).collect()
}

/// Rank `from` sends `values` to rank `to`.
fn transfer(group: &Group, (from, to): (u32, u32), values: &mut [f32]) -> Result<(), EngineError> {
    let segment = Segment { data: values.as_mut_ptr().into(), bytes: size_of_val(values) as u64 };
    let (operation, inputs, outputs) = match group.rank() {
        rank if rank == from => (Operation::Send { to, tag: 5 }, vec![segment], vec![]),
        rank if rank == to => (Operation::Receive { from: Some(from), tag: 5 }, vec![], vec![segment]),
        _ => return Ok(()),
    };
    complete(group, Request { shape: String::new(), ..request(operation, inputs, outputs, ReduceOp::Sum) })
}

#[test]
fn two_that_only_dial_out_are_full_members() {
    for text in [None, Some(OURS)] {
        let nodes = nodes(&[true, false, false, true], text);
        let cards = descriptors(&nodes);
        // Twice: in the second group the links of the first stand.
        for number in [1, 2] {
            let rows = vec![pairwise(4)];
            let got = meet(&nodes, &cards, &[], (number, rows, GroupConfig::default()), |group, rank| {
                let data = sum(group, rank, 300_000);
                let mut values: Vec<f32> = (0..1000).map(|i| (i * rank) as f32).collect();
                transfer(group, (1, 2), &mut values).expect("it arrives");
                (group.links(), data, values[999])
            });
            assert_eq!(got[1].0, ["tcp", "self", "relay", "tcp"]);
            assert_eq!(got[2].0, ["tcp", "relay", "self", "tcp"]);
            assert_eq!(got[0].0, ["self", "tcp", "tcp", "tcp"]);
            assert!(got.iter().all(|(_, data, _)| *data == right(4, 300_000)));
            assert_eq!(got[2].2, 999.0);
        }
        // Links that stand need nobody between that takes part.
        let both = &nodes[1..3];
        let got =
            meet(both, &cards[1..3], &[], (3, vec![pairwise(2)], GroupConfig::default()), |group, rank| {
                sum(group, rank, 1000)
            });
        assert_eq!(got, [right(2, 1000), right(2, 1000)]);
        leave(nodes);
    }
}

#[test]
fn where_values_go_in_packets_those_of_such_a_pair_go_over_its_stream() {
    let nodes = nodes(&[true, false, false], Some(OURS));
    let config = GroupConfig { ltp: Some(ltp()), ..GroupConfig::default() };
    let got = meet(&nodes, &descriptors(&nodes), &[], (1, vec![pairwise(3)], config), |group, rank| {
        let data = sum(group, rank, 300_000);
        (group.links(), data)
    });
    assert_eq!(got[1].0, ["ltp", "self", "relay"]);
    assert!(got.iter().all(|(_, data)| *data == right(3, 300_000)));
    leave(nodes);
}

#[test]
fn a_link_that_is_listed_as_missing_is_led_round_until_it_is_not() {
    let nodes = nodes(&[true, true, true], Some(OURS));
    let cards = descriptors(&nodes);
    let of = |number, missing: &[(u32, u32)]| {
        meet(&nodes, &cards, missing, (number, vec![pairwise(3)], GroupConfig::default()), |group, rank| {
            (group.links(), sum(group, rank, 1000))
        })
    };
    let straight = of(1, &[]);
    assert_eq!(straight[0].0, ["self", "tcp", "tcp"]);
    let round = of(2, &[(0, 2)]);
    assert_eq!(round[0].0, ["self", "tcp", "relay"]);
    assert_eq!(round[2].0, ["relay", "tcp", "self"]);
    assert!(round.iter().all(|(_, data)| *data == right(3, 1000)));
    let again = of(3, &[]);
    assert_eq!(again[0].0, ["self", "tcp", "tcp"]);
    assert!(again.iter().all(|(_, data)| *data == right(3, 1000)));
    leave(nodes);
}

#[test]
fn who_is_between_and_is_no_member_any_more_is_replaced() {
    let mut nodes = nodes(&[true, true, true, true], Some(OURS));
    let cards = descriptors(&nodes);
    let round =
        meet(&nodes, &cards, &[(0, 2)], (1, vec![], GroupConfig::default()), |group, _| group.links());
    assert_eq!(round[0], ["self", "tcp", "relay", "tcp"]);
    // By the first that both reach, which is not among the next ones, though it still runs.
    let between = Mutex::new(Some(nodes.remove(1)));
    let cards = [cards[0].clone(), cards[2].clone(), cards[3].clone()];
    meet(&nodes, &cards, &[(0, 1)], (2, vec![], GroupConfig::default()), |group, rank| {
        assert_eq!(group.links()[1 - rank.min(1) as usize], if rank < 2 { "relay" } else { "tcp" });
        let mut told = vec![7.0; 4];
        transfer(group, (2, 0), &mut told).expect("all are there");
        if rank == 0 {
            drop(between.lock().expect("nobody panicked").take());
        }
        transfer(group, (0, 2), &mut told).expect("it is gone");
        transfer(group, (0, 1), &mut told).expect("another one is between");
        assert_eq!(told, [7.0; 4]);
    });
    leave(nodes);
}

/// A pattern of bytes that nothing else sends, as values.
fn pattern() -> Vec<f32> {
    (0..4096).map(|i| f32::from_le_bytes([0x5a, (i % 251) as u8, 0xa5, 0x3c])).collect()
}

#[test]
fn who_is_between_sees_ciphertext_only() {
    for (text, clear) in [(None, true), (Some(OURS), false)] {
        let nodes = nodes(&[true, false, false], text);
        let between = Between::new(address(&nodes[0]), |_, _| {});
        let mut cards = descriptors(&nodes);
        cards[0] = edit(cards[0].clone(), "tcp", between.address());
        let got = meet(&nodes, &cards, &[], (1, vec![], GroupConfig::default()), |group, rank| {
            let mut values = if rank == 1 { pattern() } else { vec![0.0; 4096] };
            transfer(group, (1, 2), &mut values).expect("it arrives");
            values
        });
        assert_eq!(got[2], pattern());
        let sent: Vec<u8> = pattern()[..16].iter().flat_map(|x| x.to_le_bytes()).collect();
        let heard = between.recorded();
        let most = heard.iter().map(Vec::len).max();
        assert!(most.is_some_and(|bytes| bytes > 16_000), "it went that way: {most:?}");
        let seen = heard.iter().any(|bytes| bytes.windows(sent.len()).any(|window| window == sent));
        assert_eq!(seen, clear, "with a secret nobody between can read it");
        leave(nodes);
    }
}

/// The error of a transfer from rank 1 to rank 2, of three whose rank 0 is between them, after `happens` to its connections.
fn error_after(happens: impl Fn(&Between) + Sync) -> String {
    let nodes = nodes(&[true, false, false], Some(OURS));
    let between = Between::new(address(&nodes[0]), |_, _| {});
    let mut cards = descriptors(&nodes);
    cards[0] = edit(cards[0].clone(), "tcp", between.address());
    let errors = meet(&nodes, &cards, &[], (1, vec![], GroupConfig::default()), |group, rank| {
        transfer(group, (1, 2), &mut [0.0]).expect("it arrives");
        transfer(group, (2, 0), &mut [0.0]).expect("all are there");
        if rank == 0 {
            happens(&between);
        }
        // Nobody sends: it ends with the link.
        let waits = if rank == 2 { transfer(group, (1, 2), &mut [0.0]) } else { Ok(()) };
        waits.err().map(|e| e.to_string())
    });
    leave(nodes);
    errors.into_iter().flatten().next().expect("its link is gone")
}

#[test]
fn who_is_between_is_named_when_it_is_gone_and_not_who_sends() {
    let text = error_after(Between::cut);
    let through = text.contains("rank 1 on") && text.contains("who handed on what it sent");
    // Its own link to rank 2 was cut at the same moment, which may be heard of first.
    let itself = text.contains("rank 0 on") && text.contains("is gone");
    assert!(through || itself, "{text}");
}

#[test]
fn who_does_not_come_is_named_with_who_is_between() {
    let nodes = nodes(&[true, false, false], Some(OURS));
    let cards = descriptors(&nodes);
    let timeout = std::time::Duration::from_secs(2);
    let join = |rank: u32| {
        let spec = GroupSpec { timeout, ..support::spec(1, rank, &cards, vec![]) };
        nodes[rank as usize].join(spec).map(|_| ()).expect_err("rank 2 is missing").to_string()
    };
    let text = std::thread::scope(|scope| {
        let first = scope.spawn(|| join(0));
        let second = join(1);
        first.join().unwrap();
        second
    });
    let words = ["rank 2 on", "from rank 1", "through rank 0 on", "did not call in time"];
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
}
