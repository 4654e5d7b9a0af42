//! One peer: its link, the keys of both directions, messages under way.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tweed_proto::ltp::packet::{Header, RepairHead};
use tweed_proto::ltp::repair::{Code, Repair};
use tweed_proto::ltp::replay::Window;
use tweed_proto::ltp::{BadPacket, Event, Link, LinkMetrics, MessageId, Outgoing, Place, Settings, Transmit};

use super::burst::{packet_bytes, Burst, Remote};
use super::invitation::Invitation;
use super::peers::Refused;
use super::seal::{Opener, Sealer};
use super::socket::Socket;
use super::{Notice, PacketMessage};

/// The caller's memory that a message is read from.
pub(super) struct Body {
    data: *const u8,
    ticket: u64,
    /// What was made of it, and by which code.
    parity: Option<(Code, Vec<Vec<u8>>)>,
}

// SAFETY: the caller of `Datagrams::send` leaves the memory alone and valid until the ticket is given back.
unsafe impl Send for Body {}

impl Body {
    pub(super) fn new(data: *const u8, ticket: u64) -> Body {
        Body { data, ticket, parity: None }
    }

    /// What a packet carries of it.
    ///
    /// # Safety
    /// The packet was cut within the message, whose ticket has not been given back.
    unsafe fn bytes_of(&mut self, what: &Transmit) -> &[u8] {
        match *what {
            // SAFETY: as above.
            Transmit::Data { offset, len, .. } => unsafe { self.values(offset, len) },
            // SAFETY: as above; a code is as long as its message.
            Transmit::Repair { head, .. } => unsafe { self.parity(&head) },
            Transmit::Control { .. } => &[],
        }
    }

    /// # Safety
    /// The message is as long as its code says, and its ticket has not been given back.
    unsafe fn parity(&mut self, head: &RepairHead) -> &[u8] {
        let known = self.parity.take().filter(|(code, _)| *code == head.code);
        // SAFETY: as above.
        let message = unsafe { self.values(0, head.code.total) };
        let (_, shards) = self.parity.insert(known.unwrap_or_else(|| (head.code, head.code.encode(message))));
        &shards[usize::from(head.index)]
    }

    /// # Safety
    /// The range lies in the message, whose ticket has not been given back.
    unsafe fn values(&self, offset: u32, len: u32) -> &[u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(self.data.add(offset as usize), len as usize) }
    }
}

pub(super) struct Peer {
    /// What its packets to us bear.
    pub(super) link_number: u32,
    opener: Opener,
    window: Window,
    /// Number of the newest packet: an older one does not say where the peer is now.
    newest: Option<u64>,
    /// `None` until the peer's invitation has come.
    remote: Option<Remote>,
    /// `None` until the peer's address is known: by its invitation, or by a packet that was faster.
    link: Option<Link>,
    /// The settings of the link, once it is there.
    settings: Settings,
    socket: Arc<Socket>,
    /// Messages to be sent once the link is there.
    waiting: Vec<(Outgoing, Body)>,
    sending: BTreeMap<MessageId, Body>,
    landing: Landing,
    /// What did not fit into the last burst.
    held: Option<Transmit>,
}

impl Peer {
    /// A peer that is sent `invitation`.
    pub(super) fn new(invitation: &Invitation, settings: Settings, socket: Arc<Socket>) -> Peer {
        Peer {
            link_number: invitation.link,
            opener: Opener::new(invitation.cipher, &invitation.secret),
            window: Window::default(),
            newest: None,
            remote: None,
            link: None,
            settings,
            socket,
            waiting: Vec::new(),
            sending: BTreeMap::new(),
            landing: Landing::default(),
            held: None,
        }
    }

    /// Its packets are authenticated.
    pub(super) fn is_sealed(&self) -> bool {
        self.opener.is_sealed()
    }

    /// Its invitation has come. `address` holds until a packet of it comes from another.
    pub(super) fn accept(&mut self, address: SocketAddr, invitation: &Invitation) -> Result<(), String> {
        if self.remote.is_some() {
            return Err("it has come before, and this side has not invited its sender anew".into());
        }
        let Invitation { cipher, link, ref secret, .. } = *invitation;
        self.remote = Some(Remote { address, link, cipher, sealer: Sealer::new(cipher, secret) });
        self.meet(address);
        for (what, body) in std::mem::take(&mut self.waiting) {
            self.send(what, body);
        }
        Ok(())
    }

    /// Queues a message for the peer.
    pub(super) fn send(&mut self, what: Outgoing, body: Body) {
        match &mut self.link {
            Some(link) => {
                self.sending.insert(link.send(what), body);
            }
            None => self.waiting.push((what, body)),
        }
    }

    /// Gives a message up; its memory is read no more.
    pub(super) fn cancel(&mut self, ticket: u64) {
        self.waiting.retain(|(_, body)| body.ticket != ticket);
        let found = self.sending.iter().find(|(_, body)| body.ticket == ticket).map(|(&message, _)| message);
        if let (Some(message), Some(link)) = (found, &mut self.link) {
            self.sending.remove(&message);
            link.cancel(message);
        }
    }

    /// Opens a packet in place. Its body's length; `None`, and counted, if it is not to be taken.
    pub(super) fn admit(
        &mut self,
        header: &Header,
        from: SocketAddr,
        packet: &mut [u8],
        refused: &mut Refused,
    ) -> Option<usize> {
        let Some(plain) = self.opener.open(header.number, packet).map(<[u8]>::len) else {
            refused.forged += 1;
            return None;
        };
        if !self.window.admit(header.number) {
            refused.replayed += 1;
            return None;
        }
        if Some(header.number) > self.newest {
            self.newest = Some(header.number);
            self.follow(from);
        }
        Some(plain)
    }

    /// Tells the link of a packet that was admitted. `Some`: its values need memory first.
    pub(super) fn handle(
        &mut self,
        now: Duration,
        header: &Header,
        body: &[u8],
    ) -> Result<Option<Place>, BadPacket> {
        let Some(link) = &mut self.link else { return Ok(None) };
        // By reference: to move what was just written waits for the copy of the values before (`link/transmit.rs`).
        match &link.handle(now, header, body) {
            Ok(None) => Ok(None),
            Ok(Some(place)) if self.landing.put(place, body) => Ok(None),
            Ok(Some(place)) => Ok(Some(*place)),
            Err(bad) => Err(*bad),
        }
    }

    /// Gives a message memory, and puts in the first values.
    pub(super) fn land(&mut self, place: &Place, memory: Vec<u8>, body: &[u8]) {
        self.landing.begin(place, memory);
        self.landing.put(place, body);
    }

    pub(super) fn handle_timeout(&mut self, now: Duration) {
        if let (Some(link), true) = (&mut self.link, self.remote.is_some()) {
            if link.next_timeout().is_some_and(|at| at <= now) {
                link.handle_timeout(now);
            }
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Duration> {
        self.remote.as_ref().and(self.link.as_ref())?.next_timeout()
    }

    /// Puts its next packets together. `false` if none may leave now.
    pub(super) fn fill(&mut self, now: Duration, burst: &mut Burst) -> bool {
        let (Some(remote), Some(link)) = (&mut self.remote, &mut self.link) else { return false };
        burst.begin(remote.address);
        loop {
            let next = match self.held.take() {
                None => link.poll_transmit(now),
                held => held,
            };
            let Some(what) = &next else { break };
            if !burst.fits(packet_bytes(what, remote.cipher)) {
                self.held = next;
                break;
            }
            match what.message().map(|message| self.sending.get_mut(&message)) {
                None => burst.push(what, &[], remote),
                // SAFETY: the link cuts messages within their length, and the ticket is still with us.
                Some(Some(body)) => burst.push(what, unsafe { body.bytes_of(what) }, remote),
                // What was held has been cancelled since: nothing is sent under this number.
                Some(None) => {}
            }
        }
        !burst.is_empty()
    }

    /// Adds what has happened.
    pub(super) fn poll_events(&mut self, peer: usize, notices: &mut Vec<Notice>) {
        let Some(link) = &mut self.link else { return };
        while let Some(event) = link.poll_event() {
            match event {
                Event::Restored { message, repair } => self.landing.restore(message, &repair),
                Event::Received { message, tag, total, missing, .. } => {
                    // Of a message of which nothing has come, all is zero.
                    let body = self.landing.end(message, &missing).unwrap_or_else(|| vec![0; total as usize]);
                    let packet_message = PacketMessage { tag, body, missing };
                    notices.push(Notice::Received { peer, packet_message });
                }
                Event::Delivered { message, missing } => {
                    if let Some(Body { ticket, .. }) = self.sending.remove(&message) {
                        notices.push(Notice::Delivered { peer, ticket, missing });
                    }
                }
                Event::Cancelled { message } => drop(self.landing.end(message, &[])),
            }
        }
    }

    pub(super) fn metrics(&self) -> Option<LinkMetrics> {
        self.link.as_ref().map(Link::metrics)
    }

    pub(super) fn end_epoch(&mut self, slowest: Option<Duration>) {
        if let Some(link) = &mut self.link {
            link.end_epoch(slowest);
        }
    }

    /// A genuine packet, newer than any other, came from there. In the clear, anybody may have sent it.
    fn follow(&mut self, from: SocketAddr) {
        if let (Some(remote), true) = (&mut self.remote, self.opener.is_sealed()) {
            remote.address = from;
        }
        self.meet(from);
    }

    fn meet(&mut self, address: SocketAddr) {
        if self.link.is_none() {
            let payload_ceiling = self.socket.largest_payload(address);
            self.link = Some(Link::new(Settings { payload_ceiling, ..self.settings.clone() }));
        }
    }
}

/// Messages from the peer that are on their way: memory in which their values are put together.
#[derive(Default)]
struct Landing {
    open: BTreeMap<MessageId, Vec<u8>>,
}

impl Landing {
    /// Gives a message memory; what is in it does not matter.
    fn begin(&mut self, place: &Place, mut memory: Vec<u8>) {
        memory.resize(place.total as usize, 0);
        self.open.insert(place.message, memory);
    }

    /// Puts values in their place; `body` is that of the packet. `false` if the message has no memory yet.
    fn put(&mut self, place: &Place, body: &[u8]) -> bool {
        let Some(memory) = self.open.get_mut(&place.message) else { return false };
        let (offset, len) = (place.offset as usize, place.len as usize);
        memory[offset..][..len].copy_from_slice(&body[place.at..][..len]);
        true
    }

    /// Puts in what follows from the rest; zeros do not matter, for all that is not there is put in.
    fn restore(&mut self, message: MessageId, repair: &Repair) {
        repair.restore(self.open.entry(message).or_insert_with(|| vec![0; repair.total() as usize]));
    }

    /// The message is over. Its memory, with zeros where nothing has arrived; `None` if nothing has arrived at all.
    fn end(&mut self, message: MessageId, missing: &[Range<u32>]) -> Option<Vec<u8>> {
        let mut memory = self.open.remove(&message)?;
        missing.iter().for_each(|range| memory[range.start as usize..range.end as usize].fill(0));
        Some(memory)
    }
}
