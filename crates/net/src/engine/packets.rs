//! Values that travel in packets: what leaves, what of it did not arrive, and what comes in.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use tweed_proto::ltp::Outgoing;

use super::{Engine, GroupState};
use crate::link::message::{Kind, Message};
use crate::link::peers::Load;
use crate::link::stream::{Payload, Ticket};
use crate::ltp::{Datagrams, Parcel};
use crate::operation::active::ActiveOp;
use crate::operation::delivery::Share;

/// So many ranges fit into one message about what is missing.
const RANGES_AT_ONCE: usize = 4096;

/// A value that is on its way in packets.
struct Flight {
    ticket: Ticket,
    peer: usize,
    datagrams: Arc<Datagrams>,
    data: *const u8,
    bytes: u64,
    lossy: bool,
    /// What the receiver's engine has said is missing.
    missing: Vec<Range<u32>>,
}

// SAFETY: the memory is only read, under the engine's lock, while its operation lasts.
unsafe impl Send for Flight {}

/// All values that are on their way, by the number that packets know them by.
#[derive(Default)]
pub(super) struct Flights {
    under_way: BTreeMap<u64, Flight>,
    next: u64,
}

impl Flights {
    /// The value that a peer's message is about.
    fn find(&self, run: u64, peer: usize, message: &Message) -> Option<u64> {
        let meant = |f: &Flight| {
            let Ticket { send, slice, .. } = f.ticket;
            (f.ticket.run, f.peer, send, slice) == (run, peer, message.send, message.slice)
        };
        self.under_way.iter().find(|(_, flight)| meant(flight)).map(|(&number, _)| number)
    }

    fn numbers(&self, of: impl Fn(&Flight) -> bool) -> Vec<u64> {
        self.under_way.iter().filter(|(_, flight)| of(flight)).map(|(&number, _)| number).collect()
    }
}

impl GroupState {
    /// What of `bytes` bytes at `data` must arrive.
    fn critical(&self, data: *const u8, bytes: usize) -> Vec<Range<u32>> {
        let start = data as usize;
        let before = self.whole.range(..start + bytes);
        let overlap = before.map(|(&at, &length)| at.max(start)..(at + length).min(start + bytes));
        overlap
            .filter(|r| r.start < r.end)
            .map(|r| (r.start - start) as u32..(r.end - start) as u32)
            .collect()
    }
}

/// A shorter contribution travels whole: a single packet would be a large share of it, or all, and sums of a few
/// numbers are seldom gradients.
const LEAST_LOSSY_BYTES: usize = 16 << 10;

impl Engine {
    /// Sends a value in packets.
    pub(super) fn dispatch(&mut self, index: usize, ticket: Ticket, message: Message) {
        let run = &self.runs[index];
        let Some(datagrams) = run.group.packets.clone() else { return };
        let (data, bytes) = run.leaving(ticket.output, ticket.slice);
        let peer = run.peer(ticket.to);
        let lossy = run.is_lossy(ticket.send, ticket.to);
        let whole = self.groups.get(&run.key.group).filter(|_| lossy);
        let what = Outgoing {
            round: run.key.op as u32,
            tag: message.encode(),
            bytes: bytes as u32,
            value: run.request.dtype.size() as u8,
            critical: whole.map(|state| state.critical(data, bytes)).unwrap_or_default(),
            lossy: lossy && bytes >= LEAST_LOSSY_BYTES,
        };
        self.flights.next += 1;
        let number = self.flights.next;
        self.links.peers[peer].traffic.sent(&message);
        // SAFETY: the executor keeps the value as it is until the flight has ended, and a flight ends before the
        // caller is told: here, in `end_flight`, or in `cancel_flights`.
        unsafe { datagrams.send(peer, what, data, number) };
        let flight =
            Flight { ticket, peer, datagrams, data, bytes: bytes as u64, lossy, missing: Vec::new() };
        self.flights.under_way.insert(number, flight);
    }

    /// A value has come in packets.
    pub(super) fn take_parcel(&mut self, peer: usize, parcel: Parcel) {
        let Parcel { tag, body, missing } = parcel;
        let message =
            Message::decode(&tag).filter(|m| m.kind == Kind::Carried && m.bytes as usize == body.len());
        let Some(message) = message else {
            return self.handle_lost(peer, "it sent packets of something that is no value".into());
        };
        for ranges in missing.chunks(RANGES_AT_ONCE) {
            let text: Vec<u8> =
                ranges.iter().flat_map(|r| [r.start, r.end]).flat_map(u32::to_le_bytes).collect();
            let bytes = text.len() as u32;
            self.links.carry(peer, &Message { kind: Kind::Missing, bytes, ..message }, Payload::Text(text));
        }
        self.handle_new(peer, message, Load { bytes: body, missing });
    }

    /// The peer has closed a value of ours: it lacks these ranges.
    pub(super) fn handle_delivered(&mut self, number: u64, missing: &[Range<u32>]) {
        if let Some(flight) = self.flights.under_way.remove(&number) {
            self.end_flight(&flight, missing);
        }
    }

    /// The receiver lacks these ranges of a value of ours; that it has taken the rest comes later.
    pub(super) fn note_missing(&mut self, index: usize, peer: usize, message: &Message, text: &[u8]) {
        let word = |at: &[u8]| u32::from_le_bytes([at[0], at[1], at[2], at[3]]);
        let number = self.flights.find(self.runs[index].run, peer, message);
        let Some(flight) = number.and_then(|number| self.flights.under_way.get_mut(&number)) else { return };
        let ranges = text.chunks_exact(8).map(|pair| word(&pair[..4])..word(&pair[4..]));
        let within = |r: &Range<u32>| r.start < r.end && u64::from(r.end) <= flight.bytes;
        flight.missing.extend(ranges.filter(within));
    }

    /// The receiver has taken in a value of ours: what it lacks it has said before, over the same stream. Its packets
    /// may say so later or, if it leaves, never.
    pub(super) fn note_read(&mut self, index: usize, peer: usize, message: &Message) {
        let Some(number) = self.flights.find(self.runs[index].run, peer, message) else { return };
        let Some(flight) = self.flights.under_way.remove(&number) else { return };
        flight.datagrams.cancel(peer, number);
        self.end_flight(&flight, &flight.missing);
    }

    /// Nothing is read from an operation's memory any more: it has failed.
    pub(super) fn cancel_flights(&mut self, run: u64) {
        for number in self.flights.numbers(|flight| flight.ticket.run == run) {
            if let Some(flight) = self.flights.under_way.remove(&number) {
                flight.datagrams.cancel(flight.peer, number);
            }
        }
    }

    /// A peer is gone: what was on its way to it never arrives.
    pub(super) fn drop_flights(&mut self, peer: usize) {
        for number in self.flights.numbers(|flight| flight.peer == peer) {
            if let Some(flight) = self.flights.under_way.remove(&number) {
                self.handle_left(flight.ticket);
            }
        }
    }

    /// Its memory is no longer read. What is missing is kept before the result overwrites it.
    fn end_flight(&mut self, flight: &Flight, missing: &[Range<u32>]) {
        let run = self.runs.iter_mut().find(|run| run.run == flight.ticket.run);
        if let Some(run) = run.filter(|_| flight.lossy) {
            note_sent(run, flight, missing);
        }
        self.handle_left(flight.ticket);
    }

    /// An operation has ended well: after so many of its kind, times are measured anew.
    pub(super) fn count_epoch(state: &mut GroupState, run: &ActiveOp) {
        let (Some(ltp), Some(datagrams)) = (&run.group.terms.ltp, &run.group.packets) else { return };
        let count = state.of_a_kind.entry(run.signature).or_default();
        *count += 1;
        if *count >= ltp.epoch {
            state.of_a_kind.clear();
            datagrams.end_epoch();
        }
    }
}

fn note_sent(run: &mut ActiveOp, flight: &Flight, missing: &[Range<u32>]) {
    let to = run.group_rank(flight.ticket.to);
    run.delivery.note_sent(to, Share::new(flight.bytes, missing));
    if run.group.terms.ltp.as_ref().is_some_and(|ltp| ltp.return_lost) {
        // SAFETY: the executor keeps the value as it is until it hears that the flight has ended; the ranges lie
        // within it: those of packets by the protocol, those of the peer's engine were checked.
        unsafe { run.delivery.keep_lost(flight.data, missing) };
    }
}
