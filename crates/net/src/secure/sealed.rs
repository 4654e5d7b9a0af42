//! A socket that does not block and whose bytes are sealed. It takes and gives plain bytes.
//!
//! Sealing and opening cost more than all else that is done with bytes, so neither is done under the engine's lock:
//! `write` is called without it, and `open_ahead` opens what `read` then only copies.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};

use mio::net::TcpStream;

use super::record::{inside, split_record, Opener, Sealer, MOST_PLAIN, MOST_RECORD};
use super::Session;
use crate::sync::{LockRank, Mutex};

/// Small pieces are gathered up to so many bytes, to make one record of them.
const GATHER_BYTES: usize = 16 << 10;
/// So much may be sealed and wait for the kernel; the caller keeps the rest.
const PENDING_BYTES: usize = 2 * MOST_RECORD;
const INCOMING_BYTES: usize = 2 * MOST_RECORD;
/// So much is opened before it is read: it stays in the cache until then.
const OPENED_BYTES: usize = 2 * MOST_RECORD;

struct Outgoing {
    sealer: Sealer,
    gathered: Vec<u8>,
    pending: Vec<u8>,
    /// How much of `pending` the kernel has.
    sent: usize,
}

struct Incoming {
    opener: Opener,
    /// The bytes as they came in; `from..to` is unopened.
    raw: Box<[u8]>,
    from: usize,
    to: usize,
    /// Opened and not yet taken: `taken..opened`.
    plain: Box<[u8]>,
    taken: usize,
    opened: usize,
    /// What comes behind it, once that is known to be no more bytes: the end of the stream, or an error.
    end: Option<io::Result<()>>,
}

pub(crate) struct Sealed {
    pub(crate) socket: TcpStream,
    outgoing: Mutex<Outgoing>,
    incoming: Mutex<Incoming>,
}

impl Sealed {
    /// Over a connected socket that does not block.
    pub(crate) fn new(socket: TcpStream, session: Session) -> Sealed {
        let Session { sealer, opener, .. } = session;
        let outgoing = Outgoing { sealer, gathered: Vec::new(), pending: Vec::new(), sent: 0 };
        let (raw, plain) = (vec![0; INCOMING_BYTES].into(), vec![0; OPENED_BYTES + MOST_RECORD].into());
        let incoming = Incoming { opener, raw, from: 0, to: 0, plain, taken: 0, opened: 0, end: None };
        Sealed {
            socket,
            outgoing: Mutex::new(LockRank::SealedOutgoing, outgoing),
            incoming: Mutex::new(LockRank::SealedIncoming, incoming),
        }
    }

    /// Seals as much of `parts` as there is room for, and sends what the kernel takes. What it returns as taken is
    /// copied: it may still have to be flushed.
    pub(crate) fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut outgoing = self.outgoing.lock();
        outgoing.send(&self.socket)?;
        let taken = outgoing.take(parts);
        match outgoing.send(&self.socket) {
            Err(e) if e.kind() != io::ErrorKind::WouldBlock => Err(e),
            _ => Ok(taken),
        }
    }

    /// Sends what is sealed and waits; `WouldBlock` if the kernel does not take all.
    pub(crate) fn flush(&self) -> io::Result<()> {
        self.outgoing.lock().send(&self.socket)
    }

    /// Opens what has come in, for `read` to take. Whether that finds anything, be it the end: then there may be more, and
    /// this is to be called again.
    pub(crate) fn open_ahead(&self) -> bool {
        let mut incoming = self.incoming.lock();
        if incoming.taken == incoming.opened {
            (incoming.taken, incoming.opened) = (0, 0);
        }
        while incoming.end.is_none() && incoming.opened < OPENED_BYTES {
            match incoming.open_next(&self.socket) {
                Ok(true) => {}
                Ok(false) => incoming.end = Some(Ok(())),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => incoming.end = Some(Err(e)),
            }
        }
        incoming.opened > incoming.taken || incoming.end.is_some()
    }

    /// Fills `into` as far as bytes have been opened; `WouldBlock` if there are none, 0 at the end.
    pub(crate) fn read(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut incoming = self.incoming.lock();
        let filled: usize = into.iter_mut().map(|place| incoming.take(place)).sum();
        if filled > 0 || into.iter().all(|place| place.is_empty()) {
            return Ok(filled);
        }
        match incoming.end.take() {
            None => Err(io::ErrorKind::WouldBlock.into()),
            // Whoever reads on gets to the same end.
            Some(end) => {
                incoming.end = Some(Ok(()));
                end.map(|()| 0)
            }
        }
    }
}

impl Outgoing {
    fn take(&mut self, parts: &[IoSlice<'_>]) -> usize {
        let mut taken = 0;
        for part in parts {
            let mut rest: &[u8] = part;
            while !rest.is_empty() && self.pending.len() + self.gathered.len() < PENDING_BYTES {
                let step = self.take_some(rest);
                taken += step;
                rest = &rest[step..];
            }
            if !rest.is_empty() {
                break;
            }
        }
        self.seal_gathered();
        taken
    }

    /// A large piece is sealed where it lies, a small one gathered with its neighbours.
    fn take_some(&mut self, rest: &[u8]) -> usize {
        if rest.len() < GATHER_BYTES || !self.gathered.is_empty() {
            let step = rest.len().min(GATHER_BYTES - self.gathered.len());
            self.gathered.extend_from_slice(&rest[..step]);
            if self.gathered.len() == GATHER_BYTES {
                self.seal_gathered();
            }
            return step;
        }
        self.sealer.seal(&rest[..rest.len().min(MOST_PLAIN)], &mut self.pending)
    }

    fn seal_gathered(&mut self) {
        if !self.gathered.is_empty() {
            self.sealer.seal(&self.gathered, &mut self.pending);
            self.gathered.clear();
        }
    }

    fn send(&mut self, mut socket: &TcpStream) -> io::Result<()> {
        while self.sent < self.pending.len() {
            match socket.write(&self.pending[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => self.sent += bytes,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.pending.clear();
        self.sent = 0;
        Ok(())
    }
}

impl Incoming {
    /// Opens one more record; `false` at the end of the stream.
    fn open_next(&mut self, socket: &TcpStream) -> io::Result<bool> {
        let Some(end) = self.next_record(socket)? else { return Ok(false) };
        let sealed = inside(&self.raw[self.from..self.from + end]);
        self.from += end;
        // What does not open is not counted, so nobody sees it.
        self.opened += self.opener.open(sealed, &mut self.plain[self.opened..][..sealed.len()])?;
        Ok(true)
    }

    /// Copies what is opened, as much as `into` holds.
    fn take(&mut self, into: &mut [u8]) -> usize {
        let step = into.len().min(self.opened - self.taken);
        into[..step].copy_from_slice(&self.plain[self.taken..self.taken + step]);
        self.taken += step;
        step
    }

    /// Reads until a whole record lies at `from`, and says how long it is; `None` at the end of the stream.
    fn next_record(&mut self, mut socket: &TcpStream) -> io::Result<Option<usize>> {
        loop {
            if let Some(end) = split_record(&self.raw[self.from..self.to])? {
                return Ok(Some(end));
            }
            if self.from == self.to {
                (self.from, self.to) = (0, 0);
            } else if self.raw.len() - self.from < MOST_RECORD {
                self.raw.copy_within(self.from..self.to, 0);
                (self.from, self.to) = (0, self.to - self.from);
            }
            match socket.read(&mut self.raw[self.to..]) {
                Ok(0) if self.from == self.to => return Ok(None),
                Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "its connection was cut")),
                Ok(bytes) => self.to += bytes,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}
