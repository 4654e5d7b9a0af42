//! What a process does with what others send it: no link stands, so what it sends them is kept.

use std::sync::mpsc::channel;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tweed_proto::hub::MostQueued;
use tweed_proto::objects::{Costs, Format, Message, ObjectId, Order, Process, Stream, SMALL_BYTES};

use super::peers::process_of;
use super::state::State;
use crate::connect::descriptor::PeerDescriptor;
use crate::hub::{HubLinks, HubOptions};
use crate::secure::hex;

const COSTS: Costs =
    Costs { latency: Duration::from_micros(50), rate: 1 << 30, message: Duration::from_micros(20) };
const OBJECT: ObjectId = ObjectId(7);
const BLOCK: u64 = SMALL_BYTES;
static BYTES: [u8; BLOCK as usize] = [1; BLOCK as usize];

fn descriptor(key: Option<String>) -> PeerDescriptor {
    PeerDescriptor { wire_only: true, ..PeerDescriptor::new(key, None).unwrap() }
}

/// A process that knows two others.
fn state() -> (State, [Process; 2]) {
    let (secret, key_file, silence) = (None, None, Duration::from_secs(10));
    let most_queued = MostQueued { messages: 1000, longest: usize::MAX };
    let hub = HubOptions {
        secret,
        testbed: None,
        key_file,
        silence,
        patience: silence,
        most_bytes: 1 << 20,
        most_queued,
    };
    let links = Arc::new(HubLinks::open(hub).unwrap());
    let mut state = State::new(descriptor(None), COSTS, 1 << 30, links, channel().0);
    let others = [2, 3].map(|number| {
        let key = [number; 32];
        assert!(state.peers.expect(key, descriptor(Some(hex(&key)))));
        state.member.handle_joined(process_of(&key));
        process_of(&key)
    });
    (state, others)
}

/// It is told to pull from this one. Returns the pull.
fn feed(state: &mut State, from: Process) -> Stream {
    let (format, generation, view) = (Format { size: 4 * BLOCK, kind: 0 }, 0, u32::MAX);
    let order = Order::Feed { object: OBJECT, format, generation, from, view, block: BLOCK };
    state.member.handle_message(from, Message::Order(order));
    state.drive();
    *state.inflows.last_key_value().unwrap().0
}

#[test]
fn a_feeder_that_is_to_stop_is_waited_for_until_its_time_is_up_and_what_it_still_sends_is_counted() {
    let (mut state, [one, other]) = state();
    state.member.get(OBJECT);
    let stream = feed(&mut state, one);
    assert!(state.take_block(one, stream, 0, &BYTES));
    let now = Instant::now();
    assert_eq!((feed(&mut state, other), state.timers.len()), (stream, 1));

    state.expire(now);
    state.drive();
    assert!(state.inflows.contains_key(&stream) && state.next_deadline().is_some_and(|until| until > now));
    state.expire(now + Duration::from_secs(1));
    state.drive();
    let next = *state.inflows.last_key_value().unwrap().0;
    assert!(next > stream && state.inflows.len() == 1 && state.next_deadline().is_none());

    assert!(state.take_block(one, stream, BLOCK, &BYTES) && state.taken_twice == BLOCK);
    state.take_stopped(one, stream);
    assert!(
        state.take_block(one, stream, BLOCK, &BYTES) && state.taken_twice == BLOCK,
        "nothing follows that"
    );
    assert!((1..4).all(|block| state.take_block(other, next, block * BLOCK, &BYTES)));
    assert_eq!(state.member.standing(OBJECT).map(|standing| standing.1), Some(4 * BLOCK));
}

#[test]
fn a_feeder_that_stops_in_time_costs_nothing() {
    let (mut state, [one, other]) = state();
    state.member.get(OBJECT);
    let stream = feed(&mut state, one);
    assert!(state.take_block(one, stream, 0, &BYTES));
    feed(&mut state, other);
    assert!(state.take_block(one, stream, BLOCK, &BYTES)); // it was under way
    state.take_stopped(one, stream);
    state.drive();
    let next = *state.inflows.last_key_value().unwrap().0;
    assert!((2..4).all(|block| state.take_block(other, next, block * BLOCK, &BYTES)));
    assert_eq!(
        (state.member.standing(OBJECT).map(|standing| standing.1), state.taken_twice),
        (Some(4 * BLOCK), 0)
    );
}
