//! What has come in over a wire and was not used yet. Values that come over a stream land where they belong in the end, if
//! nobody needs what lies there.

use std::collections::BTreeMap;
use std::ops::Range;

use super::host::{Address, Host, Time};
use super::message::Message;
use super::Engine;

/// What followed a message over a wire.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// The bytes that were received.
    pub bytes: Vec<u8>,
    /// What of them did not arrive, and is zero.
    pub missing: Vec<Range<u32>>,
}

impl From<Vec<u8>> for Received {
    fn from(bytes: Vec<u8>) -> Received {
        Received { bytes, missing: Vec::new() }
    }
}

enum Value {
    Kept(Received),
    /// It lies where it belongs in the end.
    Placed(Address, u64),
}

/// The values that came in, by number, with the operation that each is for.
#[derive(Default)]
pub(super) struct Landed {
    values: BTreeMap<u64, (u64, Value)>,
    next: u64,
}

impl Landed {
    /// Keeps what came in; the number stands for it until [`Landed::forget`].
    pub(super) fn keep(&mut self, run: u64, received: Received) -> u64 {
        self.note(run, Value::Kept(received))
    }

    fn note(&mut self, run: u64, value: Value) -> u64 {
        self.next += 1;
        self.values.insert(self.next, (run, value));
        self.next
    }

    /// Where `bytes` bytes lie, and what of them is missing.
    pub(super) fn find(&self, number: u64, bytes: u64) -> Option<(Address, &[Range<u32>])> {
        let (address, length, missing) = match &self.values.get(&number)?.1 {
            Value::Kept(received) => {
                (received.bytes.as_ptr().into(), received.bytes.len() as u64, &received.missing[..])
            }
            Value::Placed(address, length) => (*address, *length, &[][..]),
        };
        (length == bytes).then_some((address, missing))
    }

    /// Forgets a message that was used.
    pub(super) fn forget(&mut self, number: u64, host: &mut impl Host) {
        if let Some((_, Value::Kept(received))) = self.values.remove(&number) {
            host.recycle(received.bytes);
        }
    }

    /// Forgets all that came in for an operation that has failed.
    pub(super) fn forget_all(&mut self, run: u64) {
        self.values.retain(|_, &mut (of, _)| of != run);
    }
}

impl<H: Host> Engine<H> {
    /// What `peer` sends is taken in next, at `now`.
    pub fn listen(&mut self, now: Time) {
        self.clock = now;
        self.take_events();
    }

    /// Where the value that a message announces may be written at once. To be asked anew before each call that writes: a
    /// place is withdrawn when its operation fails.
    pub fn landing_place(&self, peer: usize, message: &Message) -> Option<Address> {
        if self.peers.is_lost(peer) {
            return None;
        }
        let active = &self.active[self.find_run(peer, message)?];
        let expected = !active.has_result() && message.signature == active.signature;
        expected.then(|| active.landing_place(message, &self.host))?
    }

    /// The value of a message was written where it belongs.
    pub fn handle_placed(&mut self, peer: usize, message: Message) {
        let Some(place) = self.landing_place(peer, &message) else { return };
        let Some(index) = self.find_run(peer, &message) else { return };
        self.peers.get_mut(peer).traffic.received(&message);
        let at = self.landed.note(self.active[index].run, Value::Placed(place, u64::from(message.bytes)));
        self.note_sender(index, peer);
        self.note_begun(peer, &message);
        self.hand_over_or_fail(index, peer, message, at);
        self.look_first = true;
    }

    /// A message has come over a stream, with what it carried.
    pub fn handle_message(&mut self, peer: usize, message: Message, received: Received) {
        if !self.peers.is_lost(peer) {
            self.peers.get_mut(peer).traffic.received(&message);
            self.handle(peer, message, received);
        }
    }
}
