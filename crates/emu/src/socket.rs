//! Packet sockets: frames as they come to an interface, many at a call, and frames out of one.
//!
//! Each frame travels with the ten bytes in which the kernel says what its network card would still have to do
//! (checksum, segmentation): they are handed on as they came.

use std::ffi::CString;
use std::io;
use std::mem::{size_of, size_of_val, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use libc::{c_int, c_void};

/// Bytes before each frame: `struct virtio_net_hdr`.
pub(crate) const HEADER: usize = 10;
/// Most frames at a call.
pub(crate) const BATCH: usize = 64;
/// Room that is asked for in the kernel, for what has come and for what waits in a port's token bucket.
const ROOM: c_int = 64 << 20;
/// Room that a port's sockets have together, if it takes several: what waits there seldom is more.
const ENOUGH: usize = 16 << 20;
const PACKET_VNET_HDR: c_int = 15;
const PACKET_IGNORE_OUTGOING: c_int = 23;

/// A packet socket on one interface.
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

impl Socket {
    /// Hears every frame that comes to any interface of this network namespace.
    pub(crate) fn listening() -> io::Result<Socket> {
        let socket = Socket::open((libc::ETH_P_ALL as u16).to_be())?;
        socket.set(libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
        socket.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        socket.widen(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)?;
        Ok(socket)
    }

    /// Sends frames out of the interface with this index, and hears nothing.
    fn sending(interface: c_int) -> io::Result<Socket> {
        let socket = Socket::open(0)?;
        // SAFETY: all zeroes are a valid address.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = interface;
        let length = size_of_val(&address) as u32;
        // SAFETY: the address is as long as is said.
        check(unsafe { libc::bind(socket.fd(), (&raw const address).cast(), length) })?;
        socket.widen(libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)?;
        Ok(socket)
    }

    fn open(protocol: u16) -> io::Result<Socket> {
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: no memory is passed.
        let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, c_int::from(protocol)) })?;
        // SAFETY: the descriptor is new, and nobody else's.
        let socket = Socket(unsafe { OwnedFd::from_raw_fd(fd) });
        socket.set(libc::SOL_PACKET, PACKET_VNET_HDR, 1)?;
        Ok(socket)
    }

    /// As much room as may be had: only the host's root gets more than the system's limit.
    fn widen(&self, force: c_int, ask: c_int) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, force, ROOM).or_else(|_| self.set(libc::SOL_SOCKET, ask, ROOM))
    }

    fn set(&self, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
        let length = size_of_val(&value) as u32;
        // SAFETY: the value is as long as is said.
        check(unsafe { libc::setsockopt(self.fd(), level, option, (&raw const value).cast(), length) })?;
        Ok(())
    }

    /// Safety: the option's value is a `T`, and zeroes are one.
    unsafe fn get<T>(&self, level: c_int, option: c_int) -> io::Result<T> {
        // SAFETY: by contract.
        let mut found: T = unsafe { zeroed() };
        let mut length = size_of::<T>() as u32;
        let at = (&raw mut found).cast();
        // SAFETY: the place is as long as is said.
        check(unsafe { libc::getsockopt(self.fd(), level, option, at, &raw mut length) })?;
        Ok(found)
    }

    pub(crate) fn fd(&self) -> c_int {
        self.0.as_raw_fd()
    }

    /// Frames that came and found no room since the last call.
    pub(crate) fn missed(&self) -> io::Result<u64> {
        // SAFETY: it has this type.
        let found: libc::tpacket_stats = unsafe { self.get(libc::SOL_PACKET, libc::PACKET_STATISTICS)? };
        Ok(u64::from(found.tp_drops))
    }

    fn send_some(&self, frames: &[Vec<u8>]) -> usize {
        // SAFETY: all zeroes are valid messages and pieces.
        let (mut pieces, mut messages): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) = unsafe { zeroed() };
        for (index, frame) in frames.iter().enumerate() {
            pieces[index] = libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
            messages[index].msg_hdr.msg_iov = &raw mut pieces[index];
            messages[index].msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: the first messages point to pieces, these to frames, and all outlive the call, which only reads.
        let sent = unsafe { libc::sendmmsg(self.fd(), messages.as_mut_ptr(), frames.len() as u32, 0) };
        usize::try_from(sent).unwrap_or(0)
    }
}

/// What leaves by one interface.
///
/// What waits in the interface's queue takes up room of the socket that sent it, and a plain user's socket has
/// little. So there are several, which take turns.
#[derive(Debug)]
pub(crate) struct Port {
    sockets: Vec<Socket>,
    next: usize,
}

impl Port {
    /// With `most` sockets at most.
    pub(crate) fn open(interface: c_int, most: usize) -> io::Result<Port> {
        let mut sockets = vec![Socket::sending(interface)?];
        // Bytes that may wait in a port's token bucket, by the kernel's own reckoning.
        // SAFETY: it has this type.
        let room: c_int = unsafe { sockets[0].get(libc::SOL_SOCKET, libc::SO_SNDBUF)? };
        let wanted = ENOUGH / (room as usize).max(1);
        while sockets.len() < wanted.min(most) {
            sockets.push(Socket::sending(interface)?);
        }
        Ok(Port { sockets, next: 0 })
    }

    /// Sends `frames`, each with its header.
    ///
    /// A frame that the kernel does not take, because the queue is full or because a rule lost it, is not tried
    /// again: after a partial success the kernel does not tell why, and a second try would undo the rule's loss.
    pub(crate) fn send(&mut self, frames: &[Vec<u8>]) {
        for batch in frames.chunks(BATCH) {
            let mut done = 0;
            while done < batch.len() {
                done += self.sockets[self.next].send_some(&batch[done..]) + 1;
            }
            self.next = (self.next + 1) % self.sockets.len();
        }
    }
}

/// A frame that came: its header, its bytes, where and when.
pub(crate) struct Frame<'a> {
    pub(crate) bytes: &'a [u8],
    /// Index of the interface.
    pub(crate) interface: c_int,
    /// The kernel's wall clock when it came.
    pub(crate) stamp: Option<Duration>,
}

/// Room for a batch of frames.
pub(crate) struct Landing {
    room: Vec<Vec<u8>>,
    names: Vec<libc::sockaddr_ll>,
    /// For each frame, room for the message with its time stamp.
    extras: Vec<[u64; 8]>,
}

impl Landing {
    /// For frames of at most `most` bytes.
    pub(crate) fn new(most: usize) -> Landing {
        // SAFETY: all zeroes are a valid address.
        let name = unsafe { zeroed::<libc::sockaddr_ll>() };
        Landing {
            room: vec![vec![0; HEADER + most]; BATCH],
            names: vec![name; BATCH],
            extras: vec![[0; 8]; BATCH],
        }
    }

    /// Takes what has come, up to a batch, and shows each frame to `each`. Returns how many there were.
    pub(crate) fn receive(&mut self, socket: &Socket, mut each: impl FnMut(Frame<'_>)) -> io::Result<usize> {
        // SAFETY: all zeroes are valid messages and pieces.
        let (mut pieces, mut messages): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) = unsafe { zeroed() };
        for (index, message) in messages.iter_mut().enumerate() {
            let room = &mut self.room[index];
            pieces[index] = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
            let header = &mut message.msg_hdr;
            header.msg_iov = &raw mut pieces[index];
            header.msg_iovlen = 1;
            header.msg_name = (&raw mut self.names[index]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_ll>() as u32;
            header.msg_control = (&raw mut self.extras[index]).cast();
            header.msg_controllen = size_of::<[u64; 8]>();
        }
        let nothing = std::ptr::null_mut();
        // SAFETY: each message points to room of its own, as long as is said.
        let count = unsafe {
            libc::recvmmsg(socket.fd(), messages.as_mut_ptr(), BATCH as u32, libc::MSG_DONTWAIT, nothing)
        };
        let count = match check(count) {
            Ok(count) => count as usize,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        for (index, message) in messages[..count].iter().enumerate() {
            let length = message.msg_len as usize;
            each(Frame {
                bytes: &self.room[index][..length],
                interface: self.names[index].sll_ifindex,
                stamp: stamp(&message.msg_hdr),
            });
        }
        Ok(count)
    }
}

/// The time stamp among what came beside a frame.
fn stamp(header: &libc::msghdr) -> Option<Duration> {
    // SAFETY: the kernel has filled in the header, and what it points to is still there.
    unsafe {
        let first = libc::CMSG_FIRSTHDR(header).as_ref()?;
        if (first.cmsg_level, first.cmsg_type) != (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) {
            return None;
        }
        let time = libc::CMSG_DATA(first).cast::<libc::timespec>().read_unaligned();
        Some(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }
}

/// Index of an interface of this network namespace.
pub(crate) fn interface(name: &str) -> io::Result<c_int> {
    let name = CString::new(name)?;
    // SAFETY: the name ends with a zero.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index as c_int),
    }
}

/// Waits until `socket` or `other` can be read, at most for `limit`; tells whether `other` can be.
pub(crate) fn wait(socket: &Socket, other: c_int, limit: Option<Duration>) -> io::Result<bool> {
    let wanted = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut both = [wanted(socket.fd()), wanted(other)];
    let limit = limit.map(|limit| libc::timespec {
        tv_sec: limit.as_secs() as libc::time_t,
        tv_nsec: limit.subsec_nanos().into(),
    });
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: two descriptors, and a time or none.
    check(unsafe { libc::ppoll(both.as_mut_ptr(), 2, limit, std::ptr::null()) })?;
    Ok(both[1].revents != 0)
}

/// Lets this thread go first and wake up on time, as far as it may ask for that.
pub(crate) fn hurry() {
    let first = libc::sched_param { sched_priority: 1 };
    let nowhere: *const c_void = std::ptr::null();
    // SAFETY: the parameter is valid; no other memory is passed. What is refused stays as it was.
    unsafe {
        if libc::sched_setscheduler(0, libc::SCHED_RR, &raw const first) != 0 {
            libc::setpriority(libc::PRIO_PROCESS, 0, -20);
        }
        libc::prctl(libc::PR_SET_TIMERSLACK, 1, nowhere, nowhere, nowhere);
    }
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}
