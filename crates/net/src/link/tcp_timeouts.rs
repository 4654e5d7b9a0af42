//! Times of a wire: how long its other end may be silent, and how soon what was lost is sent again.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use crate::link::sockopt::set;

/// Parts of the silence that ends an idle connection: after a quarter of it a probe leaves, and then one in each part.
const PARTS: u64 = 32;

/// What was sent and is not acknowledged within `silence` ends the connection; so does an idle one whose other end
/// answers none of many probes: where every fifth of them or its answer is lost, a few would all be lost now and then.
pub(crate) fn cut_after(silence: Duration, socket: &TcpStream) -> io::Result<()> {
    let share = |parts: u64| i32::try_from(silence.as_secs() / parts).unwrap_or(i32::MAX).clamp(1, 3600);
    let milliseconds = i32::try_from(silence.as_millis()).unwrap_or(i32::MAX);
    set(socket, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, milliseconds)?;
    set(socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    set(socket, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, share(4))?;
    set(socket, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, share(PARTS))
}

/// Sends the lost end of a burst again after 20 ms and more, as the round trips want it, instead of 200 and more; the
/// other end owes its acknowledgement within 8 ms instead of 40. Without it, one packet lost at the end of a value holds
/// up all ranks for a quarter of a second. Kernels before 6.15 know no such settings and are left as they are.
pub(crate) fn recover_soon(socket: &TcpStream) {
    const TCP_RTO_MIN_US: i32 = 45;
    const TCP_DELACK_MAX_US: i32 = 46;
    let _ = set(socket, libc::IPPROTO_TCP, TCP_RTO_MIN_US, 20_000);
    let _ = set(socket, libc::IPPROTO_TCP, TCP_DELACK_MAX_US, 5_000);
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::link::sockopt::get;

    #[test]
    fn an_idle_connection_is_probed_many_times_before_it_is_cut() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        for seconds in [60, 120, 300] {
            cut_after(Duration::from_secs(seconds), &socket).unwrap();
            let option = |name| get(&socket, libc::IPPROTO_TCP, name).unwrap() as u64;
            let probed = seconds - option(libc::TCP_KEEPIDLE);
            assert!(probed / option(libc::TCP_KEEPINTVL) >= 24, "{seconds} s");
        }
    }
}
