//! A connected socket that carries messages and their payload.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use tweed_proto::engine::message::{Message, MESSAGE_BYTES};
use tweed_proto::engine::pace::{self, Pace};
use tweed_proto::engine::striping::Losses;
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

    fn rest(&self) -> [&[u8]; 2] {
        let head = self.written.min(MESSAGE_BYTES);
        [&self.head[head..], &self.body()[self.written - head..]]
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
    writing: Mutex<Pace>,
    /// The kernel is given no more than leaves soon.
    paced: AtomicBool,
    /// Frames wait although the kernel would take them.
    holds_back: AtomicBool,
}

impl Stream {
    pub(crate) fn new(socket: Socket) -> Stream {
        crate::link::fork::shut_in_children(&socket);
        let (queue, writing) = (
            Mutex::new(LockRank::StreamQueue, UrgencyQueue::default()),
            Mutex::new(LockRank::StreamWriting, Pace::default()),
        );
        Stream { socket, queue, writing, paced: AtomicBool::new(false), holds_back: AtomicBool::new(false) }
    }

    /// From now on the kernel is given no more than leaves soon: all else waits in the queue, where it can be overtaken.
    pub(crate) fn pace(&self) {
        if !matches!(self.socket, Socket::Local(_)) {
            let _ = sockopt::limit_unsent(&self.socket, pace::LEAST_BYTES as i32);
            self.paced.store(true, Ordering::Relaxed);
        }
    }

    /// Frames wait although the kernel would take them: flush it again after [`pace::AGAIN`].
    pub(crate) fn holds_back(&self) -> bool {
        self.holds_back.load(Ordering::Relaxed)
    }

    /// So many bytes may be written now.
    fn room(&self, pace: &mut Pace) -> usize {
        if !self.paced.load(Ordering::Relaxed) {
            return usize::MAX;
        }
        let known =
            sockopt::carried(&self.socket).and_then(|c| Ok((c, sockopt::unacknowledged(&self.socket)?)));
        // Of a connection that has failed, the write says so.
        known.map_or(usize::MAX, |((carried, _), held)| pace.room(&carried, held as u64) as usize)
    }

    /// What was lost, as far as the kernel says. With few packets under way it sends some again only to be sure.
    pub(crate) fn losses(&self) -> Losses {
        let again = self.socket.retransmissions();
        let Ok((carried, repeated)) = sockopt::carried(&self.socket) else {
            return Losses { again, ..Losses::default() };
        };
        let repeated = if self.paced.load(Ordering::Relaxed) { repeated } else { 0 };
        let rate = carried.arrived as f64 / carried.busy.as_secs_f64().max(1e-6);
        Losses { again: again.saturating_sub(repeated.into()), rate, round_trip: carried.round_trip }
    }

    /// Puts a message at the end of the queue, or before what it overtakes; the next flush sends it.
    pub(crate) fn queue(&self, message: &Message, payload: Payload, urgency: Option<i32>) {
        if self.paced.load(Ordering::Relaxed) {
            // Until a flush finds out: that of a sealed stream comes after the engine's deadline was set.
            self.holds_back.store(true, Ordering::Relaxed);
        }
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
            let mut pace = self.writing.lock();
            let room = self.room(&mut pace);
            let mut queue = self.queue.lock();
            self.holds_back.store(room == 0 && queue.iter().next().is_some(), Ordering::Relaxed);
            let mut batch = queue.take(if room == 0 { 0 } else { FRAMES_AT_ONCE });
            drop(queue);
            if batch.is_empty() {
                return self.socket.flush();
            }
            let parts = within(batch.iter().flat_map(|waiting| waiting.frame.rest()), room);
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

/// The first `room` bytes of these parts.
fn within<'a>(parts: impl Iterator<Item = &'a [u8]>, mut room: usize) -> Vec<IoSlice<'a>> {
    let cut = parts.map(|part| {
        let part = &part[..part.len().min(room)];
        room -= part.len();
        IoSlice::new(part)
    });
    cut.filter(|part| !part.is_empty()).collect()
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
