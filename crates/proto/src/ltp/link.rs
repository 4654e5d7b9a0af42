//! One peer, both directions: what arrives goes in, what is to leave and what has happened come out.
//!
//! # Theory of operation
//!
//! A link has two halves that share nothing but packets. **Sending**: messages wait in the `outbox`, which cuts pieces
//! of them as the `rate` allows (critical ranges first, then the oldest message); the log of `sent` packets finds which
//! were lost. Of a lost packet only what must arrive is queued anew: critical ranges, whole messages that may lose
//! nothing, and control frames. **Receiving**: the `inbox` says where values go, and when a message is closed
//! (`close`: all there; or critical ranges there and the time over); `seen` gathers what has come until it is
//! acknowledged.
//!
//! | a message of ours is | until | of the peer's, it is | until |
//! |---|---|---|---|
//! | queued | there is room within [`Settings::most_open`] | open | all has come, or Early Close, or a cancellation |
//! | open | the peer's `Close` frames say all that is missing ([`Event::Delivered`]), or [`Link::cancel`] | closed ([`Event::Received`]) | the sender has acknowledged each `Close` frame |
//! | delivered, and forgotten | | forgotten | |
//!
//! The halves take turns on the wire: control frames go before data, an acknowledgement with whatever leaves. Where
//! the path loses packets and nothing else is to be sent, parity of messages leaves (`parity`), and what was sent again
//! leaves more than once (`tail`). When nothing was heard for long, what is under way is sent again, or a ping; after
//! `OUTAGE` such silences in a row the path counts as interrupted, and what is lost then says nothing about the rate.
//! Liveness is not decided here: peers are lost by their streams.
//!
//! What cannot happen: a critical byte is missing from a closed message; sender and receiver disagree on what is missing;
//! a [`Place`] follows the end of its message; memory of a message is read after its last event.

mod parity;
mod settle;
mod tail;
mod transmit;

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use super::close::Closing;
use super::frame::{Frame, TAG_BYTES};
use super::inbox::Inbox;
use super::mtu::Search;
use super::open_limit::OpenLimit;
use super::outbox::Outbox;
use super::outgoing::Outgoing;
use super::packet::{BadPacket, DataHead, Header, Kind, RepairHead, BODY_HEAD_BYTES, HEADER_BYTES};
use super::rate::Rate;
use super::repair::Repair;
use super::seen::{AckRequest, Seen};
use super::sent::{ControlFrame, Log, Settled};
use parity::ParityQueue;
use tail::Tail;
pub use transmit::Transmit;

/// A message of one direction of one link; the sender counts them up from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub u32);

/// What a link goes by. Both sides must have the same `most_open` and `most_bytes`: a sender keeps to them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Largest packet at first, in bytes of the UDP payload: header, body and what sealing adds. At least 1200.
    pub payload: u32,
    /// No larger packet is tried. With `payload` here, none but that.
    pub payload_ceiling: u32,
    /// Bytes that sealing adds to a packet.
    pub seal: u32,
    /// How long lossy messages are waited for.
    pub closing: Closing,
    /// Where first passes begin. Should differ between the links that send to one receiver, or all lose the same.
    pub seed: u64,
    /// Most messages that are open at a time, in each direction.
    pub most_open: usize,
    /// Most bytes of all messages that are open at a time, in each direction.
    pub most_bytes: u64,
}

impl Default for Settings {
    /// Packets of 1200 bytes, larger ones if they arrive; no sealing; 256 open messages of any length.
    fn default() -> Settings {
        Settings {
            payload: LEAST_PAYLOAD,
            payload_ceiling: 65_000,
            seal: 0,
            closing: Closing::default(),
            seed: 0,
            most_open: 256,
            most_bytes: u64::MAX,
        }
    }
}

/// Any path carries it (RFC 9000, section 14), and the longest frame fits.
const LEAST_PAYLOAD: u32 = 1200;

/// Values that have arrived. To be copied before anything else is asked of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The message they belong to; its buffer is `total` bytes of zeros until then.
    pub message: MessageId,
    /// Length of the message in bytes.
    pub total: u32,
    /// Where they go in the message, in bytes.
    pub offset: u32,
    /// Where they begin in the body of the packet.
    pub at: usize,
    /// How many bytes they are.
    pub len: u32,
}

/// What has happened on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// All that a message from the peer lacks follows from what is there: to be put into its memory, which is zeros
    /// where nothing has arrived, before anything else is asked of the link.
    Restored {
        /// The message; no `Place` has come before if nothing but parity has arrived.
        message: MessageId,
        /// What puts it there.
        repair: Repair,
    },
    /// A message from the peer is closed. No [`Place`] of it follows.
    Received {
        /// The message; no `Place` has come before if nothing arrived, or it is empty.
        message: MessageId,
        /// The round, as the sender gave it.
        round: u32,
        /// The tag, as the sender gave it.
        tag: [u8; TAG_BYTES],
        /// The length in bytes.
        total: u32,
        /// Ranges of bytes that have not arrived, ascending; the sender is told the same.
        missing: Vec<Range<u32>>,
    },
    /// The peer has closed a message of ours; its memory is read no more.
    Delivered {
        /// The number of the message.
        message: MessageId,
        /// Ranges of bytes that have not arrived, ascending; the receiver holds zeros there.
        missing: Vec<Range<u32>>,
    },
    /// The peer has given up a message of which something had arrived. No [`Place`] of it follows.
    Cancelled {
        /// The number of the message.
        message: MessageId,
    },
}

/// What a link has done and knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkMetrics {
    /// What the path to the peer delivers, in bytes per second; `None` before the first acknowledgement.
    pub bandwidth: Option<u64>,
    /// Smallest round trip of the last ten seconds; `None` before the first acknowledgement.
    pub rtt_min: Option<Duration>,
    /// The smoothed round trip time.
    pub rtt_smoothed: Option<Duration>,
    /// Packets sent, of any kind.
    pub sent_packets: u64,
    /// Bytes of them, as UDP payload.
    pub sent_bytes: u64,
    /// Packets deemed lost on the way to the peer.
    pub lost_packets: u64,
    /// How many bytes were lost.
    pub lost_bytes: u64,
    /// Packets deemed lost that had arrived after all.
    pub late_packets: u64,
    /// Packets that have arrived, of any kind.
    pub received_packets: u64,
    /// How many bytes were received.
    pub received_bytes: u64,
    /// Bytes that were sent and not yet acknowledged.
    pub in_flight: u64,
    /// Largest packet now, in bytes of the UDP payload.
    pub payload: u32,
    /// Early Close: the largest threshold that was measured.
    pub threshold: Option<Duration>,
    /// Early Close: the largest threshold after the next [`Link::end_epoch`]; the largest of these over all links
    /// is what `end_epoch` wants.
    pub coming_threshold: Option<Duration>,
}

/// The state of one link. No sockets, no clock: `now` counts from any fixed moment and never goes back.
///
/// After each call of `handle`, `handle_timeout`, `send` or `cancel`, the caller asks [`Link::poll_event`] and
/// [`Link::poll_transmit`] until they have no more, and then [`Link::next_timeout`].
#[derive(Debug)]
pub struct Link {
    seal: u32,
    log: Log,
    seen: Seen,
    outbox: Outbox,
    inbox: Inbox,
    rate: Rate,
    search: Search,
    /// The size that is being tried.
    probe: Option<u32>,
    /// Frames of ours to be sent.
    control_frames: VecDeque<ControlFrame>,
    events: VecDeque<Event>,
    /// What may leave again.
    tail: Tail,
    /// Messages of which parity may leave.
    parity: ParityQueue,
    /// How often nothing was heard in a row.
    silences: u32,
    /// So many packets may leave even though the window is full.
    credit: u32,
    metrics: LinkMetrics,
    settled: Settled,
}

impl Link {
    /// A link of which nothing is known. It asks for the round trip at once, so that a first message finds an estimate.
    pub fn new(settings: Settings) -> Link {
        let payload = settings.payload.max(LEAST_PAYLOAD);
        let limit = OpenLimit { messages: settings.most_open.max(1), bytes: settings.most_bytes };
        Link {
            seal: settings.seal,
            log: Log::new(),
            seen: Seen::default(),
            outbox: Outbox::new(settings.seed, 1.0 - settings.closing.fraction, limit),
            inbox: Inbox::new(settings.closing, limit),
            rate: Rate::new(),
            search: Search::new(payload, settings.payload_ceiling.max(payload)),
            probe: None,
            control_frames: VecDeque::from([ControlFrame::Ping]),
            events: VecDeque::new(),
            tail: Tail::default(),
            parity: ParityQueue::default(),
            silences: 0,
            credit: 0,
            metrics: LinkMetrics::default(),
            settled: Settled::default(),
        }
    }

    /// Queues a message. Its memory is read until [`Event::Delivered`], or until [`Link::cancel`] returns.
    ///
    /// # Panics
    /// If it is longer than [`Settings::most_bytes`].
    pub fn send(&mut self, what: Outgoing) -> MessageId {
        MessageId(self.outbox.push(what))
    }

    /// Gives a message of ours up: no packet of it leaves any more, and no event of it follows.
    pub fn cancel(&mut self, id: MessageId) {
        if self.outbox.cancel(id.0) {
            self.control_frames.push_back(ControlFrame::Cancel(id.0));
        }
    }

    /// Takes a packet in that was authenticated and has not come before (see [`Window`](super::replay::Window));
    /// `body` is what follows its header. After an error, the peer breaks the protocol, and the link is to be given up.
    pub fn handle(
        &mut self,
        now: Duration,
        header: &Header,
        body: &[u8],
    ) -> Result<Option<Place>, BadPacket> {
        let bytes = (HEADER_BYTES + body.len()) as u32 + self.seal;
        self.metrics.received_packets += 1;
        self.metrics.received_bytes += u64::from(bytes);
        let (place, ack_request) = match header.kind {
            Kind::Data => (self.data(now, header, body)?, AckRequest::Soon),
            Kind::Control => (None, self.control(now, body)?),
            Kind::Repair => {
                let head = RepairHead::decode(body)?;
                self.inbox.repair(now, &head, &body[BODY_HEAD_BYTES..], &mut self.events)?;
                (None, AckRequest::Soon)
            }
        };
        let ack_request = if header.prompt { AckRequest::Now } else { ack_request };
        self.seen.note(now, header.number, bytes, ack_request);
        Ok(place)
    }

    /// What has happened, oldest first.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// What the link has done and knows.
    pub fn metrics(&self) -> LinkMetrics {
        LinkMetrics {
            bandwidth: self.rate.bandwidth(),
            rtt_min: self.rate.rtt_min(),
            rtt_smoothed: self.rate.rtt_smoothed(),
            in_flight: self.log.in_flight,
            payload: self.search.size(),
            threshold: self.inbox.thresholds.slowest(),
            coming_threshold: self.inbox.thresholds.coming(),
            ..self.metrics
        }
    }

    /// An epoch ends: Early Close sets its thresholds anew. `slowest` is the largest
    /// [`LinkMetrics::coming_threshold`] over all links, taken before any of them ended its epoch.
    pub fn end_epoch(&mut self, slowest: Option<Duration>) {
        self.inbox.end_epoch(slowest);
    }

    fn data(&mut self, now: Duration, header: &Header, body: &[u8]) -> Result<Option<Place>, BadPacket> {
        let (head, len) = DataHead::decode(body)?;
        let open = self.inbox.data(now, header, (&head, len), &mut self.events)?;
        let DataHead { message, offset, total, .. } = head;
        Ok(open.then_some(Place { message: MessageId(message), total, offset, at: BODY_HEAD_BYTES, len }))
    }

    fn control(&mut self, now: Duration, body: &[u8]) -> Result<AckRequest, BadPacket> {
        let mut ack_request = AckRequest::None;
        for frame in Frame::decode(body)? {
            if frame.elicits() && ack_request == AckRequest::None {
                ack_request = AckRequest::Soon;
            }
            match frame {
                Frame::Ping => ack_request = AckRequest::Now,
                Frame::Ack(ack) => self.acked(now, &ack)?,
                Frame::Open(open) => self.inbox.announce(now, open, self.rate.rtt_min(), &mut self.events)?,
                Frame::Close(close) => {
                    let message = MessageId(close.message);
                    if let Some(missing) = self.outbox.close(close)? {
                        self.events.push_back(Event::Delivered { message, missing });
                    }
                }
                Frame::Cancel(message) => {
                    if self.inbox.cancel(message)? {
                        self.events.push_back(Event::Cancelled { message: MessageId(message) });
                    }
                }
            }
        }
        Ok(ack_request)
    }
}
