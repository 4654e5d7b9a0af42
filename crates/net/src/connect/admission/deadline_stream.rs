//! A socket that blocks, with one limit for all that is said over it: a slow caller gains nothing by saying a little.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// See the module's documentation.
pub(crate) struct DeadlineStream<'a> {
    socket: &'a TcpStream,
    until: Instant,
}

impl<'a> DeadlineStream<'a> {
    /// Everything over `socket` from now on, within `patience`.
    pub(crate) fn new(socket: &'a TcpStream, patience: Duration) -> DeadlineStream<'a> {
        DeadlineStream { socket, until: Instant::now() + patience }
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(left)
    }
}

impl Read for DeadlineStream<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(self.left()?))?;
        self.socket.read(into)
    }
}

impl Write for DeadlineStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(self.left()?))?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
