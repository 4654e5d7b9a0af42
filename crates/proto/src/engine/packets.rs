//! Values that go in packets: what leaves, what of it did not arrive, and what comes in.

use std::collections::BTreeMap;
use std::ops::Range;

use super::delivery::Share;
use super::groups::GroupState;
use super::host::{Address, Host, Ticket};
use super::landed::Received;
use super::message::{Kind, Message};
use super::operation::ActiveOp;
use super::Engine;
use crate::ltp::{Outgoing, TAG_BYTES};

/// A message that has come in packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketMessage {
    /// The header that the sender wrote.
    pub tag: [u8; TAG_BYTES],
    /// The values, with zeros where they are missing.
    pub body: Vec<u8>,
    /// Ranges of bytes that have not arrived, ascending; the sender gets the same report.
    pub missing: Vec<Range<u32>>,
}

/// So many ranges fit into one message about what is missing.
const RANGES_AT_ONCE: usize = 4096;

/// A value that is on its way in packets.
struct PacketSend {
    ticket: Ticket,
    peer: usize,
    endpoint: u64,
    data: Address,
    bytes: u64,
    lossy: bool,
    /// What the receiver's engine has reported missing.
    missing: Vec<Range<u32>>,
}

/// All values that are on their way, by the number that packets know them by.
#[derive(Default)]
pub(super) struct PacketSends {
    under_way: BTreeMap<u64, PacketSend>,
    next: u64,
}

impl PacketSends {
    /// The value that a peer's message is about.
    fn find(&self, run: u64, peer: usize, message: &Message) -> Option<u64> {
        let meant = |s: &PacketSend| {
            let Ticket { send, slice, .. } = s.ticket;
            (s.ticket.run, s.peer, send, slice) == (run, peer, message.send, message.slice)
        };
        self.under_way.iter().find(|(_, send)| meant(send)).map(|(&number, _)| number)
    }

    fn numbers(&self, of: impl Fn(&PacketSend) -> bool) -> Vec<u64> {
        self.under_way.iter().filter(|(_, send)| of(send)).map(|(&number, _)| number).collect()
    }
}

impl GroupState {
    /// What of `bytes` bytes at `data` must arrive.
    fn critical(&self, data: Address, bytes: u64) -> Vec<Range<u32>> {
        let start = data.0;
        let before = self.whole.range(..start + bytes);
        let overlap = before.map(|(&at, &length)| at.max(start)..(at + length).min(start + bytes));
        let offset = |at: u64| (at - start) as u32;
        overlap.filter(|r| r.start < r.end).map(|r| offset(r.start)..offset(r.end)).collect()
    }

    /// An operation has ended well. Whether it was the last of its epoch: times are measured anew.
    pub(super) fn ends_epoch<C>(&mut self, active: &ActiveOp<C>) -> bool {
        let Some(ltp) = active.group.config.ltp.as_ref() else { return false };
        let count = self.of_a_kind.entry(active.signature).or_default();
        *count += 1;
        let ends = *count >= ltp.epoch;
        if ends {
            self.of_a_kind.clear();
        }
        ends
    }
}

/// A shorter contribution is sent whole: a single packet would be a large share of it, or all, and sums of a few
/// numbers are seldom gradients.
const LEAST_LOSSY_BYTES: u64 = 16 << 10;

impl<H: Host> Engine<H> {
    /// Sends a value in packets.
    pub(super) fn send_datagrams(&mut self, index: usize, ticket: Ticket, message: Message) {
        let active = &self.active[index];
        let Some(endpoint) = active.group.endpoint else { return };
        let (data, bytes) = active.leaving(ticket.output, ticket.slice, &self.host);
        let peer = active.peer(ticket.to);
        let lossy = active.is_lossy(ticket.send, ticket.to);
        let group = self.groups.get(&active.key.group).filter(|_| lossy);
        let what = Outgoing {
            round: active.key.op as u32,
            tag: message.encode(),
            bytes: bytes as u32,
            value: active.request.dtype.size() as u8,
            critical: group.map(|group| group.critical(data, bytes)).unwrap_or_default(),
            lossy: lossy && bytes >= LEAST_LOSSY_BYTES,
            urgency: active.request.urgency,
        };
        self.packet_sends.next += 1;
        let number = self.packet_sends.next;
        self.peers.get_mut(peer).traffic.sent(&message);
        let send = PacketSend { ticket, peer, endpoint, data, bytes, lossy, missing: Vec::new() };
        self.packet_sends.under_way.insert(number, send);
        // The executor keeps the value as it is until its sending has ended, in `end_packet_send`; or the operation fails,
        // and it is cancelled before the caller is told.
        self.host.send_datagrams(endpoint, peer, what, data, number);
    }

    /// A value has come in packets.
    pub(super) fn take_packet_message(&mut self, peer: usize, packet_message: PacketMessage) {
        let PacketMessage { tag, body, missing } = packet_message;
        let fits = |m: &Message| m.kind == Kind::Carried && m.bytes as usize == body.len();
        let Some(message) = Message::decode(&tag).filter(fits) else {
            return self.handle_lost(peer, "it sent packets of something that is no value".into());
        };
        for ranges in missing.chunks(RANGES_AT_ONCE) {
            let words = ranges.iter().flat_map(|r| [r.start, r.end]);
            let text: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
            self.peers.send_text(peer, &Message { kind: Kind::Missing, ..message }, text, &mut self.host);
        }
        self.handle_message(peer, message, Received { bytes: body, missing });
    }

    /// The peer has closed a value of ours: it lacks these ranges.
    pub(super) fn handle_delivered(&mut self, number: u64, missing: &[Range<u32>]) {
        if let Some(send) = self.packet_sends.under_way.remove(&number) {
            self.end_packet_send(&send, missing);
        }
    }

    /// The receiver lacks these ranges of a value of ours; that it has taken the rest comes later.
    pub(super) fn note_missing(&mut self, index: usize, peer: usize, message: &Message, text: &[u8]) {
        let word = |at: &[u8]| u32::from_le_bytes([at[0], at[1], at[2], at[3]]);
        let number = self.packet_sends.find(self.active[index].run, peer, message);
        let send = number.and_then(|number| self.packet_sends.under_way.get_mut(&number));
        let Some(send) = send else { return };
        let ranges = text.chunks_exact(8).map(|pair| word(&pair[..4])..word(&pair[4..]));
        let within = |r: &Range<u32>| r.start < r.end && u64::from(r.end) <= send.bytes;
        send.missing.extend(ranges.filter(within));
    }

    /// The receiver has taken in a value of ours: what it lacks it has said before, over the same stream. Its packets
    /// may say so later or, if it leaves, never.
    pub(super) fn note_read(&mut self, index: usize, peer: usize, message: &Message) {
        let Some(number) = self.packet_sends.find(self.active[index].run, peer, message) else { return };
        let Some(send) = self.packet_sends.under_way.remove(&number) else { return };
        self.host.cancel_datagrams(send.endpoint, peer, number);
        self.end_packet_send(&send, &send.missing);
    }

    /// Nothing is read from an operation's memory any more: it has failed.
    pub(super) fn cancel_packet_sends(&mut self, run: u64) {
        for number in self.packet_sends.numbers(|send| send.ticket.run == run) {
            if let Some(send) = self.packet_sends.under_way.remove(&number) {
                self.host.cancel_datagrams(send.endpoint, send.peer, number);
            }
        }
    }

    /// A peer is gone: what was on its way to it never arrives.
    pub(super) fn drop_packet_sends(&mut self, peer: usize) {
        for number in self.packet_sends.numbers(|send| send.peer == peer) {
            if let Some(send) = self.packet_sends.under_way.remove(&number) {
                self.handle_left(send.ticket);
            }
        }
    }

    /// Its memory is no longer read. What is missing is kept before the result overwrites it.
    fn end_packet_send(&mut self, send: &PacketSend, missing: &[Range<u32>]) {
        let active = self.active.iter_mut().find(|a| a.run == send.ticket.run);
        if let Some(active) = active.filter(|_| send.lossy) {
            let to = active.group_rank(send.ticket.to);
            active.delivery.note_sent(to, Share::new(send.bytes, missing));
            if active.group.config.ltp.as_ref().is_some_and(|ltp| ltp.return_lost) {
                active.delivery.keep_lost(send.data, missing, |at, bytes| self.host.read(at, bytes));
            }
        }
        self.handle_left(send.ticket);
    }
}
