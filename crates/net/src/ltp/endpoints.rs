//! The way packets take beside the streams: sockets for them, opened when a group first asks, and how peers are
//! invited to them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;

use tweed_proto::engine::config::Ltp;
use tweed_proto::engine::message::{Kind, Message};
use tweed_proto::engine::{Engine, EngineError, Event, Payload};
use tweed_proto::ltp::Closing;
use tweed_proto::Reach;
use tweed_schedule::Rank;

use crate::connect::stop::SLICE;
use crate::engine::live::{page_of, Inbox};
use crate::link::buffer_pool::BufferPool;
use crate::link::shared_memory::Arena;
use crate::link::stream::Socket;
use crate::ltp::{Cipher, DatagramOptions, Datagrams, Handler, Parcel};
use crate::operation::op::Op;
use crate::state::Inner;
use crate::sync::{Condvar, LockRank, Mutex};

/// No peer needs more invitations that nobody has answered.
const MOST_OFFERS: usize = 64;

/// What the thread that reads packets has of its node.
pub(crate) struct EventSink {
    pub(crate) arena: Arc<Arena>,
    pub(crate) page: u64,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) pool: Arc<BufferPool>,
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

    fn received(&self, peer: usize, parcel: Parcel) {
        self.post(Event::Received(peer, parcel));
    }

    fn delivered(&self, _peer: usize, ticket: u64, missing: Vec<std::ops::Range<u32>>) {
        self.post(Event::Delivered(ticket, missing));
    }

    fn broken(&self, peer: usize, why: String) {
        self.post(Event::Lost(peer, format!("its packets make no sense: {why}")));
    }
}

/// A socket for packets, with settings of its own.
struct Endpoint {
    number: u64,
    datagrams: Arc<Datagrams>,
    /// Those who have been invited.
    met: BTreeSet<usize>,
}

/// The sockets of a node, and invitations to those of its peers.
pub(crate) struct DatagramEndpoints {
    endpoints: Mutex<Vec<Endpoint>>,
    offers: Mutex<PendingOffers>,
    came: Condvar,
}

#[derive(Default)]
struct PendingOffers {
    /// By peer and by number of the line.
    invitations: BTreeMap<(usize, u64), Vec<u8>>,
    lost: BTreeSet<usize>,
}

impl Default for DatagramEndpoints {
    fn default() -> DatagramEndpoints {
        DatagramEndpoints {
            endpoints: Mutex::new(LockRank::Endpoints, Vec::new()),
            offers: Mutex::new(LockRank::Offers, PendingOffers::default()),
            came: Condvar::default(),
        }
    }
}

impl DatagramEndpoints {
    /// A peer's invitation to the line of that number.
    pub(crate) fn keep(&self, peer: usize, number: u64, invitation: Vec<u8>) {
        let mut offers = self.offers.lock();
        if offers.invitations.range((peer, 0)..=(peer, u64::MAX)).count() < MOST_OFFERS {
            offers.invitations.insert((peer, number), invitation);
        }
        self.came.notify_all();
    }

    /// A peer is gone: nothing more is read for it, and nobody waits for its invitations.
    pub(crate) fn drop_peer(&self, peer: usize) {
        self.endpoints.lock().iter().for_each(|line| line.datagrams.drop_peer(peer));
        self.offers.lock().lost.insert(peer);
        self.came.notify_all();
    }

    /// Ends all threads.
    pub(crate) fn close(&self) {
        self.endpoints.lock().iter().for_each(|line| line.datagrams.close());
    }

    /// The members that have not been invited to a line yet: from now on they have.
    fn strangers(&self, number: u64, company: &GroupPeers<'_>) -> Vec<(Rank, usize)> {
        let mut open = self.endpoints.lock();
        let line = open.iter_mut().find(|line| line.number == number);
        line.map(|line| company.far().filter(|&(_, peer)| line.met.insert(peer)).collect())
            .unwrap_or_default()
    }

    /// It is to be invited anew.
    fn forget(&self, number: u64, peer: usize) {
        if let Some(line) = self.endpoints.lock().iter_mut().find(|line| line.number == number) {
            line.met.remove(&peer);
        }
    }

    /// Waits in slices: whoever waits can be interrupted.
    fn wait(
        &self,
        peer: usize,
        number: u64,
        (deadline, interrupted): (Instant, &dyn Fn() -> bool),
    ) -> Result<Vec<u8>, &'static str> {
        let mut offers = self.offers.lock();
        loop {
            if let Some(invitation) = offers.invitations.remove(&(peer, number)) {
                return Ok(invitation);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if offers.lost.contains(&peer) {
                return Err("it was lost meanwhile");
            }
            if left.is_zero() {
                return Err("it has sent no invitation in time");
            }
            offers = self.came.wait_timeout(offers, left.min(SLICE));
            // Nothing is locked meanwhile: it may run code of the caller's.
            drop(offers);
            if interrupted() {
                return Err("this process was interrupted while it waited");
            }
            offers = self.offers.lock();
        }
    }
}

/// The members of a group that is being made.
pub(crate) struct GroupPeers<'a> {
    pub(crate) group: &'a str,
    /// The process behind each rank.
    pub(crate) peers: &'a [usize],
    pub(crate) reach: &'a [Reach],
    pub(crate) deadline: Instant,
    /// Whether to give up at once.
    pub(crate) interrupted: &'a dyn Fn() -> bool,
}

impl GroupPeers<'_> {
    fn far(&self) -> impl Iterator<Item = (Rank, usize)> + '_ {
        let ranks = (0..).zip(self.peers.iter().zip(self.reach));
        ranks.filter(|(_, (_, &reach))| reach == Reach::Wire).map(|(rank, (&peer, _))| (rank, peer))
    }
}

impl Inner {
    /// Makes packets possible to all members that are reached over wires; all of them must call it.
    pub(crate) fn link_packets(&self, ltp: &Ltp, company: &GroupPeers<'_>) -> Result<u64, EngineError> {
        let number = endpoint_number(ltp);
        let datagrams = self.line(number, ltp)?;
        let strangers = self.endpoints.strangers(number, company);
        for &(_, peer) in &strangers {
            let invitation = datagrams.invite(peer);
            let bytes = invitation.len() as u32;
            let message = Message { at: number, bytes, ..Message::new(Kind::Invite, 0, 0) };
            let mut engine = self.engine.lock();
            let Engine { peers, host, .. } = &mut *engine;
            peers.send(peer, &message, Payload::Text(invitation), host);
            engine.flush_queues();
        }
        for (rank, peer) in strangers {
            self.accept(&datagrams, number, peer, company).map_err(|why| {
                self.endpoints.forget(number, peer);
                let host = self.engine.lock().peers.get(peer).map_or_else(String::new, |p| p.host.clone());
                let group = company.group;
                EngineError::PeerLost(format!("group {group:?}: no packets to rank {rank} on {host}: {why}"))
            })?;
        }
        self.engine.lock().host.datagrams.insert(number, datagrams);
        Ok(number)
    }

    /// The line with these settings.
    fn line(&self, number: u64, ltp: &Ltp) -> Result<Arc<Datagrams>, EngineError> {
        let mut open = self.endpoints.endpoints.lock();
        if let Some(line) = open.iter().find(|line| line.number == number) {
            return Ok(Arc::clone(&line.datagrams));
        }
        let opened = Datagrams::open(self.packet_host(), self.packet_options(ltp), self.event_sink());
        let datagrams = opened.map_err(|e| EngineError::setup("no socket can be opened for packets", e))?;
        open.push(Endpoint { number, datagrams: Arc::clone(&datagrams), met: BTreeSet::new() });
        Ok(datagrams)
    }

    fn accept(
        &self,
        datagrams: &Datagrams,
        number: u64,
        peer: usize,
        company: &GroupPeers<'_>,
    ) -> Result<(), String> {
        let until = (company.deadline, company.interrupted);
        let invitation = self.endpoints.wait(peer, number, until)?;
        let address = self.engine.lock().host.links[peer].streams.first().and_then(|s| s.socket.address());
        datagrams.accept(peer, address.ok_or("its stream has no address")?, &invitation)
    }

    /// Where packets come to; who only dials out has told no address that could be kept to.
    fn packet_host(&self) -> IpAddr {
        if self.options.admission.dial_only {
            return Ipv4Addr::UNSPECIFIED.into();
        }
        self.options.host
    }

    fn packet_options(&self, ltp: &Ltp) -> DatagramOptions {
        let closing = Closing { fraction: ltp.fraction, slack: ltp.slack, deadline: self.options.deadline };
        let cipher = match ltp.cipher.as_str() {
            _ if self.keys.is_none() => Cipher::Clear,
            "aes-128-gcm" => Cipher::Aes128Gcm,
            "chacha20-poly1305" => Cipher::ChaCha20Poly1305,
            _ => Cipher::fastest(),
        };
        DatagramOptions { closing, cipher, ..DatagramOptions::default() }
    }

    fn event_sink(&self) -> Arc<EventSink> {
        let (arena, inbox, pool) = (Arc::clone(&self.arena), Arc::clone(&self.inbox), Arc::clone(&self.pool));
        Arc::new(EventSink { arena, page: self.page, inbox, pool })
    }
}

impl Socket {
    /// Where the other end is, on a network.
    fn address(&self) -> Option<IpAddr> {
        let found = match self {
            Socket::Local(_) => return None,
            Socket::Tcp(socket) => socket.peer_addr(),
            Socket::Sealed(sealed) => sealed.socket.peer_addr(),
        };
        found.ok().map(|address| address.ip())
    }
}

/// Equal for groups whose packets can share a socket (FNV-1a).
fn endpoint_number(ltp: &Ltp) -> u64 {
    let Ltp { fraction, slack, cipher, .. } = ltp;
    let text = format!("{:x} {} {cipher}", fraction.to_bits(), slack.as_nanos());
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_letter_is_taken_once_and_a_lost_peer_sends_none() {
        let endpoints = DatagramEndpoints::default();
        let now = Instant::now();
        endpoints.keep(1, 7, vec![1]);
        let wait = |until, interrupted| endpoints.wait(1, 7, (until, &move || interrupted));
        assert_eq!(wait(now, false), Ok(vec![1]));
        assert_eq!(wait(now, false), Err("it has sent no invitation in time"));
        let later = now + Duration::from_secs(9);
        assert_eq!(wait(later, true), Err("this process was interrupted while it waited"));
        endpoints.drop_peer(1);
        assert_eq!(wait(later, false), Err("it was lost meanwhile"));
    }

    #[test]
    fn nobody_fills_the_memory_with_letters() {
        let endpoints = DatagramEndpoints::default();
        (0..1000).for_each(|number| endpoints.keep(1, number, vec![0; 40]));
        assert_eq!(endpoints.offers.lock().invitations.len(), MOST_OFFERS);
    }
}
