//! A connected socket that carries messages and their payload.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::sync::Mutex;

use crate::message::{Message, MESSAGE_BYTES};

/// No honest peer sends more in one message.
const MAX_PAYLOAD: u32 = 64 << 20;

/// A socket of either kind.
pub(crate) enum Socket {
    Local(mio::net::UnixStream),
    Tcp(mio::net::TcpStream),
}

impl Socket {
    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Local(s) => (&mut &*s).write_vectored(parts),
            Socket::Tcp(s) => (&mut &*s).write_vectored(parts),
        }
    }

    fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Local(s) => (&mut &*s).read(into),
            Socket::Tcp(s) => (&mut &*s).read(into),
        }
    }

    /// Ends it in both directions.
    pub(crate) fn shut_down(&self) {
        let both = std::net::Shutdown::Both;
        let _ = match self {
            Socket::Local(s) => s.shutdown(both),
            Socket::Tcp(s) => s.shutdown(both),
        };
    }
}

/// Which transmission of which operation a payload belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// The operation's number in the engine.
    pub(crate) run: u64,
    pub(crate) send: u32,
    pub(crate) output: u32,
    pub(crate) slice: u32,
    pub(crate) to: u32,
}

/// What follows the message.
pub(crate) enum Payload {
    Nothing,
    Text(Vec<u8>),
    /// The caller's memory, which stays valid until the ticket has come back or `detach` was called.
    Memory(*const u8, usize, Ticket),
}

// SAFETY: the memory behind a payload is only read, and stays valid as said above.
unsafe impl Send for Payload {}

impl Payload {
    fn bytes(&self) -> &[u8] {
        match self {
            Payload::Nothing => &[],
            Payload::Text(text) => text,
            // SAFETY: valid by the contract of `Memory`.
            Payload::Memory(data, bytes, _) => unsafe { std::slice::from_raw_parts(*data, *bytes) },
        }
    }
}

struct Frame {
    head: [u8; MESSAGE_BYTES],
    payload: Payload,
    written: usize,
}

impl Frame {
    fn rest(&self) -> [IoSlice<'_>; 2] {
        let body = self.payload.bytes();
        let head = self.written.min(MESSAGE_BYTES);
        [IoSlice::new(&self.head[head..]), IoSlice::new(&body[self.written - head..])]
    }

    fn is_written(&self) -> bool {
        self.written == MESSAGE_BYTES + self.payload.bytes().len()
    }
}

/// The sending side of a socket: writes at once what it takes, keeps the rest.
pub(crate) struct Stream {
    pub(crate) socket: Socket,
    queue: Mutex<VecDeque<Frame>>,
}

impl Stream {
    pub(crate) fn new(socket: Socket) -> Stream {
        Stream { socket, queue: Mutex::default() }
    }

    /// Sends or queues. Returns the tickets of payloads that have left.
    pub(crate) fn send(&self, message: &Message, payload: Payload) -> io::Result<Vec<Ticket>> {
        let frame = Frame { head: message.encode(), payload, written: 0 };
        let mut queue = self.lock();
        queue.push_back(frame);
        flush(&self.socket, &mut queue)
    }

    /// Goes on where the socket had been full.
    pub(crate) fn flush(&self) -> io::Result<Vec<Ticket>> {
        flush(&self.socket, &mut self.lock())
    }

    /// Stops reading the caller's memory on behalf of operation `run`: what has begun goes on from a copy.
    pub(crate) fn detach(&self, run: u64) {
        let mut queue = self.lock();
        queue.retain(|f| f.written > 0 || !matches!(f.payload, Payload::Memory(_, _, t) if t.run == run));
        for frame in queue.iter_mut() {
            if matches!(frame.payload, Payload::Memory(_, _, t) if t.run == run) {
                frame.payload = Payload::Text(frame.payload.bytes().to_vec());
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Frame>> {
        self.queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn flush(socket: &Socket, queue: &mut VecDeque<Frame>) -> io::Result<Vec<Ticket>> {
    let mut left = Vec::new();
    while let Some(frame) = queue.front_mut() {
        match socket.write(&frame.rest()) {
            Ok(bytes) => frame.written += bytes,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        if frame.is_written() {
            if let Some(Frame { payload: Payload::Memory(_, _, ticket), .. }) = queue.pop_front() {
                left.push(ticket);
            }
        }
    }
    Ok(left)
}

/// The receiving side: puts messages together from what comes in.
#[derive(Default)]
pub(crate) struct Reader {
    head: Vec<u8>,
    message: Option<Message>,
    body: Vec<u8>,
    filled: usize,
}

impl Reader {
    /// Reads all there is, handing on each whole message. `Ok(false)` at the end of the stream.
    pub(crate) fn read(
        &mut self,
        socket: &Socket,
        mut on_message: impl FnMut(Message, Vec<u8>),
    ) -> io::Result<bool> {
        loop {
            if let Some(message) = self.message {
                if self.filled == self.body.len() {
                    self.message = None;
                    self.filled = 0;
                    on_message(message, std::mem::take(&mut self.body));
                    continue;
                }
            }
            match self.read_some(socket) {
                Ok(0) => return Ok(false),
                Ok(_) => self.parse_head()?,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn read_some(&mut self, socket: &Socket) -> io::Result<usize> {
        if self.message.is_some() {
            let got = socket.read(&mut self.body[self.filled..])?;
            self.filled += got;
            return Ok(got);
        }
        let mut head = [0; MESSAGE_BYTES];
        let wanted = MESSAGE_BYTES - self.head.len();
        let got = socket.read(&mut head[..wanted])?;
        self.head.extend_from_slice(&head[..got]);
        Ok(got)
    }

    fn parse_head(&mut self) -> io::Result<()> {
        let Ok(head) = <&[u8; MESSAGE_BYTES]>::try_from(self.head.as_slice()) else { return Ok(()) };
        let garbage =
            || io::Error::new(io::ErrorKind::InvalidData, "something that is not a message of tweed came in");
        let message = Message::decode(head).ok_or_else(garbage)?;
        self.head.clear();
        let bytes = if message.kind.has_payload() { message.bytes } else { 0 };
        if bytes > MAX_PAYLOAD {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a message claims to carry {bytes} bytes"),
            ));
        }
        self.body = vec![0; bytes as usize];
        self.filled = 0;
        self.message = Some(message);
        Ok(())
    }
}
