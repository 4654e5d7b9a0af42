//! What holds whatever the network does and whatever a peer sends.

mod support;

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use support::pair::{Fate, Pair};
use support::play::{hostile, play};
use tweed_proto::ltp::frame::{Ack, Close, Frame, Open};
use tweed_proto::ltp::packet::{DataHead, Header, Kind};
use tweed_proto::ltp::ranges::Ranges;
use tweed_proto::ltp::replay::Window;
use tweed_proto::ltp::{Closing, Outgoing, Settings, Transmit};
use tweed_rng::Rng;

#[derive(Clone, Debug)]
enum Change {
    Insert(Range<u32>),
    Remove(Range<u32>),
    Take(u32, u32),
}

const END: u32 = 120;

fn change() -> impl Strategy<Value = Change> {
    let range = || (0..END, 0..30_u32).prop_map(|(start, len)| start..(start + len).min(END));
    prop_oneof![
        3 => range().prop_map(Change::Insert),
        1 => range().prop_map(Change::Remove),
        1 => (0..END, 1..20_u32).prop_map(|(from, most)| Change::Take(from, most)),
    ]
}

/// What [`Ranges::take`] should take, from single numbers.
fn taken(model: &BTreeSet<u32>, from: u32, most: u32) -> Vec<u32> {
    let first = model.range(from..).next().or_else(|| model.first()).copied();
    let run = first.into_iter().flat_map(|first| (first..).take_while(|at| model.contains(at)));
    run.take(most as usize).collect()
}

proptest! {
    #[test]
    fn ranges_are_sets(changes in vec(change(), 0..60)) {
        let (mut ranges, mut model) = (Ranges::default(), BTreeSet::new());
        for change in changes {
            let before = model.len();
            match change {
                Change::Insert(range) => {
                    model.extend(range.clone());
                    prop_assert_eq!(ranges.insert(range) as usize, model.len() - before);
                }
                Change::Remove(range) => {
                    model.retain(|at| !range.contains(at));
                    prop_assert_eq!(ranges.remove(range) as usize, before - model.len());
                }
                Change::Take(from, most) => {
                    let expected = taken(&model, from, most);
                    model.retain(|at| !expected.contains(at));
                    let got = ranges.take(from, most);
                    prop_assert_eq!(got.map(|range| range.collect()), Some(expected).filter(|all| !all.is_empty()));
                }
            }
            let inside: Vec<u32> = ranges.as_slice().iter().cloned().flatten().collect();
            prop_assert!(ranges.as_slice().windows(2).all(|pair| pair[0].end < pair[1].start));
            prop_assert_eq!(&inside, &model.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(ranges.len() as usize, model.len());
            let missing: Vec<u32> = ranges.missing(END).into_iter().flatten().collect();
            prop_assert_eq!(missing, (0..END).filter(|at| !model.contains(at)).collect::<Vec<_>>());
            prop_assert!((0..END).all(|at| ranges.contains(at) == model.contains(&at)));
        }
    }

    #[test]
    fn a_window_admits_each_number_once(steps in vec((0..3_u64, 0..200_u64, 0..70_000_u64), 1..300)) {
        let (mut window, mut seen, mut newest) = (Window::default(), BTreeSet::new(), 0_u64);
        for (kind, near, far) in steps {
            let number = match kind {
                0 => newest + near,
                1 => newest.saturating_sub(near),
                _ => newest.saturating_sub(far),
            };
            let fresh = seen.insert(number);
            let admitted = window.admit(number);
            prop_assert!(fresh || !admitted, "{} is admitted twice", number);
            prop_assert!(admitted || !fresh || newest - number > 65_000, "{} is refused", number);
            newest = newest.max(number);
        }
    }

    #[test]
    fn frames_come_out_as_they_went_in(frames in vec(frame(), 0..5)) {
        let mut body = Vec::new();
        for frame in &frames {
            frame.encode(&mut body);
        }
        prop_assert_eq!(Frame::decode(&body), Ok(frames));
    }

    #[test]
    fn headers_come_out_as_they_went_in(
        data: bool, critical: bool, prompt: bool, link: u32, number in 0..1_u64 << 62, words: [u32; 2], offset in 0..1000_u32,
    ) {
        let kind = if data { Kind::Data } else { Kind::Control };
        let header = Header { kind, critical: critical && data, last: prompt && data, prompt, link, number };
        prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
        let head = DataHead { message: words[0], round: words[1], offset, total: offset + 8 };
        let body = [&head.encode()[..], &[0; 8]].concat();
        prop_assert_eq!(DataHead::decode(&body), Ok((head, 8)));
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in vec(any::<u8>(), 0..300)) {
        let _ = (Header::decode(&bytes), DataHead::decode(&bytes), Frame::decode(&bytes));
        hostile(&bytes);
    }

    #[test]
    fn a_peer_that_breaks_the_protocol_is_refused(packets in vec((any::<bool>(), 0..40_u64, frame()), 0..20)) {
        let mut bytes = vec![3, 2, 100, 200, 1, 9, 1, 1, 1];
        for (critical, number, frame) in packets {
            let kind = if critical { Kind::Data } else { Kind::Control };
            let mut packet = Header { kind, critical, last: false, prompt: false, link: 0, number }.encode().to_vec();
            frame.encode(&mut packet);
            packet.truncate(255);
            bytes.push(packet.len() as u8);
            bytes.extend(packet);
            bytes.push(1);
        }
        hostile(&bytes);
    }
}

fn frame() -> impl Strategy<Value = Frame> {
    // Small numbers, so that frames meet messages that exist.
    let open = (0..3_u32, 0..3_u32, 0..5000_u32, any::<bool>(), any::<u8>()).prop_map(
        |(message, round, total, lossy, tag)| {
            Frame::Open(Open {
                message,
                round,
                total,
                critical: total / 2,
                lossy,
                pace: 1000,
                tag: [tag; 48],
            })
        },
    );
    let close =
        (0..3_u32, 0..2_u32, vec((1..50_u32, 1..50_u32), 0..20)).prop_map(|(message, part, steps)| {
            let mut at = 0;
            let missing = steps.into_iter().map(|(gap, len)| {
                let start = at + gap;
                at = start + len;
                start..at
            });
            Frame::Close(Close { message, part, parts: part + 1, missing: missing.collect() })
        });
    let ack =
        (any::<u32>(), 0..100_u64, vec((0..5_u64, 2..5_u64), 0..10)).prop_map(|(delay_us, first, steps)| {
            let mut ranges = Vec::new();
            let mut at = first + 200;
            for (len, gap) in steps {
                ranges.push(at - len..=at);
                at -= len + gap;
            }
            ranges.push(at..=at);
            Frame::Ack(Ack { delay_us, ranges })
        });
    prop_oneof![Just(Frame::Ping), open, close, ack, (0..3_u32).prop_map(Frame::Cancel)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_play_comes_to_an_end(bytes in vec(any::<u8>(), 0..400)) {
        play(&bytes);
    }

    /// Any packets are lost, late or doubled. [`Pair`] checks that what arrived is bit-equal in place, that the rest
    /// is zero, that both sides agree on the rest, and that nothing critical is in it.
    #[test]
    fn survivors_are_in_place(
        seed: u64,
        value in prop_oneof![Just(1), Just(2), Just(4), Just(8), Just(16), Just(6), Just(7)],
        numel in 0..40_000_u32,
        odd in 0..3_u32,
        critical in vec(0..280_000_u32, 0..4),
        (lost, late, doubled) in (0..40_u64, 0..60_u64, 0..30_u64),
        fraction in 0.0..1.0,
    ) {
        let bytes = (numel * value).min(280_000) + odd;
        let closing = Closing { fraction, slack: Duration::ZERO, deadline: Some(Duration::from_millis(20)) };
        let settings = Settings { closing, seed, payload_ceiling: 1452, ..Settings::default() };
        let mut pair = Pair::new(&[settings.clone(), settings]);
        let critical = critical.into_iter().map(|start| start.min(bytes)..(start + 50).min(bytes)).collect();
        let (value, lossy, urgency) = (value as u8, true, 0);
        let what = Outgoing { round: 1, tag: [1; 48], bytes, value, critical, lossy, urgency };
        let reliable = Outgoing { lossy: false, ..what.clone() };
        pair.send(0, what.clone());
        pair.send(1, what);
        pair.send(0, reliable);
        let mut rng = Rng::new(seed);
        let mut fate = move |_: usize, _: &Transmit| {
            let base = Duration::from_millis(5);
            let mut draw = |share: u64| rng.below(100) < share;
            let delay = if draw(late) { base * 2 } else { base };
            match (draw(lost), draw(doubled)) {
                (true, _) => Fate::new(),
                (_, true) => vec![delay, delay + base],
                _ => vec![delay],
            }
        };
        prop_assert!(pair.run(Duration::from_secs(100), &mut fate), "it hangs");
    }
}
