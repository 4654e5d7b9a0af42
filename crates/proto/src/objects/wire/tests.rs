//! Frames come back as they were, and nothing else is one.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::Frame;
use crate::objects::*;

const A: ObjectId = ObjectId(7);
const B: ObjectId = ObjectId(u128::MAX);
const FORMAT: Format = Format { size: 1 << 20, kind: 3 };

fn request() -> Request {
    let costs = Costs { latency: Duration::from_micros(50), rate: 1 << 30, message: Duration::ZERO };
    let (mode, rule) = (Mode::Ranges, Rule::Given(Form::Trees { depth: 2 }, 4096));
    Request { target: B, ids: Arc::new([A, B]), count: 2, op: 1, mode, rule, costs }
}

fn ledger() -> Ledger {
    let holder = Some(Holder { process: 4, object: Some(A) });
    let closed = vec![Feed { slot: 2, generation: 1, range: 5..9, source: None }];
    let history = History(vec![(0, Some(A)), (12, None)]);
    let place = Place { holder, closed, history, taken_from: 3, ..Place::default() };
    Ledger { form: Form::Star, format: FORMAT, block: 64, first: A, places: vec![(1, place)], gone: vec![B] }
}

/// One frame of each kind of message.
fn frames() -> Vec<Frame> {
    let bytes: Bytes = Arc::new([1, 2, 3]);
    let (object, target, format, process) = (A, B, FORMAT, 9);
    let source = Source { process, object, buffer: Buffer::Object(A) };
    let feeds = vec![Feed { slot: 1, generation: 0, range: 0..64, source: Some(source) }];
    let assign = Assign {
        target,
        attempt: 1,
        version: 2,
        slot: 3,
        generation: 4,
        own: Some(A),
        format,
        block: 4096,
        from: 5,
        feeds,
        op: 0,
    };
    let unlike = Failure::Unlike { one: A, other: B, formats: [FORMAT; 2] };
    let state = State::Receiving;
    let reports = [
        Report::Holds {
            object,
            state,
            format: Some(format),
            generation: 1,
            fed_by: Some(2),
            view: 4,
            rate: Some(5),
            bytes: Some(bytes.clone()),
        },
        Report::Forget { object },
        Report::Delete { object },
        Report::Watch { object, target },
        Report::Arrived { target, object, format, process, bytes: None },
        Report::Reduce { request: request(), attempt: 1, ledger: Some(ledger()) },
        Report::Withdraw { target },
        Report::Broken(Broken { target, process, slot: 1, generation: 2, received: 3 }),
        Report::Lost { process, object },
        Report::Gone { target, object },
        Report::Ahead { target, slot: 3, generation: 4 },
        Report::Kept { target, attempt: 1, number: 2 },
        Report::Unable { target, why: Failure::Missing { target, object, process } },
    ];
    let orders = [
        Order::Feed { object, format, generation: 1, from: 2, view: 3, block: 64 },
        Order::Small { object, format, bytes: bytes.clone() },
        Order::Restart { object, generation: 2 },
        Order::Deleted { object },
        Order::Assign(assign),
        Order::Ledger { request: request(), attempt: 0, number: 5, ledger: ledger() },
        Order::Release { target, attempt: 3 },
        Order::Lost { process, target },
        Order::Reduced { target, included: vec![(0..64, vec![A, B])], small: Some((format, bytes.clone())) },
        Order::Failed { target, why: unlike },
        Order::Failed { target, why: Failure::Count { count: 3, ids: 2 } },
        Order::Unable { target, why: Failure::NoRoom { target, process, bytes: 5 } },
    ];
    let pull = Pull {
        from: 1,
        buffer: Buffer::Partial { target, slot: 4 },
        generation: 1,
        offset: 64,
        end: 128,
        block: 64,
    };
    let others = [
        Frame::Hello { descriptor: bytes },
        Frame::Pull { stream: 5, pull, maps: true },
        Frame::Mapped { stream: 5, file: Some(FileId { descriptor: 6, tag: 7 << 100 }), end: 9 },
        Frame::Close { stream: 5 },
        Frame::Stop { stream: 5 },
        Frame::Stopped { stream: 5 },
        Frame::Block { stream: 5, begin: 64 },
        Frame::Resume { is_only: true },
        Frame::Parted,
    ];
    let messages = reports.map(Message::Report).into_iter().chain(orders.map(Message::Order));
    messages.map(|message| Frame::Message { message }).chain(others).collect()
}

#[test]
fn frames_come_back_as_they_were_and_no_part_of_one_is_one() {
    for frame in frames() {
        let bytes = frame.encode();
        assert_eq!(Frame::decode(&bytes), Ok((frame.clone(), &[][..])));
        assert!((0..bytes.len()).all(|end| Frame::decode(&bytes[..end]).is_err()), "{frame:?}");
        let more = [&bytes[..], &[1]].concat();
        let is_block = matches!(frame, Frame::Block { .. });
        assert_eq!(Frame::decode(&more).is_ok(), is_block, "{frame:?}");
    }
}

#[test]
fn a_mark_comes_back_and_leaves_its_frame() {
    let mark = Mark { number: 3, taken: u64::MAX };
    let bytes = [mark.encode(), Frame::Parted.encode()].concat();
    let (read, frame) = Mark::decode(&bytes).unwrap();
    assert_eq!((read, Frame::decode(frame)), (mark, Ok((Frame::Parted, &[][..]))));
    assert!((0..16).all(|end| Mark::decode(&bytes[..end]).is_err()));
}

#[test]
fn what_the_planner_cannot_bear_is_no_frame() {
    let pull = |offset, end, block| {
        let pull = Pull { from: 1, buffer: Buffer::Object(A), generation: 0, offset, end, block };
        Frame::decode(&Frame::Pull { stream: 1, pull, maps: false }.encode()).is_ok()
    };
    assert!(pull(0, 64, 64) && !pull(65, 64, 64) && !pull(0, 64, 0));
    let long: Bytes = vec![0; SMALL_BYTES as usize + 1].into();
    assert!(Frame::decode(&Frame::Hello { descriptor: long }.encode()).is_err());
}

#[test]
fn a_list_that_claims_more_than_came_takes_no_memory() {
    let mut bytes = Frame::Hello { descriptor: Arc::new([]) }.encode();
    bytes[1..5].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(Frame::decode(&bytes).is_err());
}

proptest! {
    #[test]
    fn frames_of_changed_bytes_are_none_or_come_back(which in 0usize..29, at in 0usize..400, to in any::<u8>()) {
        let frames = frames();
        let mut bytes = frames[which % frames.len()].encode();
        let at = at % bytes.len();
        bytes[at] = to;
        if let Ok((frame, rest)) = Frame::decode(&bytes) {
            prop_assert_eq!([frame.encode(), rest.to_vec()].concat(), bytes);
        }
    }
}

#[test]
fn a_rate_of_nothing_is_refused() {
    let at = |rate| {
        let (object, state) = (A, State::Complete);
        let (format, fed_by, bytes) = (Some(FORMAT), None, None);
        let report = Report::Holds { object, state, format, generation: 0, fed_by, view: 0, rate, bytes };
        Frame::decode(&Frame::Message { message: Message::Report(report) }.encode()).is_ok()
    };
    assert_eq!([at(None), at(Some(1)), at(Some(0))], [true, true, false]);
}
