//! Whom an Ethernet frame is for. Hosts have fixed addresses, so nothing need be learned.

/// The first bytes of every host's Ethernet address; the last one is the host's number plus one.
pub const MAC_PREFIX: [u8; 5] = [0x02, 0x74, 0x77, 0x65, 0x64];

const IPV4: [u8; 2] = [0x08, 0x00];
/// How the Ethernet addresses of IPv4 multicast begin (RFC 1112).
const MULTICAST: [u8; 3] = [0x01, 0x00, 0x5e];

/// Whom a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// One host, as an IPv4 packet: what links act upon.
    Packet(usize),
    /// All hosts but the sender, as an IPv4 multicast packet: links act upon it.
    Group,
    /// One host, and no IPv4 packet, such as an answer of ARP: it passes at once.
    Host(usize),
    /// All hosts but the sender, such as a question of ARP: it passes at once.
    All,
    /// No host here is meant.
    Nobody,
}

/// Whom `frame` is for, among `hosts` of them. Frames of less than an Ethernet header are for nobody.
pub fn target(frame: &[u8], hosts: usize) -> Target {
    let Some(header) = frame.first_chunk::<14>() else { return Target::Nobody };
    if header[..6] == [0xff; 6] {
        return Target::All;
    }
    if header[..3] == MULTICAST && header[12..] == IPV4 {
        return Target::Group;
    }
    let host = usize::from(header[5]).wrapping_sub(1);
    match header[..5] == MAC_PREFIX && host < hosts {
        true if header[12..] == IPV4 => Target::Packet(host),
        true => Target::Host(host),
        false => Target::Nobody,
    }
}
