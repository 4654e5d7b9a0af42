//! How two processes meet: a greeting each way, and for neighbours the descriptor of the shared memory.

use std::io::{self, Read, Write};
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::connect::descriptor::PROTOCOL;
use crate::engine::live::Shared;
use crate::link::lease::{PeerArea, ProcessPage};
use crate::link::shared_memory::{Arena, Mapping};

/// No honest greeting is longer.
pub(crate) const MAX_GREETING: usize = 4096;

/// What each side says first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Greeting {
    pub(crate) protocol: u32,
    pub(crate) uid: String,
    pub(crate) host: String,
    /// Which of how many streams this is.
    pub(crate) stream: u32,
    pub(crate) streams: u32,
    /// In the sender's arena: its length, its page, and the queue for the receiver's messages.
    arena_bytes: u64,
    page: u64,
    ring: u64,
}

impl Greeting {
    pub(crate) fn new(uid: &str, host: &str, stream: u32, streams: u32) -> Greeting {
        let (uid, host) = (uid.to_owned(), host.to_owned());
        Greeting { protocol: PROTOCOL, uid, host, stream, streams, arena_bytes: 0, page: 0, ring: 0 }
    }

    /// As JSON.
    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a greeting holds nothing that JSON cannot")
    }

    /// The inverse of `encode`, for this version only.
    pub(crate) fn decode(text: &[u8]) -> io::Result<Greeting> {
        let greeting: Greeting = serde_json::from_slice(text)?;
        if greeting.protocol != PROTOCOL {
            let theirs = greeting.protocol;
            return Err(invalid(format!(
                "{} speaks protocol {theirs}, this process {PROTOCOL}",
                greeting.host
            )));
        }
        Ok(greeting)
    }
}

/// Writes a greeting: its length, then JSON.
pub(crate) fn send_greeting(mut to: impl Write, greeting: &Greeting) -> io::Result<()> {
    let text = greeting.encode();
    let mut bytes = (text.len() as u32).to_le_bytes().to_vec();
    bytes.extend(text);
    to.write_all(&bytes)
}

/// Reads a greeting and checks the version.
pub(crate) fn receive_greeting(mut from: impl Read) -> io::Result<Greeting> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_GREETING {
        return Err(invalid(format!("a greeting of {length} bytes")));
    }
    let mut text = vec![0; length];
    from.read_exact(&mut text)?;
    Greeting::decode(&text)
}

/// What a process needs to meet a neighbour.
pub(crate) struct Home<'a> {
    pub(crate) arena: &'a Arena,
    pub(crate) page: u64,
    pub(crate) uid: &'a str,
    pub(crate) host: &'a str,
    /// A greeting that takes longer is given up.
    pub(crate) patience: Duration,
}

impl Home<'_> {
    /// Exchanges greetings and memory over a local socket; both sides call it.
    pub(crate) fn meet(&self, socket: &UnixStream) -> io::Result<(Greeting, Shared)> {
        socket.set_read_timeout(Some(self.patience))?;
        socket.set_write_timeout(Some(self.patience))?;
        let ring = self.new_ring()?;
        send_descriptor(socket, self.arena.file())?;
        let greeting = Greeting {
            arena_bytes: self.arena.bytes(),
            page: self.page,
            ring,
            ..Greeting::new(self.uid, self.host, 0, 1)
        };
        send_greeting(socket, &greeting)?;
        let memory = receive_descriptor(socket)?;
        let theirs = receive_greeting(socket)?;
        let shared = self.share(&memory, &theirs, ring)?;
        Ok((theirs, shared))
    }

    fn new_ring(&self) -> io::Result<u64> {
        let bytes = size_of::<PeerArea>() as u64;
        let full = || io::Error::new(io::ErrorKind::OutOfMemory, "no room left in shared memory");
        let offset = self.arena.take(bytes).ok_or_else(full)?;
        let place = self.arena.mapping().at(offset, bytes).ok_or_else(full)?;
        // SAFETY: the block is ours, as long as said, and nobody knows of it yet. All zero is an empty queue.
        unsafe { std::ptr::write_bytes(place, 0, bytes as usize) };
        Ok(offset)
    }

    fn share(&self, memory: &OwnedFd, theirs: &Greeting, ring: u64) -> io::Result<Shared> {
        if theirs.arena_bytes > file_bytes(memory)? {
            return Err(invalid("shared memory shorter than announced".into()));
        }
        let memory = Mapping::new(memory, theirs.arena_bytes)?;
        let outside = || invalid("an offset outside of the shared memory".into());
        let ring_bytes = size_of::<PeerArea>() as u64;
        let aligned = theirs.ring.is_multiple_of(64) && theirs.page.is_multiple_of(64);
        let outgoing = memory.at(theirs.ring, ring_bytes).filter(|_| aligned).ok_or_else(outside)?;
        let page = memory.at(theirs.page, size_of::<ProcessPage>() as u64).ok_or_else(outside)?;
        let incoming = self.arena.mapping().at(ring, ring_bytes).ok_or_else(outside)?;
        Ok(Shared {
            memory,
            outgoing: outgoing.cast(),
            incoming: incoming.cast(),
            incoming_at: ring,
            page: page.cast_const().cast(),
        })
    }
}

/// Connects to a neighbour's abstract socket.
pub(crate) fn dial_local(name: &str) -> io::Result<UnixStream> {
    UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn file_bytes(file: &OwnedFd) -> io::Result<u64> {
    // SAFETY: all zero is a valid `stat` to be filled in.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a plain question about an open file.
    if unsafe { libc::fstat(file.as_raw_fd(), &mut stat) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(stat.st_size as u64)
}

/// Room for the header and one descriptor, aligned as the header wants it.
#[repr(C, align(8))]
struct Control([u8; 32]);

fn with_message<R>(control: &mut Control, call: impl FnOnce(&mut libc::msghdr) -> R) -> R {
    let mut byte = [0u8; 1];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // SAFETY: all zero is a valid empty header.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: plain arithmetic.
    header.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<i32>() as u32) } as usize;
    call(&mut header)
}

fn send_descriptor(socket: &UnixStream, file: &OwnedFd) -> io::Result<()> {
    let mut control = Control([0; 32]);
    let sent = with_message(&mut control, |header| {
        // SAFETY: the header points at a control block large enough for one descriptor.
        unsafe {
            let first = libc::CMSG_FIRSTHDR(header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as usize;
            libc::CMSG_DATA(first).cast::<i32>().write_unaligned(file.as_raw_fd());
            libc::sendmsg(socket.as_raw_fd(), header, libc::MSG_NOSIGNAL)
        }
    });
    if sent == 1 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn receive_descriptor(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut control = Control([0; 32]);
    with_message(&mut control, |header| {
        // SAFETY: the header points at valid buffers; what the kernel filled in is checked before it is read.
        unsafe {
            if libc::recvmsg(socket.as_raw_fd(), header, libc::MSG_CMSG_CLOEXEC) != 1 {
                return Err(io::Error::last_os_error());
            }
            let first = libc::CMSG_FIRSTHDR(header);
            if first.is_null()
                || (*first).cmsg_level != libc::SOL_SOCKET
                || (*first).cmsg_type != libc::SCM_RIGHTS
            {
                return Err(invalid("a neighbour that does not pass its memory".into()));
            }
            Ok(OwnedFd::from_raw_fd(libc::CMSG_DATA(first).cast::<i32>().read_unaligned()))
        }
    })
}
