//! One end of a connection: a real [`Link`], the memory of its messages, and what it must never do.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use tweed_proto::ltp::replay::Window;
use tweed_proto::ltp::{Event, Header, Link, MessageId, Outgoing, Settings, Transmit};

use tweed_rng::mix;

/// Numbers a message over all connections, ends and restarts.
pub type Ticket = usize;

/// How a message has ended, as far as its sender knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Its receiver has closed it, without these ranges of bytes.
    Delivered(Vec<Range<u32>>),
    /// Its link ended before.
    LinkLost,
}

/// A message on its way or ended.
#[derive(Clone, Debug)]
pub struct Message {
    /// What the message carries.
    pub what: Outgoing,
    /// When it was given to the link.
    pub given_at: Duration,
    /// What the receiver lacks, once it has closed it.
    pub received: Option<Vec<Range<u32>>>,
    /// When and how it ended for the sender.
    pub ended: Option<(Duration, Ending)>,
}

/// A link and what belongs to it. It ends with the link: a restarted end is another one.
#[derive(Debug)]
pub(super) struct End {
    pub(super) link: Link,
    /// What packets to this end carry.
    pub(super) number: u32,
    window: Window,
    /// Messages of ours that have not ended.
    pub(super) sending: BTreeMap<MessageId, Ticket>,
    /// Messages that arrive here.
    landing: BTreeMap<MessageId, Vec<u8>>,
}

impl End {
    pub(super) fn new(settings: &Settings, number: u32) -> End {
        End {
            link: Link::new(settings.clone()),
            number,
            window: Window::default(),
            sending: BTreeMap::new(),
            landing: BTreeMap::new(),
        }
    }

    pub(super) fn send(&mut self, ticket: Ticket, what: Outgoing) {
        let id = self.link.send(what);
        self.sending.insert(id, ticket);
    }

    /// The next packet, whole.
    pub(super) fn poll_packet(&mut self, now: Duration, peer: u32) -> Result<Option<Vec<u8>>, String> {
        let Some(transmit) = self.link.poll_transmit(now) else { return Ok(None) };
        let mut packet = transmit.header(peer).to_vec();
        match transmit {
            Transmit::Control { ref body, .. } => packet.extend_from_slice(body),
            Transmit::Data { message, offset, len, .. } => {
                let Some(&ticket) = self.sending.get(&message) else {
                    return Err(format!("{message:?} has ended, and its memory is read"));
                };
                packet.extend_from_slice(&transmit.body_head().unwrap_or_default());
                packet.extend((offset..offset + len).map(|at| value(ticket, at)));
            }
            Transmit::Repair { head, .. } => {
                let Some(&ticket) = self.sending.get(&MessageId(head.message)) else {
                    return Err(format!("message {} has ended, and its memory is read", head.message));
                };
                let message: Vec<u8> = (0..head.code.total).map(|at| value(ticket, at)).collect();
                packet.extend_from_slice(&head.encode());
                packet.extend_from_slice(&head.code.encode(&message)[usize::from(head.index)]);
            }
        }
        Ok(Some(packet))
    }

    /// A packet arrives. One for another link, or one that came before, changes nothing.
    pub(super) fn arrive(&mut self, now: Duration, packet: &[u8]) -> Result<(), String> {
        let header = Header::decode(packet).map_err(|error| error.to_string())?;
        if header.link != self.number || !self.window.admit(header.number) {
            return Ok(());
        }
        let body = &packet[tweed_proto::ltp::packet::HEADER_BYTES..];
        let place = self.link.handle(now, &header, body).map_err(|error| error.to_string())?;
        if let Some(place) = place {
            let landing = self.landing.entry(place.message).or_insert_with(|| vec![0; place.total as usize]);
            let values = &body[place.at..place.at + place.len as usize];
            landing[place.offset as usize..][..values.len()].copy_from_slice(values);
        }
        Ok(())
    }

    /// What has happened here: messages of the peer that closed, and of ours that ended.
    pub(super) fn poll_event(&mut self) -> Option<Happened> {
        loop {
            return Some(match self.link.poll_event()? {
                Event::Restored { message, repair } => {
                    let zeros = || vec![0; repair.total() as usize];
                    repair.restore(self.landing.entry(message).or_insert_with(zeros));
                    continue;
                }
                Event::Received { message, tag, total, missing, .. } => Happened::Received {
                    tag,
                    missing,
                    landed: self.landing.remove(&message).unwrap_or_else(|| vec![0; total as usize]),
                },
                Event::Delivered { message, missing } => {
                    Happened::Delivered { ticket: self.sending.remove(&message), missing }
                }
                Event::Cancelled { message } => {
                    self.landing.remove(&message);
                    Happened::Cancelled
                }
            });
        }
    }
}

/// An event of a link, with our memory.
#[derive(Debug)]
pub(super) enum Happened {
    Received { tag: [u8; 48], missing: Vec<Range<u32>>, landed: Vec<u8> },
    Delivered { ticket: Option<Ticket>, missing: Vec<Range<u32>> },
    Cancelled,
}

/// What a message holds at an offset.
pub(super) fn value(ticket: Ticket, at: u32) -> u8 {
    (mix(ticket as u64) as u8).wrapping_add((at % 251) as u8) | 1
}

/// What must hold of a message that was closed: what arrived is bit-equal, the rest zero, and nothing that must
/// arrive is missing.
pub(super) fn check(
    ticket: Ticket,
    what: &Outgoing,
    landed: &[u8],
    missing: &[Range<u32>],
) -> Result<(), String> {
    if landed.len() != what.bytes as usize {
        return Err(format!("message {ticket} has {} bytes and not {}", landed.len(), what.bytes));
    }
    if !what.lossy && !missing.is_empty() {
        return Err(format!("message {ticket} is reliable and lacks {missing:?}"));
    }
    let mut from = 0;
    for range in missing {
        let overlaps = |vital: &&Range<u32>| vital.start < range.end && range.start < vital.end;
        if let Some(vital) = what.critical.iter().find(overlaps) {
            return Err(format!("message {ticket} lacks {range:?} of the critical {vital:?}"));
        }
        whole(ticket, landed, from..range.start)?;
        if landed[range.start as usize..range.end as usize].iter().any(|&byte| byte != 0) {
            return Err(format!("message {ticket} is not zero where it lacks {range:?}"));
        }
        from = range.end;
    }
    whole(ticket, landed, from..what.bytes)
}

fn whole(ticket: Ticket, landed: &[u8], range: Range<u32>) -> Result<(), String> {
    match range.into_iter().find(|&at| landed[at as usize] != value(ticket, at)) {
        Some(at) => Err(format!("message {ticket} has a wrong byte at {at}")),
        None => Ok(()),
    }
}
