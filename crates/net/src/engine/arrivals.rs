//! What comes in over a wire: payloads land where they belong in the end, if nobody needs what lies there.

use std::sync::MutexGuard;

use super::Engine;
use crate::link::message::{Kind, Message};
use crate::link::reader::{Body, Sink};

/// The engine, locked, as it takes in what `peer` sends.
pub(crate) struct Arrivals<'a> {
    pub(crate) engine: MutexGuard<'a, Engine>,
    pub(crate) peer: usize,
}

impl Sink for Arrivals<'_> {
    fn place(&mut self, message: &Message) -> Body {
        match message.kind {
            Kind::Carried if self.address(message).is_some() => Body::Placed,
            Kind::Carried => Body::Owned(self.engine.links.spare.take(message.bytes as usize)),
            kind if kind.has_payload() => Body::Owned(vec![0; message.bytes as usize]),
            _ => Body::Owned(Vec::new()),
        }
    }

    fn address(&mut self, message: &Message) -> Option<*mut u8> {
        self.engine.landing_place(self.peer, message)
    }

    fn take(&mut self, message: Message, body: Body) {
        match body {
            Body::Owned(bytes) => self.engine.handle_new(self.peer, message, bytes.into()),
            Body::Placed => self.engine.handle_placed(self.peer, message),
            Body::Unwanted(_) => {}
        }
        if message.kind == Kind::Carried {
            // While it is still in the cache.
            while self.engine.run_some() {}
        }
    }
}

impl Engine {
    /// Where the value that a message announces may be written at once.
    fn landing_place(&self, peer: usize, message: &Message) -> Option<*mut u8> {
        let run = &self.runs[self.find_run(peer, message)?];
        let expected = !run.told && message.signature == run.signature;
        expected.then(|| run.landing_place(message))?
    }

    fn handle_placed(&mut self, peer: usize, message: Message) {
        let Some(place) = self.landing_place(peer, &message) else { return };
        let Some(index) = self.find_run(peer, &message) else { return };
        self.links.peers[peer].traffic.received(&message);
        let at = self.links.land_in_place(self.runs[index].run, place, u64::from(message.bytes));
        self.hear(index, peer);
        if self.hand_over(index, message, at).is_err() {
            unreachable!("a value that may land may also be handed over");
        }
    }
}
