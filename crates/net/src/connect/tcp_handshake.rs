//! How two processes introduce themselves over TCP: a preamble each way, a handshake if there is a secret, then
//! who calls, who answers, and which of how many streams this is.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use tweed_proto::late::Limits;

use crate::connect::admission::deadline_stream::DeadlineStream;
use crate::connect::admission::frame::{self, Kind};
use crate::connect::admission::pending::Caller;
use crate::connect::admission::{preamble, Keys, Refusal};
use crate::connect::descriptor::PeerDescriptor;
use crate::connect::local_handshake::{Greeting, MAX_GREETING};
use crate::link::sockopt;
use crate::link::stream::{Socket, Stream};
use crate::link::tcp_timeouts::{cut_after, recover_soon};
use crate::secure::{answer, call, Party, Sealed, Session};
use crate::state::{lock, Inner};

/// A call that was broken off is made so many times: the other side may have had no room.
const ATTEMPTS: u32 = 4;
const MOST_STREAMS: u32 = 64;

/// A connection whose introduction is over.
pub(crate) struct Link {
    socket: TcpStream,
    session: Option<Session>,
}

impl Inner {
    /// Calls a process, over all streams.
    pub(crate) fn dial_wire(self: &Arc<Self>, card: &PeerDescriptor) -> Result<(), Refusal> {
        let streams = self.options.streams.max(1);
        let links =
            (0..streams).map(|stream| self.dial_stream(card, stream)).collect::<Result<Vec<_>, _>>()?;
        self.link(card, links).map(|_| ())
    }

    /// Makes a peer of who has proven to be that process.
    pub(crate) fn link(&self, card: &PeerDescriptor, links: Vec<Link>) -> Result<usize, Refusal> {
        let streams = links.into_iter().map(Link::into_stream).collect::<io::Result<_>>()?;
        Ok(self.add_peer(&card.uid, &card.host, None, streams))
    }

    fn dial_stream(&self, card: &PeerDescriptor, stream: u32) -> Result<Link, Refusal> {
        let mut attempt = 1;
        loop {
            match self.dial_once(card, stream) {
                Err(Refusal::HungUp | Refusal::Crowd) if attempt < ATTEMPTS => attempt += 1,
                other => return other,
            }
        }
    }

    fn dial_once(&self, card: &PeerDescriptor, stream: u32) -> Result<Link, Refusal> {
        let address = card.tcp.ok_or(Refusal::Silent)?;
        let patience = self.limits().greet;
        let socket = TcpStream::connect_timeout(&address, patience)?;
        self.prepare(&socket)?;
        let mut wire = DeadlineStream::new(&socket, patience);
        preamble::exchange(&mut wire, self.keys.is_some())?;
        let greeting = self.greeting(stream, self.options.streams.max(1)).encode();
        let (session, answer) = match &self.keys {
            None => {
                frame::write(&mut wire, Kind::Greeting, &greeting)?;
                (None, frame::read(&mut wire, Kind::Greeting, MAX_GREETING)?)
            }
            Some(keys) => {
                let mut session = call(&mut wire, &keys.party(), &greeting)?;
                if Some(session.key) != card.key() {
                    return Err(Refusal::Key);
                }
                let sealed = frame::read(&mut wire, Kind::Greeting, 2 * MAX_GREETING)?;
                let answer = session.open(&sealed)?;
                (Some(session), answer)
            }
        };
        if read_greeting(&answer)?.uid != card.uid {
            return Err(Refusal::Stranger);
        }
        Ok(Link { socket, session })
    }

    /// Hears a caller out, and keeps it pending until a group names it.
    pub(crate) fn admit_wire(&self, socket: TcpStream) -> Result<(), Refusal> {
        self.prepare(&socket)?;
        let mut wire = DeadlineStream::new(&socket, self.limits().greet);
        preamble::exchange(&mut wire, self.keys.is_some())?;
        let heard = self.hear(&mut wire);
        if let Err(refusal) = &heard {
            let _ = frame::write(&mut wire, Kind::Refused, &[refusal.code()]);
        }
        let (greeting, session) = heard?;
        let caller = Caller { uid: greeting.uid, key: session.as_ref().map(|s| s.key) };
        let place = (greeting.stream, greeting.streams);
        let entered = lock(&self.pending).enter(caller, place, Link { socket, session });
        self.met.notify_all();
        if entered {
            Ok(())
        } else {
            Err(Refusal::Garbled("a greeting"))
        }
    }

    fn hear(&self, wire: &mut DeadlineStream<'_>) -> Result<(Greeting, Option<Session>), Refusal> {
        let (mut session, text) = match &self.keys {
            None => (None, frame::read(&mut *wire, Kind::Greeting, MAX_GREETING)?),
            Some(keys) => {
                let (session, text) = answer(&mut *wire, &keys.party())?;
                (Some(session), text)
            }
        };
        let theirs = read_greeting(&text)?;
        if theirs.stream >= theirs.streams || theirs.streams > MOST_STREAMS {
            return Err(Refusal::Garbled("a greeting"));
        }
        let ours = self.greeting(theirs.stream, theirs.streams).encode();
        let ours = session.as_mut().map_or(ours.clone(), |s| s.seal(&ours));
        frame::write(wire, Kind::Greeting, &ours)?;
        Ok((theirs, session))
    }

    fn greeting(&self, stream: u32, streams: u32) -> Greeting {
        Greeting::new(&self.card.uid, &self.card.host, stream, streams)
    }

    fn prepare(&self, socket: &TcpStream) -> io::Result<()> {
        crate::link::fork::shut_in_children(socket);
        socket.set_nodelay(true)?;
        let Limits { silence, .. } = self.limits();
        cut_after(silence, socket)?;
        recover_soon(socket);
        let Some(name) = &self.options.congestion else { return Ok(()) };
        sockopt::set_bytes(socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name.as_bytes())
    }
}

impl Keys {
    /// What the handshake binds in beside the keys: version and purpose.
    fn party(&self) -> Party<'_> {
        Party { secret: &self.secret, identity: &self.identity, prologue: preamble::encode(true) }
    }
}

impl Link {
    fn into_stream(self) -> io::Result<Stream> {
        self.socket.set_nonblocking(true)?;
        let socket = mio::net::TcpStream::from_std(self.socket);
        Ok(Stream::new(match self.session {
            None => Socket::Tcp(socket),
            Some(session) => Socket::Sealed(Box::new(Sealed::new(socket, session))),
        }))
    }
}

fn read_greeting(text: &[u8]) -> Result<Greeting, Refusal> {
    Greeting::decode(text).map_err(|_| Refusal::Garbled("a greeting"))
}
