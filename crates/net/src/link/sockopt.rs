//! Options of sockets, which the standard library does not know.

use std::io;
use std::mem::size_of;
use std::os::fd::AsRawFd;

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
    let mut value = 0;
    let mut bytes = size_of::<i32>() as libc::socklen_t;
    let into = (&raw mut value).cast();
    // SAFETY: the pointer and the length are those of `value`.
    done(unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, into, &raw mut bytes) })?;
    Ok(value)
}

fn done(rc: i32) -> io::Result<()> {
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
