//! How the members of a group come to send each other packets beside their streams: each invites the others to its socket.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use tweed_proto::engine::config::Ltp;
use tweed_proto::engine::message::{Kind, Message};
use tweed_proto::engine::{Engine, EngineError, GroupNumber, Payload};
use tweed_proto::ltp::Closing;
use tweed_proto::Reach;
use tweed_schedule::Rank;

use crate::connect::connector::Connector;
use crate::ltp::endpoints::endpoint_number;
use crate::ltp::{Cipher, DatagramOptions, Datagrams};
use crate::system_error::in_words;

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

impl Connector {
    /// Makes packets possible to all members that are reached over wires; all of them must call it. Returns the number of
    /// the endpoint.
    pub(super) fn invite_members(&self, ltp: &Ltp, members: &GroupPeers<'_>) -> Result<u64, EngineError> {
        let number = endpoint_number(ltp);
        let driver = &self.driver;
        let open = || Datagrams::open(self.packet_host(), self.packet_options(ltp), driver.event_sink());
        let datagrams = driver
            .endpoints
            .find_or_open(number, open)
            .map_err(|e| EngineError::setup("no socket can be opened for packets", in_words(&e)))?;
        let uninvited = driver.endpoints.uninvited(number, members.far());
        for &(_, peer) in &uninvited {
            let invitation = datagrams.invite(peer);
            let bytes = invitation.len() as u32;
            let message = Message { at: number, bytes, ..Message::new(Kind::Invite, GroupNumber::NONE, 0) };
            let mut engine = driver.engine.lock();
            let Engine { peers, host, .. } = &mut *engine;
            peers.send(peer, &message, Payload::Text(invitation), host);
            engine.flush_wires();
            driver.release(engine);
        }
        for (rank, peer) in uninvited {
            self.accept(&datagrams, number, peer, members).map_err(|why| {
                driver.endpoints.forget(number, peer);
                let host = driver.engine.lock().peers.get(peer).map_or_else(String::new, |p| p.host.clone());
                let group = members.group;
                EngineError::PeerLost(format!("group {group:?}: no packets to rank {rank} on {host}: {why}"))
            })?;
        }
        driver.engine.lock().host.datagrams.insert(number, datagrams);
        Ok(number)
    }

    fn accept(
        &self,
        datagrams: &Datagrams,
        number: u64,
        peer: usize,
        members: &GroupPeers<'_>,
    ) -> Result<(), String> {
        let until = (members.deadline, members.interrupted);
        let invitation = self.driver.endpoints.wait(peer, number, until)?;
        let address =
            self.driver.engine.lock().host.links[peer].streams.first().and_then(|s| s.socket.address());
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
        DatagramOptions { closing, cipher, ports: self.options.ports, ..DatagramOptions::default() }
    }
}
