//! Whose packet is it, and is it genuine? Everything that the driver knows of its peers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeBounds;
use std::time::Duration;

use tweed_proto::ltp::packet::{Header, HEADER_BYTES};
use tweed_proto::ltp::{BadPacket, Place};

use super::burst::Burst;
use super::peer::Peer;
use super::Notice;

/// Packets that changed nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// No packet of this protocol and version.
    pub malformed: u64,
    /// Packets that are for no link of ours.
    pub strange: u64,
    /// Not sealed by the peer it claims to be from, or changed on the way.
    pub forged: u64,
    /// Genuine, and had come before, or is too old to tell.
    pub replayed: u64,
    /// Packets of ours that this host's kernel refused.
    pub unsent: u64,
}

/// Values for which a message needs memory.
pub(super) struct Want {
    /// The link number that the packet bore.
    link: u32,
    pub(super) place: Place,
}

/// All peers of a socket.
#[derive(Default)]
pub(super) struct Peers {
    by_number: BTreeMap<usize, Peer>,
    /// Which peer sends under this link number.
    by_link: BTreeMap<u32, usize>,
    /// Who was served last.
    turn: usize,
    pub(super) refused: Refused,
}

impl Peers {
    pub(super) fn get(&self, peer: usize) -> Option<&Peer> {
        self.by_number.get(&peer)
    }

    pub(super) fn get_mut(&mut self, peer: usize) -> Option<&mut Peer> {
        self.by_number.get_mut(&peer)
    }

    /// Takes a peer in; what was known under its number is forgotten.
    pub(super) fn insert(&mut self, number: usize, peer: Peer) {
        self.remove(number);
        self.by_link.insert(peer.link_number, number);
        self.by_number.insert(number, peer);
    }

    /// A link number that no peer has.
    pub(super) fn is_free(&self, link: u32) -> bool {
        !self.by_link.contains_key(&link)
    }

    pub(super) fn remove(&mut self, number: usize) {
        if let Some(peer) = self.by_number.remove(&number) {
            self.by_link.remove(&peer.link_number);
        }
    }

    /// Takes a packet in. `Some`: its values need memory; see [`Peers::land`].
    pub(super) fn take(
        &mut self,
        now: Duration,
        from: SocketAddr,
        packet: &mut [u8],
        notices: &mut Vec<Notice>,
    ) -> Option<Want> {
        let Ok(header) = Header::decode(packet) else {
            self.refused.malformed += 1;
            return None;
        };
        let Some(&number) = self.by_link.get(&header.link) else {
            self.refused.strange += 1;
            return None;
        };
        let peer = self.by_number.get_mut(&number).expect("each link belongs to a peer");
        let plain = peer.admit(&header, from, packet, &mut self.refused)?;
        let place = match peer.handle(now, &header, &packet[HEADER_BYTES..][..plain]) {
            Ok(place) => place?,
            Err(bad) => {
                self.give_up(number, &bad, notices);
                return None;
            }
        };
        Some(Want { link: header.link, place })
    }

    /// A peer that breaks the protocol is forgotten. In the clear, anybody on this host may have sent that packet.
    fn give_up(&mut self, number: usize, bad: &BadPacket, notices: &mut Vec<Notice>) {
        if self.get(number).is_some_and(Peer::is_sealed) {
            notices.push(Notice::Broken { peer: number, why: bad.to_string() });
            self.remove(number);
        } else {
            self.refused.forged += 1;
        }
    }

    /// Gives a message memory, and puts into it the values that wanted it.
    pub(super) fn land(&mut self, want: &Want, memory: Vec<u8>, packet: &[u8]) {
        let peer = self.by_link.get(&want.link).and_then(|number| self.by_number.get_mut(number));
        if let Some(peer) = peer {
            peer.land(&want.place, memory, &packet[HEADER_BYTES..]);
        }
    }

    /// Does what is due by `now`.
    pub(super) fn handle_timeouts(&mut self, now: Duration) {
        self.by_number.values_mut().for_each(|peer| peer.handle_timeout(now));
    }

    /// When something is due next.
    pub(super) fn next_timeout(&self) -> Option<Duration> {
        self.by_number.values().filter_map(Peer::next_timeout).min()
    }

    /// Puts the next packets together, of one peer after the other. `false` if none may leave now.
    pub(super) fn fill(&mut self, now: Duration, burst: &mut Burst) -> bool {
        let turn = self.turn;
        let next = self.fill_of(now, turn + 1.., burst).or_else(|| self.fill_of(now, ..=turn, burst));
        self.turn = next.unwrap_or(turn);
        next.is_some()
    }

    fn fill_of(&mut self, now: Duration, of: impl RangeBounds<usize>, burst: &mut Burst) -> Option<usize> {
        self.by_number.range_mut(of).find_map(|(&number, peer)| peer.fill(now, burst).then_some(number))
    }

    /// What has happened, in order for each peer.
    pub(super) fn poll_events(&mut self, notices: &mut Vec<Notice>) {
        for (&number, peer) in &mut self.by_number {
            peer.poll_events(number, notices);
        }
    }

    /// An epoch of Early Close ends, on all links.
    pub(super) fn end_epoch(&mut self) {
        let coming = |peer: &Peer| peer.metrics().and_then(|metrics| metrics.coming_threshold);
        let slowest = self.by_number.values().filter_map(coming).max();
        self.by_number.values_mut().for_each(|peer| peer.end_epoch(slowest));
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::Arc;

    use tweed_proto::ltp::{Settings, Transmit};

    use super::super::invitation::Invitation;
    use super::super::seal::{Cipher, Sealer};
    use super::super::socket::Socket;
    use super::*;
    use crate::link::ports::Ports;

    #[test]
    fn a_peer_whose_genuine_packets_make_no_sense_is_given_up() {
        let home = IpAddr::from([127, 0, 0, 1]);
        let socket = Arc::new(Socket::open(home, Ports::default(), true).expect("a socket opens"));
        let invitation = Invitation::fresh(Cipher::Aes128Gcm, socket.port());
        let (mut peers, mut notices) = (Peers::default(), Vec::new());
        peers.insert(3, Peer::new(&invitation, Settings::default(), socket));
        let what = Transmit::Control { number: 5, body: Vec::new() };
        let mut packet = what.header(invitation.link).to_vec();
        packet.extend_from_slice(&[0xff; 40 + 16]);
        Sealer::new(invitation.cipher, &invitation.secret).seal(5, &mut packet);
        let from = SocketAddr::new(home, 9);
        assert!(peers.take(Duration::ZERO, from, &mut packet, &mut notices).is_none());
        assert!(matches!(&notices[..], [Notice::Broken { peer: 3, why }] if why.contains("frame")));
        assert!(peers.get(3).is_none() && peers.is_free(invitation.link));
        assert_eq!(peers.refused, Refused::default());
    }
}
