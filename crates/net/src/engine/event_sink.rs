//! What the thread of a socket for packets has of its node: where to put what has come, and how to wake who drives.

use std::ops::Range;
use std::sync::Arc;

use tweed_proto::engine::Event;

use super::live::{page_of, Inbox};
use crate::link::buffer_pool::BufferPool;
use crate::link::shared_memory::Arena;
use crate::ltp::{Handler, PacketMessage};
use crate::operation::op::Op;

/// See the module's documentation.
pub(crate) struct EventSink {
    pub(super) arena: Arc<Arena>,
    pub(super) page: u64,
    pub(super) inbox: Arc<Inbox>,
    pub(super) pool: Arc<BufferPool>,
}

impl EventSink {
    fn post(&self, event: Event<Arc<Op>>) {
        self.inbox.lock().push(event);
        page_of(&self.arena, self.page).wakeup.ring_all();
    }
}

impl Handler for EventSink {
    fn buffer(&self, bytes: usize) -> Vec<u8> {
        self.pool.take(bytes)
    }

    fn received(&self, peer: usize, packet_message: PacketMessage) {
        self.post(Event::Received(peer, packet_message));
    }

    fn delivered(&self, _peer: usize, ticket: u64, missing: Vec<Range<u32>>) {
        self.post(Event::Delivered(ticket, missing));
    }

    fn broken(&self, peer: usize, why: String) {
        self.post(Event::Lost(peer, format!("its packets make no sense: {why}")));
    }
}
