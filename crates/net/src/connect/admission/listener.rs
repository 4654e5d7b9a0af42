//! The TCP listener: a thread that lets callers in.
//!
//! Theory of operation. The listener is *bound* first: its port is on the descriptor, and calls there are refused by the
//! kernel. `listen` makes it *listening*, once, when somebody has to come in; `close` ends both. Who may come in, and for
//! how long, is the `crowd`'s to say; who had to go, and meant well, calls again (`tcp_handshake`).

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::connect::admission::crowd::Crowd;
use crate::framing::Refusal;
use crate::link::sockopt::{self, done, tcp_info};

/// So many wait in the kernel's queue.
const QUEUED_CALLERS: i32 = 1024;

/// Who hears callers out.
pub(crate) trait Admitting: Send + Sync + 'static {
    /// How long an introduction may take.
    fn patience(&self) -> Duration;

    /// Hears a caller out, on a thread of its own, and takes it in. `proven` is called once it has shown that it is a tweed
    /// of our kind.
    fn admit(&self, socket: Arc<TcpStream>, proven: impl FnOnce()) -> Result<(), Refusal>;

    /// A caller was turned away.
    fn refuse(&self, who: &str, refusal: &Refusal);
}

pub(crate) struct Listener {
    listener: TcpListener,
    crowd: Crowd,
}

impl Listener {
    /// Takes a port, any one if it is 0, and refuses all who call there. One that is `lasting` can be taken again at once by
    /// the next process, though links of this one have not faded; it is to listen without delay, as until then another could
    /// take it, too.
    pub(crate) fn bind(address: SocketAddr, lasting: bool) -> io::Result<Listener> {
        let listener = bind(address, lasting)?;
        crate::link::fork::shut_in_children(&listener);
        listener.set_nonblocking(true)?;
        Ok(Listener { listener, crowd: Crowd::new()? })
    }

    /// Where.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// From now on callers may come in.
    pub(crate) fn listen(&self) -> io::Result<()> {
        let socket = self.listener.as_raw_fd();
        // SAFETY: a plain system call on a descriptor that we own.
        self.crowd.open(&self.listener, || done(unsafe { libc::listen(socket, QUEUED_CALLERS) }))
    }

    /// Lets callers in until the node stops.
    pub(crate) fn run(self: &Arc<Self>, admitting: &Arc<impl Admitting>) {
        let let_in = |number, (socket, from)| self.let_in(admitting, number, Arc::new(socket), from);
        self.crowd.serve(admitting.patience(), || self.listener.accept(), let_in);
    }

    fn let_in(
        self: &Arc<Self>,
        admitting: &Arc<impl Admitting>,
        number: u64,
        socket: Arc<TcpStream>,
        from: SocketAddr,
    ) {
        let (listener, admitting) = (Arc::clone(self), Arc::clone(admitting));
        // As the kernel has measured it so far.
        let round_trip = tcp_info(&*socket).map_or(0, |info| info.tcpi_rtt.into());
        let place = (Arc::clone(&socket) as Arc<_>, Duration::from_micros(round_trip));
        self.crowd.enter(number, place, move || {
            let crowd = &listener.crowd;
            let met = admitting.admit(socket, || crowd.note_proven(number));
            let evicted = crowd.leave(number);
            if let Err(refusal) = met {
                admitting.refuse(&from.to_string(), &if evicted { Refusal::Crowd } else { refusal });
            }
        });
    }

    /// Ends the thread, and sends all callers away.
    pub(crate) fn close(&self) {
        self.crowd.close(&self.listener);
    }
}

/// A thread that lets callers in. By its name others see what the port is for (`tweed doctor`); the kernel keeps 15 bytes of it.
pub(crate) fn listening_thread(name: &str, address: SocketAddr) -> std::thread::Builder {
    std::thread::Builder::new().name(format!("{name}:{}", address.port()))
}

/// The standard library would listen at once, and let others share the port.
fn bind(address: SocketAddr, lasting: bool) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: a plain system call.
    let socket = unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    if lasting {
        sockopt::set(&socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    }
    let bound = match address {
        SocketAddr::V4(given) => {
            // SAFETY: all zero is a valid address.
            let mut address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
            address.sin_family = family as libc::sa_family_t;
            address.sin_port = given.port().to_be();
            address.sin_addr.s_addr = u32::from_ne_bytes(given.ip().octets());
            bind_to(&socket, &address)
        }
        SocketAddr::V6(given) => {
            // SAFETY: all zero is a valid address.
            let mut address: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
            address.sin6_family = family as libc::sa_family_t;
            address.sin6_port = given.port().to_be();
            address.sin6_scope_id = given.scope_id();
            address.sin6_addr.s6_addr = given.ip().octets();
            bind_to(&socket, &address)
        }
    };
    bound.map(|()| TcpListener::from(socket))
}

fn bind_to<A>(socket: &OwnedFd, address: &A) -> io::Result<()> {
    let (place, bytes) = ((&raw const *address).cast(), size_of::<A>() as libc::socklen_t);
    // SAFETY: the address is as long as said.
    done(unsafe { libc::bind(socket.as_raw_fd(), place, bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_port_refuses_callers_until_it_listens() {
        let listener = Listener::bind(([127, 0, 0, 1], 0).into(), false).unwrap();
        let address = listener.address().unwrap();
        let refused = TcpStream::connect(address).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        listener.listen().unwrap();
        listener.listen().unwrap();
        TcpStream::connect(address).unwrap();
    }
}
