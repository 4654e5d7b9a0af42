//! Scripted traces: what is lost or late is chosen packet by packet.

mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use support::pair::{good, message, reliable, Fate, Pair, DELAY, LONG};
use tweed_proto::ltp::frame::Frame;
use tweed_proto::ltp::{BadPacket, Closing, Event, MessageId, Outgoing, Settings, Transmit};

fn settings() -> Settings {
    Settings { payload_ceiling: 1200, ..Settings::default() }
}

fn pair() -> Pair {
    Pair::new(&[settings(), settings()])
}

fn nothing(_: usize, _: &Transmit) -> Fate {
    Fate::new()
}

fn is_data(transmit: &Transmit) -> bool {
    matches!(transmit, Transmit::Data { .. })
}

/// The frames of a CONTROL packet.
fn frames(transmit: &Transmit) -> Vec<Frame> {
    match transmit {
        Transmit::Control { body, .. } => Frame::decode(body).expect("it was encoded"),
        Transmit::Data { .. } | Transmit::Repair { .. } => Vec::new(),
    }
}

fn has(transmit: &Transmit, wanted: fn(&Frame) -> bool) -> bool {
    frames(transmit).iter().any(wanted)
}

fn is_open(frame: &Frame) -> bool {
    matches!(frame, Frame::Open(_))
}

fn is_close(frame: &Frame) -> bool {
    matches!(frame, Frame::Close(_))
}

/// Loses the first `count` packets that are `wanted`.
fn losing(mut count: usize, wanted: impl Fn(&Transmit) -> bool) -> impl FnMut(usize, &Transmit) -> Fate {
    move |_, transmit| {
        if count > 0 && wanted(transmit) {
            count -= 1;
            return Fate::new();
        }
        vec![DELAY]
    }
}

/// Goes on until the round trip is known.
fn warm(pair: &mut Pair) {
    let until = pair.now + Duration::from_millis(100);
    while pair.step(until, &mut good) {}
}

/// Everything that leaves one side now.
fn burst(pair: &mut Pair, from: usize) -> Vec<Transmit> {
    let mut out = Vec::new();
    pair.flush(&mut |side, transmit| {
        if side == from {
            out.push(transmit.clone());
        }
        good(side, transmit)
    });
    out
}

fn offsets(burst: &[Transmit]) -> Vec<(u32, u32)> {
    let offset = |transmit: &Transmit| match *transmit {
        Transmit::Data { offset, len, .. } => Some((offset, len)),
        Transmit::Control { .. } | Transmit::Repair { .. } => None,
    };
    burst.iter().filter_map(offset).collect()
}

#[test]
fn the_whole_first_pass_is_lost() {
    for lossy in [false, true] {
        let mut pair = pair();
        let id = pair.send(0, Outgoing { lossy, ..message(20_000) });
        assert!(pair.run(LONG, &mut losing(18, is_data)));
        assert_eq!(pair.ends[0].given[&id].delivered, Some(Vec::new()));
        assert!(pair.now < Duration::from_secs(1), "it took {:?}", pair.now);
    }
}

#[test]
fn the_last_packet_is_lost() {
    let mut pair = pair();
    warm(&mut pair);
    let began = pair.now;
    pair.send(0, reliable(10_000));
    assert!(
        pair.run(LONG, &mut losing(1, |transmit| matches!(transmit, Transmit::Data { prompt: true, .. })))
    );
    assert!(pair.now - began < 10 * DELAY, "it took {:?}", pair.now - began);
}

#[test]
fn close_is_told_until_the_sender_has_it() {
    for count in [1, 2, 5] {
        let mut pair = pair();
        let id = pair.send(0, message(5000));
        assert!(pair.run(LONG, &mut losing(count, |transmit| has(transmit, is_close))));
        assert_eq!(pair.ends[0].given[&id].delivered, Some(Vec::new()));
    }
}

#[test]
fn nothing_closes_before_it_is_announced() {
    let closing = Closing { fraction: 0.0, slack: Duration::ZERO, deadline: Some(DELAY) };
    let settings = Settings { closing, ..settings() };
    let mut pair = Pair::new(&[settings.clone(), settings]);
    let id = pair.send(0, message(5000));
    let until = Duration::from_secs(1);
    while pair.step(until, &mut |_, transmit| {
        if has(transmit, is_open) {
            nothing(0, transmit)
        } else {
            vec![DELAY]
        }
    }) {}
    assert_eq!(pair.ends[0].given[&id].received, None);
    assert!(pair.run(LONG, &mut good));
}

#[test]
fn a_path_that_drops_everything_for_a_second() {
    let mut pair = pair();
    warm(&mut pair);
    pair.send(0, reliable(3_000_000));
    let begins = pair.now + DELAY * 3;
    while pair.step(begins, &mut good) {}
    let ends = pair.now + Duration::from_secs(1);
    while pair.step(ends, &mut nothing) {}
    assert!(pair.run(LONG, &mut good));
    assert!(pair.now - ends < Duration::from_millis(500), "it took {:?} to recover", pair.now - ends);
}

/// Offsets in the order in which they leave, where the third packet is lost.
fn order(what: Outgoing) -> Vec<u32> {
    let closing = Closing { fraction: 0.8, ..Closing::default() };
    let mut pair = Pair::new(&[(); 2].map(|()| Settings { closing, ..settings() }));
    warm(&mut pair);
    let mut order = Vec::new();
    pair.send(0, what);
    pair.run(LONG, &mut |_, transmit| {
        let Transmit::Data { offset, .. } = *transmit else { return vec![DELAY] };
        order.push(offset);
        if order.len() == 3 {
            Fate::new()
        } else {
            vec![DELAY]
        }
    });
    order
}

#[test]
fn lost_bytes_leave_last_where_their_receiver_may_close_without_them_and_else_at_once() {
    let (lossy, whole) = (order(message(400_000)), order(reliable(400_000)));
    let again = |order: &[u32]| order.iter().skip(3).position(|&offset| offset == order[2]).map(|at| at + 3);
    let fresh = lossy.iter().collect::<BTreeSet<_>>().len();
    assert!(again(&lossy).is_some_and(|at| at >= fresh), "{lossy:?}");
    assert!(again(&whole).is_some_and(|at| at < whole.len() / 2), "{whole:?}");
}

#[test]
fn critical_bytes_leave_first() {
    let mut pair = pair();
    warm(&mut pair);
    pair.send(0, Outgoing { critical: vec![9000..9004, 100..104], ..message(12_000) });
    let sent = burst(&mut pair, 0);
    assert!(has(&sent[0], is_open));
    assert_eq!(offsets(&sent)[..2], [(96, 16), (8992, 16)], "widened to units, in their order");
    let critical = |transmit: &&Transmit| matches!(transmit, Transmit::Data { critical: true, .. });
    assert_eq!(sent.iter().filter(critical).count(), 2);
}

#[test]
fn packets_in_a_row_are_neighbours_of_equal_length() {
    let mut pair = pair();
    warm(&mut pair);
    pair.send(0, message(30_000));
    let mut sent = Vec::new();
    assert!(pair.run(LONG, &mut |_, transmit| {
        sent.push(transmit.clone());
        vec![DELAY]
    }));
    let sent = offsets(&sent);
    let breaks = sent.windows(2).filter(|pair| pair[0].0 + pair[0].1 != pair[1].0).count();
    assert_eq!(breaks, 1, "only where the first pass goes around");
    assert_eq!(sent.iter().filter(|(_, len)| *len != 1168).count(), 1, "and only its last packet is shorter");
}

#[test]
fn first_passes_begin_elsewhere_in_every_round() {
    let begin = |round| {
        let mut pair = pair();
        warm(&mut pair);
        pair.send(0, Outgoing { round, ..message(30_000) });
        offsets(&burst(&mut pair, 0))[0].0
    };
    let begins: BTreeSet<u32> = (0..10).map(begin).collect();
    assert!(begins.len() > 7, "{begins:?}");
}

#[test]
fn a_message_begins_once_the_one_before_has_left() {
    let mut pair = pair();
    warm(&mut pair);
    pair.send(0, message(2_000_000));
    pair.send(0, message(1000));
    let (mut order, mut first) = (Vec::new(), 0);
    assert!(pair.run(LONG, &mut |_, transmit| {
        match transmit {
            Transmit::Data { message: MessageId(0), len, .. } => first += len,
            Transmit::Data { .. } => order.push(first),
            _ if frames(transmit)
                .iter()
                .any(|frame| matches!(frame, Frame::Open(open) if open.message == 1)) =>
            {
                order.push(first);
            }
            Transmit::Control { .. } | Transmit::Repair { .. } => {}
        }
        vec![DELAY]
    }));
    assert!(order.iter().all(|first| *first == 2_000_000), "{order:?}");
}

#[test]
fn acknowledgements_come_in_batches() {
    let mut pair = pair();
    pair.send(0, reliable(5_000_000));
    assert!(pair.run(LONG, &mut good));
    let [forth, back] = [pair.ends[0].sent, pair.ends[1].sent];
    assert!(back * 10 < forth, "{back} packets answer {forth}");
}

#[test]
fn cancelled_messages_leave_nothing_behind() {
    let mut pair = pair();
    warm(&mut pair);
    let (id, later) = (pair.send(0, message(100_000)), pair.send(0, message(1000)));
    let until = pair.now + DELAY * 2;
    while pair.step(until, &mut good) {}
    pair.cancel(0, id);
    assert!(pair.run(LONG, &mut good), "the next message takes its turn");
    assert_eq!(pair.ends[0].given[&id].received, None);
    assert_eq!(pair.ends[0].given[&later].delivered, Some(Vec::new()));
    let unsent = pair.send(0, message(1000));
    pair.cancel(0, unsent);
    pair.cancel(0, unsent);
    assert!(burst(&mut pair, 0).is_empty(), "nobody has heard of it");
}

#[test]
fn a_long_list_of_missing_ranges_comes_in_parts() {
    let closing = Closing { fraction: 1.0, slack: Duration::ZERO, deadline: Some(Duration::from_secs(20)) };
    let settings = Settings { closing, ..settings() };
    let mut pair = Pair::new(&[settings.clone(), settings]);
    warm(&mut pair);
    let id = pair.send(0, message(1_000_000));
    let (mut count, mut parts) = (0, BTreeSet::new());
    assert!(pair.run(LONG, &mut |_, transmit| {
        parts.extend(frames(transmit).into_iter().filter_map(|frame| match frame {
            Frame::Close(close) => Some((close.part, close.parts)),
            _ => None,
        }));
        count += 1;
        let lost = match transmit {
            Transmit::Data { offset, .. } => offset / 1168 % 3 == 0,
            Transmit::Control { .. } => has(transmit, is_close) && count % 3 == 0,
            Transmit::Repair { .. } => true,
        };
        if lost {
            Fate::new()
        } else {
            vec![DELAY]
        }
    }));
    let missing = pair.ends[0].given[&id].delivered.clone().expect("it is over");
    assert!(missing.len() > 256, "{}", missing.len());
    assert_eq!(parts.len(), missing.len().div_ceil(128));
}

#[test]
fn larger_packets_are_found_and_used() {
    let mut pair =
        Pair::new(&[Settings::default(), Settings { payload_ceiling: 1452, ..Settings::default() }]);
    pair.send(0, reliable(1_000_000));
    // The path carries no more than 9,000 bytes.
    let mut carries = |_: usize, transmit: &Transmit| match transmit {
        Transmit::Control { body, .. } if body.len() > 9000 - 16 => Fate::new(),
        _ => vec![DELAY],
    };
    assert!(pair.run(LONG, &mut carries));
    while pair.step(LONG, &mut carries) {}
    assert_eq!(pair.ends[0].link.metrics().payload, 8952);
    assert_eq!(pair.ends[1].link.metrics().payload, 1452);
}

#[test]
fn a_path_that_begins_to_drop_large_packets() {
    let mut pair = Pair::new(&[Settings::default(), Settings::default()]);
    warm(&mut pair);
    assert!(pair.ends[0].link.metrics().payload > 60_000);
    pair.send(0, reliable(3_000_000));
    let mut narrow = |_: usize, transmit: &Transmit| match transmit {
        Transmit::Data { len, .. } if *len > 1400 => Fate::new(),
        Transmit::Control { body, .. } if body.len() > 1400 => Fate::new(),
        _ => vec![DELAY],
    };
    let began = pair.now;
    assert!(pair.run(LONG, &mut narrow));
    assert!(pair.now - began < Duration::from_secs(2), "it took {:?}", pair.now - began);
}

#[test]
fn a_sender_keeps_to_what_was_agreed_on_and_a_receiver_holds_it() {
    let few = Settings { most_open: 1, ..settings() };
    let mut pair = Pair::new(&[few.clone(), few.clone()]);
    for _ in 0..5 {
        pair.send(0, message(3000));
    }
    assert!(pair.run(LONG, &mut good));

    let mut pair = Pair::new(&[settings(), Settings { most_bytes: 4000, ..few }]);
    pair.send(0, message(5000));
    let packets = burst(&mut pair, 0);
    let header = tweed_proto::ltp::Header::decode(&packets[0].header(0)).expect("it was encoded");
    let Transmit::Control { body, .. } = &packets[0] else { panic!("OPEN comes first") };
    assert_eq!(pair.ends[1].link.handle(pair.now, &header, body), Err(BadPacket::TooMuch(5000)));
}

#[test]
fn what_arrives_in_the_instant_of_closing_counts_or_is_not_placed() {
    let deadline = DELAY * 3;
    let closing = Closing { fraction: 1.0, slack: Duration::ZERO, deadline: Some(deadline) };
    for packet_first in [true, false] {
        let mut sender = tweed_proto::ltp::Link::new(settings());
        let mut receiver = tweed_proto::ltp::Link::new(Settings { closing, ..settings() });
        sender.send(message(3000));
        let mut packets = Vec::new();
        while let Some(packet) = sender.poll_transmit(Duration::ZERO) {
            packets.push(packet);
        }
        let last = packets.pop().expect("there are some");
        let mut arrive = |now, packet: &Transmit, values: bool| {
            let header = tweed_proto::ltp::Header::decode(&packet.header(0)).expect("it was encoded");
            let body = match packet {
                Transmit::Control { body, .. } => body.clone(),
                Transmit::Data { len, .. } => {
                    [&packet.body_head().expect("it is DATA")[..], &vec![1; *len as usize]].concat()
                }
                Transmit::Repair { .. } => unreachable!("nothing was lost"),
            };
            if !values {
                receiver.handle_timeout(now);
            }
            let place = receiver.handle(now, &header, &body).expect("it is well-formed");
            receiver.handle_timeout(now);
            (place.is_some(), receiver.poll_event())
        };
        for packet in &packets {
            assert_eq!(arrive(Duration::ZERO, packet, true).1, None);
        }
        let (placed, event) = arrive(deadline, &last, packet_first);
        let Some(Event::Received { missing, .. }) = event else { panic!("it closes now") };
        assert_eq!(placed, packet_first);
        assert_eq!(missing.is_empty(), packet_first);
    }
}
