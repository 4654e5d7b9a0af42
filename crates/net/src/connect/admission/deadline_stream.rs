//! A socket with one limit for all that is said over it: a slow caller gains nothing by saying a little. Who uses it can
//! be stopped meanwhile.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use crate::sync::stop::{Stop, SLICE};

/// What the kernel can count in one wait.
const LONGEST_MS: u128 = i32::MAX as u128 - 1;

/// The socket must not block.
pub(crate) struct DeadlineStream<'a, S> {
    socket: &'a S,
    until: Instant,
    stop: Option<&'a Stop>,
}

impl<'a, S: AsRawFd> DeadlineStream<'a, S> {
    /// Everything over `socket` from now on, within `patience`.
    pub(crate) fn new(socket: &'a S, patience: Duration, stop: &'a Stop) -> DeadlineStream<'a, S> {
        DeadlineStream { socket, until: Instant::now() + patience, stop: Some(stop) }
    }

    /// As `new`, where whoever wants to stop it shuts the socket down: hundreds of callers that say nothing then cost no
    /// time.
    pub(crate) fn until_shut(socket: &'a S, patience: Duration) -> DeadlineStream<'a, S> {
        DeadlineStream { socket, until: Instant::now() + patience, stop: None }
    }

    /// Repeats what would have blocked, until the socket is ready for it (`libc::POLLIN` or `POLLOUT`).
    pub(crate) fn once_ready<R>(
        &self,
        events: i16,
        mut attempt: impl FnMut(&S) -> io::Result<R>,
    ) -> io::Result<R> {
        loop {
            match attempt(self.socket) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    wait(self.socket.as_raw_fd(), events, self.until, self.stop)?;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }
}

impl<S: AsRawFd> Read for DeadlineStream<'_, S>
where
    for<'s> &'s S: Read,
{
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.once_ready(libc::POLLIN, |mut socket| socket.read(into))
    }
}

impl<S: AsRawFd> Write for DeadlineStream<'_, S>
where
    for<'s> &'s S: Write,
{
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.once_ready(libc::POLLOUT, |mut socket| socket.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Connects; the socket that it returns does not block.
pub(crate) fn connect(address: SocketAddr, patience: Duration, stop: &Stop) -> io::Result<TcpStream> {
    let socket = mio::net::TcpStream::connect(address)?;
    wait(socket.as_raw_fd(), libc::POLLOUT, Instant::now() + patience, Some(stop))?;
    match socket.take_error()? {
        Some(error) => Err(error),
        None => Ok(TcpStream::from(OwnedFd::from(socket))),
    }
}

/// Waits until one of `events` is there, or the socket has failed.
fn wait(socket: RawFd, events: i16, until: Instant, stop: Option<&Stop>) -> io::Result<()> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || stop.is_some_and(Stop::is_set) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut poll = libc::pollfd { fd: socket, events, revents: 0 };
        let slice = stop.map_or(left, |_| SLICE.min(left)).as_millis().min(LONGEST_MS) as i32 + 1;
        // SAFETY: one valid entry.
        if unsafe { libc::poll(&mut poll, 1, slice) } > 0 {
            return Ok(());
        }
    }
}
