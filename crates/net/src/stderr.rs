//! The one place that prints. What cannot be printed is no reason to end: a job's stderr may be a pipe that nobody reads
//! any more, where `eprintln!` panics.

use std::io::Write;
use std::os::fd::RawFd;
use std::time::Duration;

/// Who is about to abort lets its reader make room for so long.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Prints one line on stderr, if anybody takes it. Not to be called with a lock held: a full pipe blocks.
pub(crate) fn print_line(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Ends the process, with a line if stderr takes it soon. May be called with a lock held.
pub(crate) fn print_and_abort(text: &str) -> ! {
    write_soon(libc::STDERR_FILENO, text, LAST_WORD);
    std::process::abort();
}

/// Writes a line if there is room within `patience`. It goes around std's lock, whose holder may wait for the reader.
fn write_soon(fd: RawFd, text: &str, patience: Duration) -> bool {
    let line = format!("{text}\n");
    let mut poll = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one valid entry; then a buffer as long as said. A pipe that can be written to takes a line at once.
    unsafe {
        libc::poll(&mut poll, 1, patience.as_millis() as i32) > 0
            && libc::write(fd, line.as_ptr().cast(), line.len()) == line.len() as isize
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_full_pipe_holds_up_nobody_who_is_about_to_abort() {
        let (mut reader, mut writer) = std::io::pipe().expect("a pipe can be made");
        // SAFETY: a plain question about an open pipe.
        let room = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_GETPIPE_SZ) };
        assert!(write_soon(writer.as_raw_fd(), "before", Duration::ZERO));
        writer.write_all(&vec![b'x'; room as usize - 7]).expect("there is room");
        assert!(!write_soon(writer.as_raw_fd(), "after", Duration::from_millis(1)));
        let mut received = [0; 7];
        reader.read_exact(&mut received).expect("it was written");
        assert_eq!(&received, b"before\n");
    }
}
