//! Parity: what is lost follows from the rest, bit by bit; and costs no round trip.

mod support;

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use support::pair::{good, reliable, Fate, Pair, DELAY, LONG};
use tweed_proto::ltp::packet::{DataHead, Header, Kind, RepairHead};
use tweed_proto::ltp::repair::Code;
use tweed_proto::ltp::{BadPacket, Event, Link, MessageId, Settings, Transmit};

/// A link takes in a message of which only some shards come, and some parity; what is told of it, and its memory.
fn received(code: Code, message: &[u8], shards: &[u32], parity: &[u8]) -> (Vec<Event>, Vec<u8>) {
    let mut link = Link::new(Settings::default());
    let mut memory = vec![0; message.len()];
    let mut number = 0;
    let mut handle = |kind, body: &[u8]| {
        let header = Header { kind, critical: false, last: false, prompt: false, link: 0, number };
        number += 1;
        link.handle(Duration::ZERO, &header, body).expect("it is well-formed")
    };
    for &shard in shards {
        let offset = shard * u32::from(code.shard);
        let values = message[offset as usize..].chunks(code.shard.into()).next().unwrap_or_default();
        let head = DataHead { message: 0, round: 0, offset, total: code.total };
        let place = handle(Kind::Data, &[&head.encode()[..], values].concat()).expect("it is placed");
        memory[place.offset as usize..][..values.len()].copy_from_slice(values);
    }
    let encoded = code.encode(message);
    for &index in parity {
        let head = RepairHead { message: 0, round: 0, code, index };
        let body = [&head.encode()[..], &encoded[usize::from(index)]].concat();
        assert_eq!(handle(Kind::Repair, &body), None);
    }
    (std::iter::from_fn(|| link.poll_event()).collect(), memory)
}

proptest! {
    #[test]
    fn any_so_many_shards_give_all_others(
        half in 1..200_u16,
        shards in 1..60_u32,
        cut in any::<prop::sample::Index>(),
        parity in any::<prop::sample::Index>(),
        picks in vec(any::<prop::sample::Index>(), 0..40),
        seed in any::<u8>(),
    ) {
        let shard = 2 * half;
        let total = shards * u32::from(shard) - cut.index(shard.into()) as u32;
        let code = Code { total, shard, parity: 1 + parity.index(shards as usize) as u8 };
        let message: Vec<u8> = (0..total).map(|at| (at % 251) as u8 ^ seed).collect();
        let mut lost: Vec<u32> = picks.iter().map(|pick| pick.index(shards as usize) as u32).collect();
        lost.sort_unstable();
        lost.dedup();
        lost.truncate(code.parity.into());
        let there: Vec<u32> = (0..shards).filter(|shard| !lost.contains(shard)).collect();
        // The last ones come as well as any.
        let come: Vec<u8> = (code.parity - lost.len() as u8..code.parity).collect();
        let (events, mut memory) = received(code, &message, &there, &come);
        for event in &events {
            let Event::Restored { message: MessageId(0), repair } = event else { panic!("{event:?}") };
            repair.restore(&mut memory);
        }
        prop_assert_eq!(events.len(), usize::from(!lost.is_empty()));
        prop_assert!(memory == message);
        if !lost.is_empty() {
            let (events, _) = received(code, &message, &there, &come[1..]);
            prop_assert_eq!(events, vec![]);
        }
    }
}

#[test]
fn codes_that_there_are_not_are_refused() {
    let good = Code { total: 1000, shard: 100, parity: 10 };
    let body = |code: Code, index| {
        let head = RepairHead { message: 0, round: 0, code, index };
        [&head.encode()[..], &vec![0; usize::from(code.shard)]].concat()
    };
    assert!(RepairHead::decode(&body(good, 9)).is_ok());
    let bad = [
        (Code { shard: 0, ..good }, 0),
        (Code { shard: 101, ..good }, 0),
        (Code { shard: 2, ..good }, 0),
        (Code { total: 0, ..good }, 0),
        (Code { parity: 11, ..good }, 0),
        (good, 10),
    ];
    for (code, index) in bad {
        assert_eq!(RepairHead::decode(&body(code, index)), Err(BadPacket::Code), "{code:?} {index}");
    }
    assert_eq!(RepairHead::decode(&body(good, 0)[..115]), Err(BadPacket::Code));
    assert_eq!(RepairHead::decode(&[0; 15]), Err(BadPacket::Short));
}

#[test]
fn a_message_is_coded_in_one_way() {
    let mut link = Link::new(Settings::default());
    let header =
        Header { kind: Kind::Repair, critical: false, last: false, prompt: false, link: 0, number: 0 };
    let mut handle = |shard, round| {
        let code = Code { total: 1000, shard, parity: 5 };
        let head = RepairHead { message: 0, round, code, index: 0 };
        let body = [&head.encode()[..], &vec![0; usize::from(shard)]].concat();
        link.handle(Duration::ZERO, &header, &body)
    };
    assert_eq!(handle(100, 0), Ok(None));
    assert_eq!(handle(50, 0), Err(BadPacket::Contradiction(0)));
    assert_eq!(handle(100, 1), Err(BadPacket::Contradiction(0)));
}

/// Loses every so many-th packet of one side, and tells of the others.
fn losing(every: u64) -> impl FnMut(usize, &Transmit) -> Fate {
    let mut count = 0;
    move |side, transmit| {
        count += u64::from(side == 0 && !matches!(transmit, Transmit::Control { .. }));
        if side == 0 && count % every == every / 2 {
            Fate::new()
        } else {
            vec![DELAY]
        }
    }
}

#[test]
fn losses_at_the_end_of_a_pass_cost_no_round_trip() {
    let settings = Settings { payload_ceiling: 1200, ..Settings::default() };
    let mut pair = Pair::new(&[settings.clone(), settings]);
    let mut lossy = losing(25);
    // Until loss and round trip are known.
    for _ in 0..40 {
        pair.send(0, reliable(60_000));
        assert!(pair.run(LONG, &mut lossy));
    }
    let mut times: Vec<Duration> = (0..20)
        .map(|_| {
            let began = pair.now;
            pair.send(0, reliable(60_000));
            assert!(pair.run(LONG, &mut lossy));
            pair.now - began
        })
        .collect();
    times.sort_unstable();
    // One round trip, until the sender knows that it is closed; another one would make it 20 ms.
    assert!(times[18] < 4 * DELAY, "{times:?}");
    while pair.step(pair.now + DELAY, &mut good) {}
}
