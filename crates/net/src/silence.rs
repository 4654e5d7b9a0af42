//! A wire whose other end has vanished: the kernel is told how long it may be silent.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// What was sent and is not acknowledged within `silence` ends the connection; so does an idle one whose other end
/// answers no probe.
pub(crate) fn cut_after(silence: Duration, socket: &TcpStream) -> io::Result<()> {
    let probe = i32::try_from(silence.as_secs() / 4).unwrap_or(i32::MAX).clamp(1, 3600);
    let milliseconds = i32::try_from(silence.as_millis()).unwrap_or(i32::MAX);
    set(socket, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, milliseconds)?;
    set(socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    set(socket, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, probe)?;
    set(socket, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, probe)
}

fn set(socket: &TcpStream, level: i32, option: i32, value: i32) -> io::Result<()> {
    let bytes = size_of::<i32>() as u32;
    // SAFETY: the value is as long as said.
    let set =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), bytes) };
    if set == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
