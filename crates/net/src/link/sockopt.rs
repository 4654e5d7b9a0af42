//! Options of sockets that the standard library does not know.

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use tweed_proto::engine::pace::Carried;

/// Sets an option to a number.
pub(crate) fn set(socket: &impl AsRawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    set_bytes(socket, level, name, &value.to_ne_bytes())
}

/// Sets an option to whatever bytes it takes.
pub(crate) fn set_bytes(socket: &impl AsRawFd, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    let bytes = value.len() as libc::socklen_t;
    // SAFETY: the pointer and the length are those of `value`.
    done(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast(), bytes) })
}

/// An option that is a number.
pub(crate) fn get(socket: &impl AsRawFd, level: i32, name: i32) -> io::Result<i32> {
    // SAFETY: any bytes are a number.
    unsafe { get_record(socket, level, name) }
}

/// What the kernel knows of a TCP connection.
pub(crate) fn tcp_info(socket: &impl AsRawFd) -> io::Result<libc::tcp_info> {
    // SAFETY: numbers alone.
    unsafe { get_record(socket, libc::IPPROTO_TCP, libc::TCP_INFO) }
}

/// Of what the kernel takes it keeps at most so many bytes that have not left.
pub(crate) fn limit_unsent(socket: &impl AsRawFd, bytes: i32) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes)
}

/// What a connection has carried, and how many packets were sent again although they had arrived.
pub(crate) fn carried(socket: &impl AsRawFd) -> io::Result<(Carried, u32)> {
    // Words of `struct tcp_info` that libc does not know: tcpi_bytes_acked, tcpi_min_rtt, tcpi_busy_time, tcpi_dsack_dups.
    const BYTES_ACKED: usize = 30;
    const MIN_RTT: usize = 37;
    const BUSY_TIME: usize = 42;
    const DSACK_DUPS: usize = 54;
    // SAFETY: numbers alone.
    let words: [u32; DSACK_DUPS + 1] = unsafe { get_record(socket, libc::IPPROTO_TCP, libc::TCP_INFO) }?;
    let long = |at: usize| u64::from(words[at]) | u64::from(words[at + 1]) << 32;
    let (busy, round_trip) = (long(BUSY_TIME), words[MIN_RTT].into());
    let [busy, round_trip] = [busy, round_trip].map(Duration::from_micros);
    Ok((Carried { arrived: long(BYTES_ACKED), busy, round_trip }, words[DSACK_DUPS]))
}

/// Bytes that the kernel has taken and the other end has not acknowledged.
pub(crate) fn unacknowledged(socket: &impl AsRawFd) -> io::Result<i32> {
    let mut bytes = 0;
    // SAFETY: the kernel writes one number.
    done(unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
    Ok(bytes)
}

/// Process and user at the other end of a local socket; a number is 0 if it is not visible from here.
pub(crate) fn credentials(socket: &impl AsRawFd) -> io::Result<libc::ucred> {
    // SAFETY: numbers alone.
    unsafe { get_record(socket, libc::SOL_SOCKET, libc::SO_PEERCRED) }
}

/// # Safety
/// All zero, and whatever the kernel writes for this option, is a valid `T`.
unsafe fn get_record<T>(socket: &impl AsRawFd, level: i32, name: i32) -> io::Result<T> {
    // SAFETY: by the contract.
    let mut value: T = unsafe { std::mem::zeroed() };
    let (into, mut bytes) = ((&raw mut value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the pointer and the length are those of `value`.
    done(unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, into, &raw mut bytes) })?;
    Ok(value)
}

/// What a system call has returned, as a result.
pub(crate) fn done(rc: i32) -> io::Result<()> {
    match rc {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
