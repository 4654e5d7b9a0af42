//! A link that stands: a sealed socket over which messages go. While nothing is under way it holds no buffers.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tweed_proto::hub::{Assembly, Body, MostQueued, Outbox};

use crate::link::sockopt::unacknowledged;
use crate::secure::{inside, split_record, Opener, Sealer, Session, MOST_RECORD};

/// So much is read of one link before the others' turn.
const TURN_BYTES: usize = 4 * MOST_RECORD;
/// So much is sealed ahead of the kernel.
const AHEAD_BYTES: usize = MOST_RECORD;

/// Room in which bytes of any link are opened, one link after the other.
pub(super) struct Scratch {
    raw: Box<[u8]>,
    plain: Box<[u8]>,
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch { raw: vec![0; 2 * MOST_RECORD].into(), plain: vec![0; MOST_RECORD].into() }
    }
}

/// What a turn has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing is there at the moment.
    Drained,
    /// There may be more.
    More,
}

pub(super) struct Stream {
    pub(super) socket: Arc<TcpStream>,
    sealer: Sealer,
    opener: Opener,
    /// The beginning of a record.
    raw: Vec<u8>,
    assembly: Assembly,
    /// When the first byte was here of the message that comes now.
    began: Instant,
    /// How long the last message took to come.
    pub(super) took: Duration,
    outbox: Outbox,
    /// Sealed, and with the kernel up to `sent`.
    sealed: Vec<u8>,
    sent: usize,
}

impl Stream {
    /// Over a connected socket that does not block. No message that comes may be longer than `most` bytes, and
    /// at most `queued` of those that are sent may wait.
    pub(super) fn new(socket: Arc<TcpStream>, session: Session, (most, queued): (u64, MostQueued)) -> Stream {
        let (sealer, opener) = session.into_directions();
        let (raw, sealed) = (Vec::new(), Vec::new());
        let (assembly, outbox) = (Assembly::new(most), Outbox::new(queued));
        let (began, took) = (Instant::now(), Duration::ZERO);
        Stream { socket, sealer, opener, raw, assembly, began, took, outbox, sealed, sent: 0 }
    }

    /// Messages may be so long from now on.
    pub(super) fn allow(&mut self, most: u64) {
        self.assembly.allow(most);
    }

    /// Bytes that have come of the message that comes now.
    pub(super) fn come(&self) -> usize {
        self.assembly.come() + self.raw.len()
    }

    /// Enters a message. An error ends the link.
    pub(super) fn enter(&mut self, head: &[u8], body: Option<Body>) -> io::Result<()> {
        self.outbox.push(head, body).map_err(io::Error::other)
    }

    /// Enters a message, and writes what the kernel takes. An error ends the link.
    pub(super) fn send(&mut self, head: &[u8], body: Option<Body>) -> io::Result<()> {
        self.enter(head, body)?;
        self.write()
    }

    /// Whether all has left.
    pub(super) fn is_flushed(&mut self) -> bool {
        self.sealed.is_empty() && self.outbox.peek().is_none()
    }

    /// Bytes that the other end's kernel does not have yet.
    pub(super) fn unacknowledged(&self) -> io::Result<u64> {
        let here = self.outbox.waiting() + self.sealed.len() - self.sent;
        Ok(here as u64 + unacknowledged(&self.socket)? as u64)
    }

    /// Writes what the kernel takes.
    pub(super) fn write(&mut self) -> io::Result<()> {
        loop {
            while let Some(bytes) = self.outbox.peek().filter(|_| self.sealed.len() < AHEAD_BYTES) {
                let taken = self.sealer.seal(bytes, &mut self.sealed);
                self.outbox.taken(taken);
            }
            if self.sealed.is_empty() {
                return Ok(());
            }
            match (&*self.socket).write(&self.sealed[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => self.sent += bytes,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
            if self.sent == self.sealed.len() {
                (self.sealed, self.sent) = (Vec::new(), 0);
            }
        }
    }

    /// Reads for a turn, and calls `each` with the messages that are whole. An error ends the link, as does the end of the
    /// stream; what was whole before has been handed over.
    pub(super) fn read(&mut self, scratch: &mut Scratch, mut each: impl FnMut(Vec<u8>)) -> io::Result<Turn> {
        let Scratch { raw, plain } = scratch;
        let (mut from, mut to) = (0, self.raw.len());
        raw[..to].copy_from_slice(&self.raw);
        self.raw = Vec::new();
        let mut read = 0;
        let turn = loop {
            match (&*self.socket).read(&mut raw[to..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => (to, read) = (to + bytes, read + bytes),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break Turn::Drained,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
            while let Some(end) = split_record(&raw[from..to])? {
                let bytes = self.opener.open(inside(&raw[from..from + end]), plain)?;
                from += end;
                if self.assembly.is_empty() {
                    self.began = Instant::now();
                }
                let (began, took) = (&mut self.began, &mut self.took);
                let taken = self.assembly.take(&plain[..bytes], |message| {
                    let now = Instant::now();
                    (*took, *began) = (now - *began, now);
                    each(message);
                });
                taken.map_err(io::Error::other)?;
            }
            raw.copy_within(from..to, 0);
            (from, to) = (0, to - from);
            if read >= TURN_BYTES {
                break Turn::More;
            }
        };
        self.raw = raw[from..to].to_vec();
        Ok(turn)
    }
}
