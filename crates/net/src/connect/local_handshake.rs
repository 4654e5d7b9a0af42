//! How two processes of one host meet: each proves that it belongs to the run, then both pass their memory.
//!
//! Theory of operation. The steps, over a local socket that does not block, all within one deadline:
//!
//! 1. called -> caller: a challenge;
//! 2. caller -> called: its greeting, with a challenge of its own, signed with the called one's nonce (`proof`), and with
//!    the secret if there is one;
//! 3. called -> caller: its greeting, signed likewise, then the file of its memory; or a refusal;
//! 4. caller -> called: the file of its memory.
//!
//! Neither passes memory before it has verified what the other signed. The kernel's word on the user at the other end
//! (`same_user`) comes before all this.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

use serde::{Deserialize, Serialize};

use crate::connect::admission::deadline_stream::DeadlineStream;
use crate::connect::descriptor::{random_hex, PeerDescriptor};
use crate::connect::proof::{Role, Transcript};
use crate::engine::live::Shared;
use crate::framing::greeting::{self, Kind};
use crate::framing::{Refusal, MAX_GREETING, PROTOCOL};
use crate::link::lease::{PeerArea, ProcessPage};
use crate::link::shared_memory::{file_bytes, Arena, Mapping};
use crate::secure::Secret;

/// Who one is, and which link this is to become.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Greeting {
    pub(crate) protocol: u32,
    pub(crate) uid: String,
    pub(crate) host: String,
    /// Which call of the caller's; its later calls have greater numbers.
    pub(crate) attempt: u64,
    /// Which of how many streams this is.
    pub(crate) stream: u32,
    pub(crate) streams: u32,
    /// The caller wants what it says from now on to be handed on to the process of that uid, and no link of its own.
    pub(crate) relay_to: Option<String>,
    /// The caller's challenge. Empty on sealed links, which prove more.
    pub(crate) challenge: String,
    /// Shows that the sender knows the called one's nonce.
    pub(crate) proof: String,
    /// Shows a neighbour that has the secret that the sender has it too.
    pub(crate) secret_proof: Option<String>,
    /// In the sender's arena: its length, its page, and the area for the receiver (`PeerArea`).
    pub(crate) arena_bytes: u64,
    pub(crate) page: u64,
    #[serde(rename = "ring")]
    pub(crate) area: u64,
}

impl Greeting {
    pub(crate) fn new(uid: &str, host: &str) -> Greeting {
        let (uid, host) = (uid.to_owned(), host.to_owned());
        Greeting { protocol: PROTOCOL, uid, host, streams: 1, ..Greeting::default() }
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
            let text = format!("{} speaks protocol {theirs}, this process {PROTOCOL}", greeting.host);
            return Err(invalid(text));
        }
        Ok(greeting)
    }

    /// What the caller of this greeting has to sign, and the called one after it.
    pub(crate) fn transcript<'a>(
        &'a self,
        called: &'a PeerDescriptor,
        called_challenge: &'a str,
    ) -> Transcript<'a> {
        Transcript {
            nonce: &called.nonce,
            caller: &self.uid,
            called: &called.uid,
            caller_challenge: &self.challenge,
            called_challenge,
            attempt: self.attempt,
            stream: self.stream,
        }
    }
}

/// Reads what the called one wants signed.
pub(crate) fn read_challenge(wire: impl io::Read) -> Result<String, Refusal> {
    let challenge = greeting::read(wire, Kind::Challenge, MAX_GREETING)?;
    String::from_utf8(challenge).map_err(|_| Refusal::Garbled("a challenge"))
}

/// Reads a greeting that came in a frame.
pub(crate) fn read_greeting(text: &[u8]) -> Result<Greeting, Refusal> {
    Greeting::decode(text).map_err(|_| Refusal::Garbled("a greeting"))
}

type Wire<'a> = DeadlineStream<'a, UnixStream>;

/// Has a caller show that it can read what the store holds. A socket that was opened just now has room for it.
pub(crate) fn challenge(caller: &UnixStream) -> Result<String, Refusal> {
    let challenge = random_hex()?;
    greeting::write(caller, Kind::Challenge, challenge.as_bytes())?;
    Ok(challenge)
}

/// What a process needs to meet a neighbour.
pub(crate) struct LocalHandshake<'a> {
    pub(crate) arena: &'a Arena,
    pub(crate) page: u64,
    pub(crate) own: &'a PeerDescriptor,
    pub(crate) secret: Option<&'a Secret>,
}

impl LocalHandshake<'_> {
    /// The side that calls.
    pub(crate) fn call(
        &self,
        wire: &mut Wire<'_>,
        descriptor: &PeerDescriptor,
        attempt: u64,
    ) -> Result<Shared, Refusal> {
        let challenge = read_challenge(&mut *wire)?;
        let area = self.new_area()?;
        let greeted = self.greet(wire, descriptor, (attempt, area, &challenge));
        // Until memory is passed nobody else can reach the area.
        let theirs = greeted.inspect_err(|_| self.arena.give(area))?;
        send_descriptor(wire, &self.arena.file)?;
        let memory = receive_descriptor(wire)?;
        Ok(self.share(&memory, &theirs, area)?)
    }

    fn greet(
        &self,
        wire: &mut Wire<'_>,
        descriptor: &PeerDescriptor,
        (attempt, area, challenge): (u64, u64, &str),
    ) -> Result<Greeting, Refusal> {
        let mut ours = Greeting { attempt, challenge: random_hex()?, ..self.greeting(area) };
        let unsigned = ours.clone();
        let transcript = unsigned.transcript(descriptor, challenge);
        self.sign(&mut ours, &transcript, Role::Caller);
        greeting::write(&mut *wire, Kind::Greeting, &ours.encode())?;
        let theirs = read_greeting(&greeting::read(&mut *wire, Kind::Greeting, MAX_GREETING)?)?;
        if theirs.uid != descriptor.uid {
            return Err(Refusal::Stranger);
        }
        self.verify(&theirs, &transcript, Role::Called)?;
        Ok(theirs)
    }

    /// The side that is called, and has sent `challenge`; `proven` is called once the caller has proven that it belongs to
    /// the run.
    pub(crate) fn answer(
        &self,
        wire: &mut Wire<'_>,
        challenge: &str,
        proven: impl FnOnce(),
    ) -> Result<(Greeting, Shared), Refusal> {
        let theirs = read_greeting(&greeting::read(&mut *wire, Kind::Greeting, MAX_GREETING)?)?;
        let transcript = theirs.transcript(self.own, challenge);
        if let Err(refusal) = self.verify(&theirs, &transcript, Role::Caller) {
            let _ = greeting::write(&mut *wire, Kind::Refused, &[refusal.code()]);
            return Err(refusal);
        }
        proven();
        let area = self.new_area()?;
        let mut ours = self.greeting(area);
        self.sign(&mut ours, &transcript, Role::Called);
        greeting::write(&mut *wire, Kind::Greeting, &ours.encode())?;
        send_descriptor(wire, &self.arena.file)?;
        let memory = receive_descriptor(wire)?;
        let shared = self.share(&memory, &theirs, area)?;
        Ok((theirs, shared))
    }

    fn greeting(&self, area: u64) -> Greeting {
        let (arena_bytes, page) = (self.arena.bytes(), self.page);
        Greeting { arena_bytes, page, area, ..Greeting::new(&self.own.uid, &self.own.host) }
    }

    fn sign(&self, ours: &mut Greeting, transcript: &Transcript<'_>, role: Role) {
        ours.proof = transcript.sign(role);
        ours.secret_proof = self.secret.map(|secret| transcript.sign_with(secret, role));
    }

    fn verify(&self, theirs: &Greeting, transcript: &Transcript<'_>, role: Role) -> Result<(), Refusal> {
        if !transcript.verify(role, &theirs.proof) {
            return Err(Refusal::Stranger);
        }
        match (self.secret, &theirs.secret_proof) {
            (None, None) => Ok(()),
            (Some(secret), Some(signed)) if transcript.verify_with(secret, role, signed) => Ok(()),
            (Some(_), Some(_)) => Err(Refusal::Secret),
            (Some(_), None) => Err(Refusal::Open),
            (None, Some(_)) => Err(Refusal::Closed),
        }
    }

    fn new_area(&self) -> io::Result<u64> {
        let bytes = size_of::<PeerArea>() as u64;
        let full = || io::Error::new(io::ErrorKind::OutOfMemory, "no room left in shared memory");
        let offset = self.arena.take(bytes).ok_or_else(full)?;
        let place = self.arena.mapping.at(offset, bytes).ok_or_else(full)?;
        // SAFETY: the block is ours, as long as said, and nobody knows of it yet. All zero is an empty queue.
        unsafe { std::ptr::write_bytes(place, 0, bytes as usize) };
        Ok(offset)
    }

    fn share(&self, memory: &OwnedFd, theirs: &Greeting, area: u64) -> io::Result<Shared> {
        if theirs.arena_bytes > file_bytes(memory)? {
            return Err(invalid("shared memory shorter than announced".into()));
        }
        let memory = Mapping::new(memory, theirs.arena_bytes)?;
        let outside = || invalid("an offset outside of the shared memory".into());
        let area_bytes = size_of::<PeerArea>() as u64;
        let aligned = theirs.area.is_multiple_of(64) && theirs.page.is_multiple_of(64);
        let outgoing = memory.at(theirs.area, area_bytes).filter(|_| aligned).ok_or_else(outside)?;
        let page = memory.at(theirs.page, size_of::<ProcessPage>() as u64).ok_or_else(outside)?;
        let incoming = self.arena.mapping.at(area, area_bytes).ok_or_else(outside)?;
        Ok(Shared {
            memory,
            outgoing: outgoing.cast(),
            incoming: incoming.cast(),
            incoming_at: area,
            page: page.cast_const().cast(),
        })
    }
}

/// Connects to a neighbour's abstract socket; the socket that it returns does not block.
pub(crate) fn dial_local(name: &str) -> io::Result<UnixStream> {
    let socket = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
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

fn send_descriptor(wire: &Wire<'_>, file: &OwnedFd) -> io::Result<()> {
    let send = |socket: &UnixStream| {
        // SAFETY: the header points at a control block large enough for one descriptor.
        with_message(&mut Control([0; 32]), |header| unsafe {
            let first = libc::CMSG_FIRSTHDR(header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as usize;
            libc::CMSG_DATA(first).cast::<i32>().write_unaligned(file.as_raw_fd());
            match libc::sendmsg(socket.as_raw_fd(), header, libc::MSG_NOSIGNAL) {
                1 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        })
    };
    wire.once_ready(libc::POLLOUT, send)
}

fn receive_descriptor(wire: &Wire<'_>) -> io::Result<OwnedFd> {
    let receive = |socket: &UnixStream| {
        // SAFETY: the header points at valid buffers; what the kernel filled in is checked before it is read.
        with_message(&mut Control([0; 32]), |header| unsafe {
            match libc::recvmsg(socket.as_raw_fd(), header, libc::MSG_CMSG_CLOEXEC) {
                1 => {}
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                _ => return Err(io::Error::last_os_error()),
            }
            let first = libc::CMSG_FIRSTHDR(header);
            let expected = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
            if first.is_null() || ((*first).cmsg_level, (*first).cmsg_type) != expected {
                return Err(invalid("a neighbour that does not pass its memory".into()));
            }
            Ok(OwnedFd::from_raw_fd(libc::CMSG_DATA(first).cast::<i32>().read_unaligned()))
        })
    };
    wire.once_ready(libc::POLLIN, receive)
}
