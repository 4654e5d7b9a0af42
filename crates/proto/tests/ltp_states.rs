//! What each packet does in each state of a message: the tables of `docs/protocol.md`, row by row.

use std::ops::Range;
use std::time::Duration;

use tweed_proto::ltp::frame::{Close, Frame, Open};
use tweed_proto::ltp::packet::{DataHead, Header, Kind};
use tweed_proto::ltp::{BadPacket, Closing, Event, Link, MessageId, Outgoing, Settings, Transmit};

const TOTAL: u32 = 64;
const OPEN: Open =
    Open { message: 0, round: 7, total: TOTAL, critical: 16, lossy: true, pace: 0, tag: [3; 48] };

/// One link, with packets as its peer would send them.
struct Side {
    link: Link,
    now: Duration,
    number: u64,
}

impl Side {
    fn new() -> Side {
        let closing =
            Closing { fraction: 0.5, slack: Duration::ZERO, deadline: Some(Duration::from_secs(1)) };
        let link = Link::new(Settings { closing, payload_ceiling: 1200, ..Settings::default() });
        let mut side = Side { link, now: Duration::ZERO, number: 0 };
        side.leaving();
        side
    }

    fn handle(&mut self, kind: Kind, critical: bool, body: &[u8]) -> Result<bool, BadPacket> {
        let header = Header { kind, critical, last: false, prompt: false, link: 0, number: self.number };
        self.number += 1;
        self.link.handle(self.now, &header, body).map(|place| place.is_some())
    }

    fn data(&mut self, round: u32, range: Range<u32>) -> Result<bool, BadPacket> {
        let head = DataHead { message: 0, round, offset: range.start, total: TOTAL };
        let body = [&head.encode()[..], &vec![1; range.len()]].concat();
        self.handle(Kind::Data, range.start < 16, &body)
    }

    fn frame(&mut self, frame: &Frame) -> Result<bool, BadPacket> {
        let mut body = Vec::new();
        frame.encode(&mut body);
        self.handle(Kind::Control, false, &body)
    }

    fn close(&mut self, part: u32, parts: u32, missing: Vec<Range<u32>>) -> Result<bool, BadPacket> {
        self.frame(&Frame::Close(Close { message: 0, part, parts, missing }))
    }

    /// Everything that leaves now; acknowledgements too.
    fn leaving(&mut self) -> Vec<Transmit> {
        std::iter::from_fn(|| self.link.poll_transmit(self.now)).collect()
    }

    fn frames(&mut self) -> Vec<Frame> {
        let frames = |transmit| match transmit {
            Transmit::Control { body, .. } => Frame::decode(&body).expect("it was encoded"),
            Transmit::Data { .. } | Transmit::Repair { .. } => Vec::new(),
        };
        self.leaving().into_iter().flat_map(frames).filter(Frame::elicits).collect()
    }

    /// The peer has everything that was sent.
    fn acknowledge(&mut self) {
        let (critical, lossy) = (Vec::new(), false);
        self.link.send(Outgoing { round: 0, tag: [0; 48], bytes: 0, value: 1, critical, lossy, urgency: 0 });
        let Some(Transmit::Control { number, .. }) = self.leaving().pop() else { panic!("OPEN is a frame") };
        let ranges = std::iter::once(0..=number).collect();
        self.frame(&Frame::Ack(tweed_proto::ltp::frame::Ack { delay_us: 0, ranges })).expect("it was sent");
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.link.poll_event()).collect()
    }
}

/// States at the receiver, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum At {
    Unknown,
    Open,
    Announced,
    Telling,
    Over,
}

const RECEIVER: [At; 5] = [At::Unknown, At::Open, At::Announced, At::Telling, At::Over];

fn receiver(at: At) -> Side {
    let mut side = Side::new();
    if at >= At::Open {
        assert_eq!(side.data(7, 16..32), Ok(true));
    }
    if at >= At::Announced {
        side.frame(&Frame::Open(OPEN)).expect("it is new");
        assert_eq!(side.events(), []);
    }
    if at >= At::Telling {
        side.data(7, 32..64).expect("it is open");
        side.data(7, 0..16).expect("it is open");
        assert_eq!(side.events().len(), 1);
        assert!(matches!(side.frames()[..], [Frame::Close(_)]));
    }
    if at == At::Over {
        side.acknowledge();
    }
    side.leaving();
    side
}

#[test]
fn data_at_the_receiver() {
    for at in RECEIVER {
        let mut side = receiver(at);
        assert_eq!(side.data(7, 48..64), Ok(at <= At::Announced), "{at:?}");
        assert_eq!(side.events(), [], "{at:?}");
        let refused = side.data(8, 48..64);
        assert_eq!(refused.is_err(), at <= At::Announced, "another round, {at:?}");
    }
}

#[test]
fn open_at_the_receiver() {
    for at in RECEIVER {
        let mut side = receiver(at);
        assert_eq!(side.frame(&Frame::Open(OPEN)), Ok(false), "{at:?}");
        assert_eq!(side.events(), [], "{at:?}");
        assert_eq!(side.frames().len(), usize::from(at == At::Telling), "CLOSE is reported again: {at:?}");
        for other in [Open { round: 8, ..OPEN }, Open { total: 65, ..OPEN }, Open { critical: 17, ..OPEN }] {
            let refused = side.frame(&Frame::Open(other));
            assert_eq!(refused.is_err(), at <= At::Announced, "{at:?}");
        }
        assert_eq!(side.frame(&Frame::Open(Open { pace: 9, ..OPEN })), Ok(false), "the pace may change");
    }
}

#[test]
fn cancel_at_the_receiver() {
    for at in RECEIVER {
        let mut side = receiver(at);
        assert_eq!(side.frame(&Frame::Cancel(0)), Ok(false), "{at:?}");
        let reported = [At::Open, At::Announced].contains(&at);
        assert_eq!(side.events().len(), usize::from(reported), "{at:?}");
        assert_eq!(side.data(7, 0..16), Ok(false), "it never opens again: {at:?}");
        side.now = Duration::from_secs(2);
        side.link.handle_timeout(side.now);
        assert_eq!(side.events(), [], "{at:?}");
    }
}

#[test]
fn time_at_the_receiver() {
    for at in RECEIVER {
        for critical in [false, true] {
            let mut side = receiver(at);
            if critical && at <= At::Announced {
                side.data(7, 0..16).expect("it is open");
            }
            side.now = Duration::from_secs(1);
            side.link.handle_timeout(side.now);
            let closes = critical && at == At::Announced;
            assert_eq!(side.events().len(), usize::from(closes), "critical bytes there: {critical}, {at:?}");
        }
    }
}

#[test]
fn what_comes_last_closes_it_after_the_limit() {
    let mut side = receiver(At::Announced);
    side.now = Duration::from_secs(3);
    side.link.handle_timeout(side.now);
    assert_eq!(side.events(), []);
    side.data(7, 0..16).expect("it is open");
    let Event::Received { missing, .. } = &side.events()[0] else { panic!("it is closed") };
    assert_eq!(*missing, ranges(32..64));
}

#[test]
fn a_peer_cannot_make_us_remember_more_and_more() {
    let empty = |message| Frame::Open(Open { message, total: 0, critical: 0, ..OPEN });
    for make in [&empty as &dyn Fn(u32) -> Frame, &|message| Frame::Cancel(2 * message)] {
        let mut side = Side::new();
        let refused = (0..100_000).find(|message| side.frame(&make(*message)).is_err());
        assert!(refused.is_some_and(|message| message <= 65_536), "{refused:?}");
    }
}

/// States at the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Waiting,
    FirstPass,
    Closing,
    Over,
}

const BYTES: u32 = 3_000_000;

fn sender(from: From) -> Side {
    let mut side = Side::new();
    let critical = ranges(0..16);
    side.link.send(Outgoing {
        round: 7,
        tag: [3; 48],
        bytes: BYTES,
        value: 4,
        critical,
        lossy: true,
        urgency: 0,
    });
    if from != From::Waiting {
        assert!(side.leaving().len() > 2);
    }
    match from {
        From::Waiting | From::FirstPass => {}
        From::Closing => assert_eq!(side.close(0, 2, ranges(16..32)), Ok(false)),
        From::Over => assert_eq!(side.close(0, 1, Vec::new()), Ok(false)),
    }
    side.events();
    side
}

fn ranges(range: Range<u32>) -> Vec<Range<u32>> {
    vec![range]
}

#[test]
fn close_at_the_sender() {
    for from in [From::Waiting, From::FirstPass, From::Closing, From::Over] {
        let last = if from == From::Closing { (1, 2) } else { (0, 1) };
        let mut side = sender(from);
        assert_eq!(side.close(last.0, last.1, ranges(64..96)), Ok(false), "{from:?}");
        let missing = match from {
            From::Waiting | From::Over => None,
            From::FirstPass => Some(ranges(64..96)),
            From::Closing => Some(vec![16..32, 64..96]),
        };
        let expected: Vec<Event> =
            missing.into_iter().map(|missing| Event::Delivered { message: MessageId(0), missing }).collect();
        assert_eq!(side.events(), expected, "{from:?}");
        let is_data = |transmit: &Transmit| matches!(transmit, Transmit::Data { .. });
        side.now = Duration::from_secs(1);
        side.link.handle_timeout(side.now);
        assert_eq!(side.leaving().iter().any(is_data), from == From::Waiting, "{from:?}");
    }
}

#[test]
fn a_close_that_cannot_be_is_refused() {
    for from in [From::Waiting, From::FirstPass, From::Closing, From::Over] {
        let known = !matches!(from, From::Waiting | From::Over);
        for (what, part, parts, missing) in [
            ("critical bytes are missing", 0, 1, ranges(0..4)),
            ("beyond the end", 0, 1, ranges(0..BYTES + 1)),
            ("more parts than can be", 1, 5000, Vec::new()),
        ] {
            assert_eq!(sender(from).close(part, parts, missing).is_err(), known, "{what}, {from:?}");
        }
        let of_another = Close { message: 1, part: 0, parts: 1, missing: vec![] };
        assert!(sender(from).frame(&Frame::Close(of_another)).is_err());
    }
    assert!(sender(From::Closing).close(1, 3, Vec::new()).is_err(), "another number of parts");
    assert!(sender(From::Closing).close(1, 2, ranges(0..16)).is_err(), "parts out of order");
}

#[test]
fn giving_up_at_the_sender() {
    for from in [From::Waiting, From::FirstPass, From::Closing, From::Over] {
        let mut side = sender(from);
        side.link.cancel(MessageId(0));
        let reported = matches!(from, From::FirstPass | From::Closing);
        assert_eq!(side.frames(), if reported { vec![Frame::Cancel(0)] } else { vec![] }, "{from:?}");
        assert_eq!(side.close(0, 1, Vec::new()), Ok(false), "too late, {from:?}");
        assert_eq!(side.events(), [], "{from:?}");
    }
}
