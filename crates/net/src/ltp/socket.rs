//! The UDP socket: segmentation and receive offload where the kernel has them, no fragments, large buffers.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use quinn_udp::{RecvMeta, Transmit, UdpSocketState};

use super::burst::Burst;
use crate::link::ports::Ports;
use crate::link::sockopt;

/// Buffers that one call of [`Socket::receive`] fills.
pub(super) const RECEIVED: usize = 8;
/// The longest that can arrive: with receive offload, many packets at once.
const BUFFER_BYTES: usize = 1 << 16;
/// What the kernel should hold for us while the thread does something else: 2 ms at 15 Gbit/s, as the kernel counts,
/// whose bookkeeping takes about as much again.
const KERNEL_BYTES: usize = 8 << 20;
/// Less than this, and a burst of eight peers does not fit.
const LEAST_KERNEL_BYTES: usize = 1 << 20;
/// No packet is larger; loopback carries that.
const LARGEST_PAYLOAD: u32 = 65_000;

pub(super) struct Socket {
    socket: UdpSocket,
    state: UdpSocketState,
    address: SocketAddr,
    offload: bool,
}

impl Socket {
    /// Bound to one of these ports of `host`. Without `offload`, each packet is a system call of its own.
    pub(super) fn open(host: IpAddr, ports: Ports, offload: bool) -> io::Result<Socket> {
        let socket = ports.first_free(|port| UdpSocket::bind((host, port)))?;
        crate::link::fork::shut_in_children(&socket);
        let state = UdpSocketState::new((&socket).into())?;
        // quinn-udp asks for the time of each packet, which nobody here looks at.
        sockopt::set(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 0)?;
        if !offload && state.gro_segments() > 1 {
            sockopt::set(&socket, libc::SOL_UDP, libc::UDP_GRO, 0)?;
        }
        enlarge(&socket);
        let address = socket.local_addr()?;
        Ok(Socket { socket, state, address, offload })
    }

    /// The port it is bound to.
    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Sends what of `burst` has not left yet. `WouldBlock`: the rest is to be sent later. Packets that the system
    /// refuses are lost, as on the way; returns how many.
    pub(super) fn send(&self, burst: &mut Burst) -> io::Result<u64> {
        let mut refused = 0;
        while !burst.rest().is_empty() {
            let step =
                if self.segments() { burst.rest().len() } else { burst.packet.min(burst.rest().len()) };
            match self.state.try_send((&self.socket).into(), &burst.transmit(step)) {
                Ok(()) => burst.advance(step),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
                // The kernel could not cut this burst: quinn-udp takes note, and the packets go one by one.
                Err(_) if step > burst.packet && !self.segments() => {}
                Err(_) => {
                    refused += step.div_ceil(burst.packet) as u64;
                    burst.advance(step);
                }
            }
        }
        Ok(refused)
    }

    /// Takes in what has come, without waiting. Returns how many of `bins` it filled.
    pub(super) fn receive(&self, bins: &mut Bins) -> io::Result<usize> {
        let Bins { bytes, meta } = bins;
        let mut rest = bytes.as_mut_slice();
        let mut slices = [(); RECEIVED].map(|()| {
            let (first, others) = std::mem::take(&mut rest).split_at_mut(BUFFER_BYTES);
            rest = others;
            IoSliceMut::new(first)
        });
        self.state.recv((&self.socket).into(), &mut slices, meta)
    }

    /// The largest UDP payload that the first hop to `peer` carries.
    pub(super) fn largest_payload(&self, peer: SocketAddr) -> u32 {
        let headers = if peer.is_ipv4() { 28 } else { 48 };
        let mtu = self.route_mtu(peer).unwrap_or(0);
        mtu.saturating_sub(headers).min(LARGEST_PAYLOAD)
    }

    fn route_mtu(&self, peer: SocketAddr) -> io::Result<u32> {
        let asker = UdpSocket::bind((self.address.ip(), 0))?;
        asker.connect(peer)?;
        let (level, name) = match peer {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
        };
        sockopt::get(&asker, level, name).map(|mtu| u32::try_from(mtu).unwrap_or(0))
    }

    fn segments(&self) -> bool {
        self.offload && self.state.max_gso_segments() > 1
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Memory that packets are received into and opened in.
pub(super) struct Bins {
    bytes: Vec<u8>,
    meta: [RecvMeta; RECEIVED],
}

impl Bins {
    pub(super) fn new() -> Bins {
        Bins { bytes: vec![0; RECEIVED * BUFFER_BYTES], meta: [RecvMeta::default(); RECEIVED] }
    }

    /// The packets in one bin, and where they came from.
    pub(super) fn packets(&mut self, bin: usize) -> (SocketAddr, impl Iterator<Item = &mut [u8]>) {
        let RecvMeta { addr, len, stride, .. } = self.meta[bin];
        let bytes = &mut self.bytes[bin * BUFFER_BYTES..][..len];
        (addr, bytes.chunks_mut(stride.max(1)))
    }
}

impl Burst {
    fn transmit(&self, bytes: usize) -> Transmit<'_> {
        Transmit {
            destination: self.to,
            ecn: None,
            contents: &self.rest()[..bytes],
            segment_size: Some(self.packet),
            src_ip: None,
        }
    }
}

/// Asks for large buffers, and says once per process if the kernel gives much less.
fn enlarge(socket: &UdpSocket) {
    static WARNED: AtomicBool = AtomicBool::new(false);
    let receive = grow(socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF);
    let send = grow(socket, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF);
    let short =
        [("rmem_max", receive), ("wmem_max", send)].into_iter().find(|(_, got)| *got < LEAST_KERNEL_BYTES);
    if let Some((limit, got)) = short {
        if !WARNED.swap(true, Ordering::Relaxed) {
            crate::stderr::print_line(&warning_of(limit, got));
        }
    }
}

fn warning_of(limit: &str, got: usize) -> String {
    format!(
        "tweed: the kernel gives a UDP socket a buffer of {} KiB, where transport \"ltp\" wants {}: packets will be \
         dropped on this host when many arrive at once. As root: sysctl -w net.core.{limit}={KERNEL_BYTES}",
        got >> 10,
        KERNEL_BYTES >> 10,
    )
}

/// Sets the size past the system's limit if we may, else up to it. Returns what it is then.
fn grow(socket: &UdpSocket, force: libc::c_int, ask: libc::c_int) -> usize {
    let wanted = KERNEL_BYTES as libc::c_int;
    // A refusal shows in what is read back.
    let _ = sockopt::set(socket, libc::SOL_SOCKET, force, wanted)
        .or_else(|_| sockopt::set(socket, libc::SOL_SOCKET, ask, wanted));
    // The kernel doubles what it is asked for, for its bookkeeping.
    sockopt::get(socket, libc::SOL_SOCKET, ask).map_or(0, |bytes| bytes.max(0) as usize / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_buffer_is_complained_about_with_what_to_do() {
        let warning = warning_of("rmem_max", 208 << 10);
        assert!(
            warning.contains("208 KiB") && warning.contains("sysctl -w net.core.rmem_max=8388608"),
            "{warning}"
        );
    }

    #[test]
    fn loopback_carries_the_largest_packet() {
        let socket =
            Socket::open(IpAddr::from([127, 0, 0, 1]), Ports::default(), true).expect("a socket opens");
        let mtu = std::fs::read_to_string("/sys/class/net/lo/mtu").expect("there is a loopback");
        let mtu: u32 = mtu.trim().parse().expect("it is a number");
        let peer = SocketAddr::from(([127, 0, 0, 1], socket.port()));
        assert_eq!(socket.largest_payload(peer), (mtu - 28).min(LARGEST_PAYLOAD));
    }
}
