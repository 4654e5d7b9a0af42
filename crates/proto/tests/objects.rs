//! The planner of objects at one process: what it is asked to do, and what it says of what cannot be done.

use std::time::Duration;

use tweed_proto::objects::{
    Action, Costs, Failure, Format, Member, Message, Mode, ObjectId, Order, Process, Request, Rule, Stream,
    ROOT, SMALL_BYTES,
};

const COSTS: Costs = Costs { latency: Duration::from_micros(50), rate: 1 << 30, message: Duration::ZERO };
const FORMAT: Format = Format { size: 4 * SMALL_BYTES, kind: 0 };
const TARGET: ObjectId = ObjectId(9);

fn reduce(member: &mut Member, ids: &[u128]) {
    let (ids, count) = (ids.iter().copied().map(ObjectId).collect(), ids.len() as u32);
    let (mode, rule) = (Mode::Whole, Rule::Measured);
    member.reduce(Request { target: TARGET, ids, count, op: 0, mode, rule, costs: COSTS });
}

fn put_both(member: &mut Member) {
    [1, 2].into_iter().for_each(|id| member.put(ObjectId(id), FORMAT, FORMAT.size, None));
}

/// How the sum ends, if it does.
fn end(member: &mut Member) -> Option<Action> {
    std::iter::from_fn(|| next(member)).find(|action| !matches!(action, Action::Fold(_)))
}

/// Brings what is pulled, until there is a piece of arithmetic or a failure.
fn next(member: &mut Member) -> Option<Action> {
    while let Some(action) = member.poll() {
        match action {
            Action::Open { stream, pull, .. } => member.handle_block(stream, pull.end),
            Action::Fold(_) | Action::Failed { .. } | Action::Reduced { .. } => return Some(action),
            _ => {}
        }
    }
    None
}

#[test]
fn a_sum_whose_bytes_are_missing_fails_at_once() {
    let mut member = Member::new(1, [], COSTS);
    reduce(&mut member, &[1, 2]);
    put_both(&mut member);
    let Some(Action::Fold(fold)) = next(&mut member) else { panic!("nothing is added") };
    let why = Failure::Missing { target: TARGET, object: ObjectId(2), process: 1 };
    member.handle_unable(fold.target, fold.slot, why.clone());
    assert_eq!(end(&mut member), Some(Action::Failed { object: TARGET, why: why.clone() }));
    assert!(why.to_string().contains(&ObjectId(2).to_string()), "{why}");
    member.handle_unable(fold.target, fold.slot, why); // its slot is over
    assert_eq!(end(&mut member), None);
}

#[test]
fn a_sum_that_was_withdrawn_may_be_called_once_more() {
    let mut member = Member::new(1, [], COSTS);
    reduce(&mut member, &[1, 2]);
    put_both(&mut member);
    assert!(matches!(next(&mut member), Some(Action::Fold(_))));
    member.withdraw(TARGET);
    reduce(&mut member, &[1, 2]);
    let mut folded = 0;
    while let Some(action) = next(&mut member) {
        let Action::Fold(fold) = action else {
            assert!(matches!(action, Action::Reduced { .. }), "{action:?}");
            return;
        };
        folded = folded.max(fold.range.end);
        member.handle_folded(fold.target, fold.slot, fold.generation, fold.range.end);
    }
    panic!("it ends at {folded}");
}

#[test]
fn a_sum_that_is_complete_stays_whatever_its_sources_do() {
    let mut member = Member::new(1, [], COSTS);
    reduce(&mut member, &[1, 2]);
    put_both(&mut member);
    while let Some(Action::Fold(fold)) = next(&mut member) {
        let is_last = fold.slot == ROOT && fold.range.end == FORMAT.size;
        member.handle_folded(fold.target, fold.slot, fold.generation, fold.range.end);
        if is_last {
            member.delete(ObjectId(1)); // the directory hears of both, in this order
            break;
        }
    }
    assert!(matches!(end(&mut member), Some(Action::Reduced { .. })));
}

#[test]
fn what_was_deleted_is_remembered_for_a_while() {
    let mut member = Member::new(1, [], COSTS);
    let last = 1 << 17;
    for id in 0..=last {
        member.put(ObjectId(id), FORMAT, FORMAT.size, None);
        member.delete(ObjectId(id));
        while member.poll().is_some() {}
    }
    member.get(ObjectId(last));
    let why = Failure::Deleted { object: ObjectId(last) };
    assert_eq!(end(&mut member), Some(Action::Failed { object: ObjectId(last), why }));
    member.get(ObjectId(0)); // forgotten: as one that nobody has made
    assert_eq!(end(&mut member), None);
    member.put(ObjectId(0), FORMAT, FORMAT.size, None);
    assert_eq!(member.poll(), Some(Action::Got { object: ObjectId(0) }));
}

/// The process is told to pull an object from another one.
fn feed(member: &mut Member, from: Process) -> Vec<Action> {
    let (object, generation, view, block) = (TARGET, 0, 0, SMALL_BYTES);
    let order = Order::Feed { object, format: FORMAT, generation, from, view, block };
    member.handle_message(from, Message::Order(order));
    std::iter::from_fn(|| member.poll()).collect()
}

/// A process that pulls from 2 and has a block, and is told to pull from 3. Returns the stream, and how long 2 has to stop.
fn hand_over() -> (Member, Stream, Duration) {
    let mut member = Member::new(1, [2, 3], COSTS);
    member.get(TARGET);
    let stream = match *feed(&mut member, 2) {
        [.., Action::Open { stream, pull, .. }] if pull.from == 2 => stream,
        ref other => panic!("{other:?}"),
    };
    member.handle_block(stream, SMALL_BYTES);
    while member.poll().is_some() {}
    let after = match *feed(&mut member, 3) {
        [Action::Stop { stream: of }, Action::Timer { stream: timed, after }]
            if [of, timed] == [stream; 2] =>
        {
            after
        }
        ref other => panic!("{other:?}"),
    };
    (member, stream, after)
}

/// It pulls from 3 now, from this byte on.
fn goes_on(member: &mut Member, stream: Stream, from_byte: u64) {
    let actions: Vec<Action> = std::iter::from_fn(|| member.poll()).collect();
    let [Action::Close { stream: closed }, Action::Open { pull, .. }] = actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!((closed, pull.from, pull.offset), (stream, 3, from_byte));
}

#[test]
fn a_feeder_that_is_to_stop_may_send_what_is_under_way() {
    let (mut member, stream, _) = hand_over();
    member.handle_block(stream, 2 * SMALL_BYTES);
    assert_eq!(member.poll(), None);
    member.handle_stopped(stream);
    goes_on(&mut member, stream, 2 * SMALL_BYTES);
    member.handle_timeout(stream); // of no matter any more
    member.handle_stopped(stream);
    assert_eq!(member.poll(), None);
}

#[test]
fn a_feeder_that_is_to_stop_has_time_for_each_block_and_no_more() {
    let (mut member, stream, after) = hand_over();
    member.handle_block(stream, 2 * SMALL_BYTES);
    member.handle_timeout(stream);
    assert_eq!(member.poll(), Some(Action::Timer { stream, after }));
    member.handle_timeout(stream);
    goes_on(&mut member, stream, 2 * SMALL_BYTES);
    member.handle_block(stream, 3 * SMALL_BYTES); // too late: another brings it
    assert_eq!((member.poll(), member.standing(TARGET).unwrap().1), (None, 2 * SMALL_BYTES));
    let block = Duration::from_secs_f64(SMALL_BYTES as f64 / COSTS.rate as f64);
    assert!(after > 2 * COSTS.latency + block && after < Duration::from_secs(1), "{after:?}");
}
