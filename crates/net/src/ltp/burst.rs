//! Packets of equal length to one peer, put together in one buffer so that one system call sends them.

use std::net::{Ipv4Addr, SocketAddr};

use tweed_proto::ltp::packet::{BODY_HEAD_BYTES, HEADER_BYTES};
use tweed_proto::ltp::Transmit;

use super::seal::{Cipher, Sealer};

/// The kernel cuts no more at once, nor more than what one packet of IP could hold.
const MOST_PACKETS: usize = 64;
const MOST_BYTES: usize = 65_487;
/// A single packet may be larger than that.
const BUFFER_BYTES: usize = 1 << 16;

/// Where packets of one peer go, and how they are sealed.
pub(super) struct Remote {
    /// Learnt from the peer's packets, where these are authenticated.
    pub(super) address: SocketAddr,
    /// The number by which the peer knows us.
    pub(super) link: u32,
    pub(super) cipher: Cipher,
    pub(super) sealer: Sealer,
}

pub(super) struct Burst {
    bytes: Vec<u8>,
    len: usize,
    pub(super) to: SocketAddr,
    /// Length of all packets but the last, which may be shorter.
    pub(super) packet: usize,
    packets: usize,
    sent: usize,
}

impl Burst {
    /// Makes an empty burst.
    pub(super) fn new() -> Burst {
        let to = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        Burst { bytes: vec![0; BUFFER_BYTES], len: 0, to, packet: 0, packets: 0, sent: 0 }
    }

    /// Forgets what was sent, and begins with packets to `to`.
    pub(super) fn begin(&mut self, to: SocketAddr) {
        self.to = to;
        (self.len, self.packet, self.packets, self.sent) = (0, 0, 0, 0);
    }

    /// A packet of `bytes` may follow what is there.
    pub(super) fn fits(&self, bytes: usize) -> bool {
        let whole = self.len == self.packets * self.packet;
        self.packets == 0
            || whole && bytes <= self.packet && self.packets < MOST_PACKETS && self.len + bytes <= MOST_BYTES
    }

    /// Adds a packet, with `values` of the message if it is DATA, or a shard if it is REPAIR, and seals it.
    pub(super) fn push(&mut self, what: &Transmit, values: &[u8], remote: &mut Remote) {
        let bytes = packet_bytes(what, remote.cipher);
        let packet = &mut self.bytes[self.len..][..bytes];
        packet[..HEADER_BYTES].copy_from_slice(&what.header(remote.link));
        let body = &mut packet[HEADER_BYTES..];
        let number = match what {
            Transmit::Data { number, .. } | Transmit::Repair { number, .. } => {
                let head = what.body_head().expect("it has one");
                body[..BODY_HEAD_BYTES].copy_from_slice(&head);
                body[BODY_HEAD_BYTES..][..values.len()].copy_from_slice(values);
                *number
            }
            Transmit::Control { number, body: frames } => {
                body[..frames.len()].copy_from_slice(frames);
                *number
            }
        };
        remote.sealer.seal(number, packet);
        self.packet = self.packet.max(bytes);
        self.len += bytes;
        self.packets += 1;
    }

    /// Nothing is left to send.
    pub(super) fn is_empty(&self) -> bool {
        self.rest().is_empty()
    }

    /// What has not left yet.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.sent..self.len]
    }

    /// So many bytes of the rest have left.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.sent += bytes;
    }
}

/// Length of a packet on the wire, as UDP payload.
pub(super) fn packet_bytes(what: &Transmit, cipher: Cipher) -> usize {
    let body = match what {
        Transmit::Data { len, .. } => BODY_HEAD_BYTES + *len as usize,
        Transmit::Control { body, .. } => body.len(),
        Transmit::Repair { head, .. } => BODY_HEAD_BYTES + usize::from(head.code.shard),
    };
    HEADER_BYTES + body + cipher.tag_bytes()
}
