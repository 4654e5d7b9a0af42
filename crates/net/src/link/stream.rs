//! A connected socket that carries messages and their payload.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};

use tweed_proto::engine::message::{Message, MESSAGE_BYTES};
use tweed_proto::engine::urgency::{UrgencyQueue, Waiting};
use tweed_proto::engine::{Payload, Ticket};

use crate::link::sockopt;
use crate::secure::Sealed;
use crate::sync::{LockRank, Mutex};

/// So many frames go to the kernel in one call.
const FRAMES_AT_ONCE: usize = 16;

/// A socket of either kind.
pub(crate) enum Socket {
    Local(mio::net::UnixStream),
    Tcp(mio::net::TcpStream),
    Sealed(Box<Sealed>),
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Socket::Local(s) => s.as_raw_fd(),
            Socket::Tcp(s) => s.as_raw_fd(),
            Socket::Sealed(s) => s.socket.as_raw_fd(),
        }
    }
}

impl Socket {
    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Local(s) => (&mut &*s).write_vectored(parts),
            Socket::Tcp(s) => (&mut &*s).write_vectored(parts),
            Socket::Sealed(s) => s.write(parts),
        }
    }

    pub(crate) fn read(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Socket::Local(s) => (&mut &*s).read_vectored(into),
            Socket::Tcp(s) => (&mut &*s).read_vectored(into),
            Socket::Sealed(s) => s.read(into),
        }
    }

    /// Ends it in both directions.
    pub(crate) fn shut_down(&self) {
        let both = std::net::Shutdown::Both;
        let _ = match self {
            Socket::Local(s) => s.shutdown(both),
            Socket::Tcp(s) => s.shutdown(both),
            Socket::Sealed(s) => s.socket.shutdown(both),
        };
    }

    /// Where the other end is, on a network.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        let found = match self {
            Socket::Local(_) => return None,
            Socket::Tcp(socket) => socket.peer_addr(),
            Socket::Sealed(sealed) => sealed.socket.peer_addr(),
        };
        found.ok().map(|address| address.ip())
    }

    /// Packets that the kernel has sent again so far; 0 where it does not say.
    pub(crate) fn retransmissions(&self) -> u64 {
        let known = (!matches!(self, Socket::Local(_))).then(|| sockopt::tcp_info(self).ok()).flatten();
        known.map_or(0, |info| info.tcpi_total_retrans.into())
    }

    /// Whether writing takes long: then it is not done under the engine's lock.
    pub(crate) fn is_sealed(&self) -> bool {
        matches!(self, Socket::Sealed(_))
    }

    /// Makes ready what `read` is to find. Whether it did: then there may be more, and this is to be called again.
    pub(crate) fn open_ahead(&self) -> bool {
        matches!(self, Socket::Sealed(s) if s.open_ahead())
    }

    /// Sends what was taken and has not left yet.
    fn flush(&self) -> io::Result<()> {
        match self {
            Socket::Sealed(s) => s.flush(),
            Socket::Local(_) | Socket::Tcp(_) => Ok(()),
        }
    }
}

/// The bytes of a payload.
///
/// # Safety
/// What `Payload::Memory` points at is valid, and stays as it is while the slice is used.
unsafe fn payload_bytes(payload: &Payload) -> &[u8] {
    match payload {
        Payload::Nothing | Payload::Memory(_, 0, _) => &[],
        Payload::Text(text) => text,
        // SAFETY: by the contract.
        Payload::Memory(at, bytes, _) => unsafe { std::slice::from_raw_parts(at.as_ptr(), *bytes as usize) },
    }
}

struct Frame {
    head: [u8; MESSAGE_BYTES],
    payload: Payload,
    written: usize,
}

impl Frame {
    fn body(&self) -> &[u8] {
        // SAFETY: the memory stays as it is until the frame has left, or is detached.
        unsafe { payload_bytes(&self.payload) }
    }

    fn rest(&self) -> [IoSlice<'_>; 2] {
        let body = self.body();
        let head = self.written.min(MESSAGE_BYTES);
        [IoSlice::new(&self.head[head..]), IoSlice::new(&body[self.written - head..])]
    }

    fn ticket(self) -> Option<Ticket> {
        match self.payload {
            Payload::Memory(_, _, ticket) => Some(ticket),
            Payload::Nothing | Payload::Text(_) => None,
        }
    }

    /// It is a value of operation `run`.
    fn is_of(&self, run: u64) -> bool {
        matches!(self.payload, Payload::Memory(_, _, ticket) if ticket.run == run)
    }

    fn left(&self) -> usize {
        MESSAGE_BYTES + self.body().len() - self.written
    }
}

/// The sending side of a socket: writes what it takes, keeps the rest. Any number of threads may flush it.
pub(crate) struct Stream {
    pub(crate) socket: Socket,
    queue: Mutex<UrgencyQueue<Frame>>,
    /// Held while some of the queue is being written: those frames lie outside of it.
    writing: Mutex<()>,
}

impl Stream {
    pub(crate) fn new(socket: Socket) -> Stream {
        crate::link::fork::shut_in_children(&socket);
        let (queue, writing) = (
            Mutex::new(LockRank::StreamQueue, UrgencyQueue::default()),
            Mutex::new(LockRank::StreamWriting, ()),
        );
        Stream { socket, queue, writing }
    }

    /// Puts a message at the end of the queue, or before what it overtakes; the next flush sends it.
    pub(crate) fn queue(&self, message: &Message, payload: Payload, urgency: Option<i32>) {
        self.queue.lock().push(Frame { head: message.encode(), payload, written: 0 }, urgency);
    }

    /// What waits of operation `run` becomes at least so urgent.
    pub(crate) fn lift(&self, run: u64, urgency: i32) {
        self.queue.lock().lift(|frame| frame.is_of(run), urgency);
    }

    /// Writes as much of the queue as the socket takes. Returns the tickets of payloads that have left. After an error it
    /// is shut down: the watcher sees that, and reports the peer.
    pub(crate) fn flush(&self) -> Vec<Ticket> {
        let mut left = Vec::new();
        if self.write(&mut left).is_err_and(|e| e.kind() != io::ErrorKind::WouldBlock) {
            self.socket.shut_down();
        }
        left
    }

    /// Shuts it down, both ways. Returns the tickets of payloads that never leave.
    pub(crate) fn close(&self) -> Vec<Ticket> {
        self.socket.shut_down();
        let _writing = self.writing.lock();
        let mut unsent = std::mem::take(&mut *self.queue.lock());
        std::iter::from_fn(|| unsent.pop()).filter_map(Frame::ticket).collect()
    }

    fn write(&self, left: &mut Vec<Ticket>) -> io::Result<()> {
        loop {
            // Given back between two pieces: others may put in more, or take their memory back.
            let _writing = self.writing.lock();
            let mut batch = self.queue.lock().take(FRAMES_AT_ONCE);
            if batch.is_empty() {
                return self.socket.flush();
            }
            let parts: Vec<IoSlice<'_>> =
                batch.iter().flat_map(|waiting| waiting.frame.rest()).filter(|p| !p.is_empty()).collect();
            let written = self.socket.write(&parts);
            if let Ok(bytes) = written {
                settle(&mut batch, bytes, left);
            }
            self.queue.lock().put_back(batch);
            match written {
                Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e),
                _ => {}
            }
        }
    }

    /// What the kernel has not taken.
    pub(crate) fn queued_bytes(&self) -> u64 {
        self.queue.lock().iter().map(|frame| frame.left() as u64).sum()
    }

    /// Whether the other end's host has acknowledged all that was queued. What a local socket takes is there at once.
    pub(crate) fn has_arrived(&self) -> bool {
        let local = matches!(self.socket, Socket::Local(_));
        let taken = self.queued_bytes() == 0 && self.socket.flush().is_ok();
        // Of a connection that has failed nothing more arrives.
        taken && (local || sockopt::unacknowledged(&self.socket).unwrap_or(0) == 0)
    }

    /// Stops reading the caller's memory on behalf of operation `run`: what has begun goes on from a copy.
    pub(crate) fn detach(&self, run: u64) {
        let _writing = self.writing.lock();
        let mut queue = self.queue.lock();
        queue.retain_mut(|frame| {
            if frame.is_of(run) && frame.written > 0 {
                frame.payload = Payload::Text(frame.body().to_vec());
            }
            !frame.is_of(run)
        });
    }
}

/// Takes `bytes` written bytes off the queue.
fn settle(queue: &mut VecDeque<Waiting<Frame>>, mut bytes: usize, left: &mut Vec<Ticket>) {
    while let Some(waiting) = queue.front_mut() {
        let frame = &mut waiting.frame;
        let step = bytes.min(frame.left());
        frame.written += step;
        bytes -= step;
        if frame.left() > 0 {
            if frame.written > 0 {
                waiting.fix();
            }
            return;
        }
        left.extend(queue.pop_front().and_then(|waiting| waiting.frame.ticket()));
    }
}

#[cfg(test)]
mod tests {
    use tweed_proto::engine::Address;

    use super::*;

    #[test]
    fn an_empty_tensor_may_have_no_address() {
        let ticket = Ticket { run: 0, send: 0, output: 0, slice: 0, to: 0 };
        // SAFETY: nothing is pointed at.
        assert!(unsafe { payload_bytes(&Payload::Memory(Address::NULL, 0, ticket)) }.is_empty());
    }
}
