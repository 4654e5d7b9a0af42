//! Whose process is at the other end of a connection, as the kernel has it: what admits over loopback where there is no
//! secret, and over local sockets in any case.
//!
//! Theory of operation. Both ends of a connection over loopback are sockets of one network namespace, and the kernel tells
//! the user of each (`NETLINK_SOCK_DIAG`, asked for exactly one). Both ends are asked for: within a user namespace users have
//! other numbers than outside, and the two answers are of one kind. A socket that was not accepted yet, or whose process has
//! closed it, has no inode, and nothing is known of it; so whoever calls looks once something has come from the called one.
//!
//! Within a testbed's network namespace the other end is in another namespace, where this kernel shows nothing: what is not
//! of loopback is believed there.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use tweed_proto::engine::EngineError;

use crate::framing::greeting::{self, Kind};
use crate::framing::Refusal;
use crate::link::sockopt::{credentials, done, tcp_info};
use crate::process::namespace;
use crate::system_error::in_words;

/// Of `linux/sock_diag.h`, `linux/inet_diag.h` and `net/tcp_states.h`.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const REQUEST_BYTES: usize = 72;
const ANSWER_BYTES: usize = 88;
const ESTABLISHED: u8 = 1;
const LISTEN: u8 = 10;

/// A socket, as the kernel has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    state: u8,
    uid: u32,
    inode: u32,
}

/// Without a secret, only loopback is called, or what is in the network of a testbed.
pub(crate) fn check_address(address: SocketAddr, testbed: Option<&str>) -> Result<(), Refusal> {
    let is_near = address.ip().to_canonical().is_loopback() || is_here(testbed);
    is_near.then_some(()).ok_or(Refusal::Afar)
}

/// The process at the other end of a connection, from which something has come, is of the same user as this one.
pub(crate) fn check_other_end(socket: &TcpStream, testbed: Option<&str>) -> Result<(), Refusal> {
    let (own, other) = (socket.local_addr()?, socket.peer_addr()?);
    if is_here(testbed) && !other.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    let kernel = Kernel::open().map_err(|e| Refusal::Unseen(in_words(&e)))?;
    let found = |local, remote| kernel.find(local, remote).map_err(|e| Refusal::Unseen(in_words(&e)));
    let (theirs, ours) = (found(other, own)?, found(own, other)?);
    if tcp_info(socket)?.tcpi_state != ESTABLISHED {
        return Err(Refusal::HungUp);
    }
    judge(ours.map(|ours| ours.uid), theirs.filter(|t| t.state == ESTABLISHED), nameless())
}

/// As `check_other_end`, for the one who calls: the other may have turned this one away meanwhile, and says why.
pub(crate) fn check_called(
    socket: &TcpStream,
    wire: impl io::Read,
    testbed: Option<&str>,
) -> Result<(), Refusal> {
    match check_other_end(socket, testbed) {
        Err(Refusal::HungUp) => Err(greeting::read(wire, Kind::Refused, 0).err().unwrap_or(Refusal::HungUp)),
        checked => checked,
    }
}

/// The process at the other end of a local socket is of the same user as this one.
pub(crate) fn check_neighbour(socket: &UnixStream) -> Result<(), Refusal> {
    let theirs = credentials(socket).map_err(|e| Refusal::Unseen(in_words(&e)))?;
    same(own_user(), theirs.uid, nameless())
}

/// Whoever listens there is of the same user as this process; else why it cannot be called.
pub fn check_listener(address: SocketAddr, testbed: Option<&str>) -> Result<(), EngineError> {
    listener(address, testbed).map_err(|refusal| EngineError::PeerLost(refusal.to_string()))
}

fn listener(address: SocketAddr, testbed: Option<&str>) -> Result<(), Refusal> {
    check_address(address, testbed)?;
    if !address.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    let anywhere = match address.ip().to_canonical() {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let found = Kernel::open().and_then(|kernel| kernel.find(address, SocketAddr::new(anywhere, 0)));
    let found = found.map_err(|e| Refusal::Unseen(in_words(&e)))?;
    let Some(listens) = found.filter(|found| found.state == LISTEN) else { return Err(Refusal::Deaf) };
    judge(Some(own_user()), Some(listens), nameless())
}

fn own_user() -> u32 {
    // SAFETY: a plain question.
    unsafe { libc::geteuid() }
}

/// Whether both sockets are of one user. `nameless` is a number that several may have.
fn judge(own: Option<u32>, other: Option<Found>, nameless: Option<u32>) -> Result<(), Refusal> {
    let (Some(own), Some(other)) = (own, other.filter(|other| other.inode != 0)) else {
        return Err(Refusal::Unseen("no process has that socket".into()));
    };
    same(own, other.uid, nameless)
}

fn same(own: u32, other: u32, nameless: Option<u32>) -> Result<(), Refusal> {
    if own != other {
        return Err(Refusal::User(other));
    }
    if nameless == Some(own) {
        return Err(Refusal::Unseen(format!("several users have the number {own} in this user namespace")));
    }
    Ok(())
}

fn is_here(testbed: Option<&str>) -> bool {
    testbed.is_some_and(|testbed| testbed == namespace("net"))
}

/// The number of all users that this user namespace has no number for.
fn nameless() -> Option<u32> {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    if map.split_whitespace().eq(["0", "0", "4294967295"]) {
        return None;
    }
    let number = std::fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
    Some(number.trim().parse().unwrap_or(65534))
}

/// Where the kernel is asked about sockets of this network namespace.
struct Kernel(OwnedFd);

impl Kernel {
    fn open() -> io::Result<Kernel> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: a plain system call.
        let socket = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_SOCK_DIAG) };
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else owns.
        Ok(Kernel(unsafe { OwnedFd::from_raw_fd(socket) }))
    }

    /// The socket with this address, connected to that one.
    fn find(&self, local: SocketAddr, remote: SocketAddr) -> io::Result<Option<Found>> {
        let (request, mut answer) = (request(local, remote), [0u8; 1024]);
        let kernel = self.0.as_raw_fd();
        // SAFETY: both buffers are as long as said. The kernel answers before `send` is over.
        let bytes = unsafe {
            let sent = libc::send(kernel, request.as_ptr().cast(), request.len(), 0);
            done(if sent < 0 { -1 } else { 0 })?;
            libc::recv(kernel, answer.as_mut_ptr().cast(), answer.len(), libc::MSG_DONTWAIT)
        };
        let bytes = usize::try_from(bytes).map_err(|_| io::Error::last_os_error())?;
        read(&answer[..bytes])
    }
}

/// The question for one TCP socket: `nlmsghdr`, then `inet_diag_req_v2`.
fn request(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let (from, to) = (local.ip().to_canonical(), remote.ip().to_canonical());
    let family = if from.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => [&ip.octets()[..], &[0; 12]].concat(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    [
        &(REQUEST_BYTES as u32).to_ne_bytes()[..],
        &SOCK_DIAG_BY_FAMILY.to_ne_bytes(),
        &(libc::NLM_F_REQUEST as u16).to_ne_bytes(),
        &[0; 8],                                        // no number, and the kernel knows who asks
        &[family as u8, libc::IPPROTO_TCP as u8, 0, 0], // nothing beyond the record itself
        &u32::MAX.to_ne_bytes(),                        // in whatever state
        &local.port().to_be_bytes(),
        &remote.port().to_be_bytes(),
        &octets(from),
        &octets(to),
        &[0; 4],   // by no interface of its own
        &[255; 8], // no cookie
    ]
    .concat()
}

/// `nlmsghdr`, then `inet_diag_msg`, or an error.
fn read(answer: &[u8]) -> io::Result<Option<Found>> {
    let number =
        |at: usize| answer.get(at..at + 4).map(|four| u32::from_ne_bytes(four.try_into().expect("four")));
    let garbled = || io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer cannot be read");
    let kind = answer.get(4..6).map(|two| u16::from_ne_bytes(two.try_into().expect("two")));
    if kind == Some(libc::NLMSG_ERROR as u16) {
        let error = io::Error::from_raw_os_error(-(number(16).ok_or_else(garbled)? as i32));
        return if error.kind() == io::ErrorKind::NotFound { Ok(None) } else { Err(error) };
    }
    if kind != Some(SOCK_DIAG_BY_FAMILY) || answer.len() < ANSWER_BYTES {
        return Err(garbled());
    }
    let (uid, inode) = number(80).zip(number(84)).ok_or_else(garbled)?;
    Ok(Some(Found { state: answer[17], uid, inode }))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    fn found(uid: u32, inode: u32) -> Option<Found> {
        Some(Found { state: ESTABLISHED, uid, inode })
    }

    #[test]
    fn the_same_user_is_believed_and_nobody_else() {
        assert_eq!(judge(Some(1000), found(1000, 7), None), Ok(()));
        assert_eq!(judge(Some(0), found(0, 7), None), Ok(()));
        assert_eq!(judge(Some(1000), found(1001, 7), None), Err(Refusal::User(1001)));
        assert_eq!(judge(Some(1000), found(0, 7), None), Err(Refusal::User(0)));
    }

    #[test]
    fn where_the_kernel_cannot_tell_all_are_refused() {
        let unseen = |judged| matches!(judged, Err(Refusal::Unseen(_)));
        assert!(unseen(judge(Some(0), found(0, 0), None)), "not accepted yet");
        assert!(unseen(judge(Some(1000), None, None)), "in another namespace");
        assert!(unseen(judge(None, found(1000, 7), None)));
        assert!(unseen(judge(Some(65534), found(65534, 7), Some(65534))), "of users without a number");
        assert_eq!(judge(Some(1000), found(1000, 7), Some(65534)), Ok(()));
        assert!(read(&[0; 40]).is_err() && read(&[]).is_err());
    }

    #[test]
    fn without_a_secret_nothing_but_loopback_and_the_testbed_is_called() {
        let (near, far) = ("[::ffff:127.0.0.1]:1".parse().unwrap(), "192.0.2.1:1".parse().unwrap());
        assert_eq!(check_address(near, None), Ok(()));
        assert_eq!(check_address(far, None), Err(Refusal::Afar));
        assert_eq!(check_address(far, Some("net:[1]")), Err(Refusal::Afar));
        assert_eq!(check_address(far, Some(&namespace("net"))), Ok(()));
    }

    #[test]
    fn both_ends_of_a_connection_of_this_process_are_its_own() {
        // Of IPv4, of IPv6, and of IPv4 over a socket of IPv6.
        for (listens, called) in [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("[::]:0", "127.0.0.1")] {
            let listener = TcpListener::bind(listens).unwrap();
            let called = SocketAddr::new(called.parse().unwrap(), listener.local_addr().unwrap().port());
            let mut caller = TcpStream::connect(called).unwrap();
            let (mut answers, _) = listener.accept().unwrap();
            answers.write_all(b"x").unwrap();
            caller.read_exact(&mut [0]).unwrap();
            assert_eq!(check_other_end(&caller, None), Ok(()), "{listens}");
            assert_eq!(check_other_end(&answers, None), Ok(()), "{listens}");
            assert_eq!(check_listener(called, None), Ok(()), "{listens}");
            drop(listener);
            assert!(check_listener(called, None).unwrap_err().to_string().contains("nothing listens"));
        }
    }

    #[test]
    fn who_has_hung_up_is_nobody() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        drop(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let (left, _) = listener.accept().unwrap();
        (&left).read_to_end(&mut Vec::new()).unwrap();
        assert_eq!(check_other_end(&left, None), Err(Refusal::HungUp));
        assert_eq!(check_called(&left, &left, None), Err(Refusal::HungUp));
    }

    #[test]
    fn who_was_turned_away_is_told_why() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (answers, _) = listener.accept().unwrap();
        greeting::write(&answers, Kind::Refused, &[Refusal::User(7).code()]).unwrap();
        drop(answers);
        let told = check_called(&caller, &caller, None).unwrap_err().to_string();
        assert!(told.contains("one user") && told.contains("TWEED_SECRET_FILE"), "{told}");
    }
}
