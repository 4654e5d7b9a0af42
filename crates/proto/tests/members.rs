//! What one process does, without others: `crates/sim` has many of them.

use tweed_proto::members::{
    Action, Epoch, Member, Message, Node, Record, Seat, Settings, Standing, Voters, Witness,
};

const ME: Member = Member { key: [9; 32], incarnation: 5 };
const OLD: Member = Member { key: [8; 32], incarnation: 1 };

fn member(id: u8) -> Member {
    Member { key: [id; 32], incarnation: 1 }
}

fn seat() -> Seat {
    Seat { of: OLD.key, address: "here:1".into() }
}

fn candidate() -> Node {
    Node::witness(ME, None, seat(), Vec::new(), Settings::new(1, 8))
}

/// Epoch `number` of two members, in which this one decides.
fn epoch(number: u64, voter: Member) -> Epoch {
    let voters = Voters::Witnesses(vec![Witness { member: voter, address: "there:1".into() }]);
    Epoch { number, ..Epoch::first(vec![member(1), member(2)], voters) }
}

fn stored(node: &mut Node) -> Vec<Record> {
    let actions = std::iter::from_fn(|| node.poll());
    actions
        .filter_map(|action| if let Action::Store(record) = action { Some(record) } else { None })
        .collect()
}

/// Whom it asks for its seat, until it asks again.
fn asked(node: &mut Node) -> Vec<u8> {
    (0..Settings::new(1, 8).heartbeat).for_each(|_| node.handle_tick());
    let actions = std::iter::from_fn(|| node.poll());
    let to = |action| match action {
        Action::Send { to, message: Message::Join { .. } } => Some(to[0]),
        _ => None,
    };
    actions.filter_map(to).collect()
}

#[test]
fn a_new_witness_asks_all_that_have_come_to_be_linked() {
    let mut node = candidate();
    assert!(asked(&mut node).is_empty());
    node.handle_linked(member(1).key);
    node.handle_linked(ME.key);
    assert_eq!(asked(&mut node), [1]);
    node.handle_linked(member(2).key);
    node.handle_linked(member(1).key);
    assert_eq!(asked(&mut node), [1, 2]);
    node.handle_message(member(1).key, Message::Decided(epoch(2, ME)));
    assert!(asked(&mut node).is_empty());
}

#[test]
fn what_a_witness_has_stored_is_of_a_run_once_an_epoch_names_it() {
    let mut node = candidate();
    let from = member(1).key;
    assert_eq!(stored(&mut node).iter().map(|record| &record.epoch).collect::<Vec<_>>(), [&None]);
    node.handle_message(from, Message::Decided(epoch(2, OLD)));
    assert!(stored(&mut node).is_empty());
    node.handle_message(from, Message::Decided(epoch(3, ME)));
    let named = stored(&mut node).pop().expect("it is in");
    node.handle_message(from, Message::Decided(epoch(4, OLD)));
    let replaced = stored(&mut node).pop().expect("it was in");
    assert_eq!(replaced.epoch, Some(epoch(4, OLD)));
    for (record, standing) in [(named, Standing::Settled), (replaced, Standing::Evicted)] {
        let mut again = Node::restored(record, seat(), vec![from], Settings::new(1, 8));
        assert_eq!(again.standing(), standing);
        assert!(asked(&mut again).is_empty());
        assert_eq!(again.standing(), standing);
    }
}
