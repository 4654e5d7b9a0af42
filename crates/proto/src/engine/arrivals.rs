//! Values that come in over a stream land where they belong in the end, if nobody needs what lies there.

use super::host::{Address, Host, Time};
use super::landed::Received;
use super::message::Message;
use super::Engine;

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
        let expected = !active.is_told() && message.signature == active.signature;
        expected.then(|| active.landing_place(message, &self.host))?
    }

    /// The value of a message was written where it belongs.
    pub fn handle_placed(&mut self, peer: usize, message: Message) {
        let Some(place) = self.landing_place(peer, &message) else { return };
        let Some(index) = self.find_run(peer, &message) else { return };
        self.peers.get_mut(peer).traffic.received(&message);
        let at = self.landed.keep_placed(self.active[index].run, place, u64::from(message.bytes));
        self.note_heard(index, peer);
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
