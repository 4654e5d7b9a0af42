//! How a hub and a member come to know each other: a preamble each way, the handshake, and the hub's word that the member is
//! in.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tweed_proto::engine::EngineError;
use tweed_proto::hub::{Key, MostQueued};

use crate::connect::admission::deadline_stream::{connect, DeadlineStream};
use crate::connect::admission::Keys;
use crate::connect::same_user::{check_address, check_called, check_other_end};
use crate::framing::greeting::{self, Kind};
use crate::framing::preamble::{self, Purpose};
use crate::framing::{Refusal, MAX_GREETING};
use crate::link::fork::shut_in_children;
use crate::link::tcp_timeouts::{cut_after, recover_soon};
use crate::secure::{answer, call, Identity, Party, Secret, Session};
use crate::sync::stop::Stop;

/// How a process takes part: as a hub, or as a member.
#[derive(Clone, Debug)]
pub struct HubOptions {
    /// What admits; `None`: on loopback alone.
    pub secret: Option<Secret>,
    /// The network namespace of a testbed, in which no secret is needed.
    pub testbed: Option<String>,
    /// Keeps the process's key across restarts; `None`: a new one each time.
    pub key_file: Option<PathBuf>,
    /// A link whose other end does not acknowledge for so long has ended.
    pub silence: Duration,
    /// How long an introduction may take.
    pub patience: Duration,
    /// The longest message that a new link may bring.
    pub most_bytes: u64,
    /// A link on which more waits to leave has ended.
    pub most_queued: MostQueued,
}

impl HubOptions {
    /// For messages that come, and for those that leave.
    pub(super) fn bounds(&self) -> (u64, MostQueued) {
        (self.most_bytes, self.most_queued)
    }
}

type Wire<'a> = DeadlineStream<'a, TcpStream>;

/// What a process brings to introductions.
pub(super) struct Introductions {
    keys: Keys,
    pub(super) options: HubOptions,
}

impl Introductions {
    pub(super) fn open(options: HubOptions) -> Result<Introductions, EngineError> {
        let identity = Identity::open(options.key_file.as_deref())?;
        let secret = options.secret.clone().unwrap_or_else(Secret::open);
        Ok(Introductions { keys: Keys { secret, identity }, options })
    }

    pub(super) fn key(&self) -> Key {
        self.keys.identity.public
    }

    fn party(&self) -> Party<'_> {
        let Keys { secret, identity } = &self.keys;
        Party { secret, identity, prologue: preamble::encode(Purpose::Hub) }
    }

    /// The hub's side, up to where the caller's key is known. `proven` is called once it has shown that it is a tweed.
    pub(super) fn answer(&self, socket: &TcpStream, proven: impl FnOnce()) -> Result<Session, Refusal> {
        socket.set_nonblocking(true)?;
        self.prepare(socket)?;
        let mut wire = DeadlineStream::until_shut(socket, self.options.patience);
        preamble::exchange(&mut wire, Purpose::Hub)?;
        // The secret proves who may come in; without it, the other end has to be of this process's user.
        let same =
            if self.options.secret.is_some() { Ok(()) } else { check_other_end(socket, self.testbed()) };
        let met = same.and_then(|()| {
            proven();
            answer(&mut wire, &self.party(), |_| {})
        });
        if let Some(refusal) = met.as_ref().err().filter(|&why| *why != Refusal::Late) {
            turn_away(socket, refusal);
        }
        met.map(|(session, _)| session)
    }

    /// The member's side, whole. With `key`, the hub has to be the one that has it.
    pub(super) fn call(
        &self,
        address: &str,
        key: Option<Key>,
        stop: &Stop,
    ) -> Result<(Arc<TcpStream>, Session), Refusal> {
        let until = Instant::now() + self.options.patience;
        let mut refusal = Refusal::System("the name has no address".into());
        for address in address.to_socket_addrs()? {
            match self.call_one(address, key, until, stop) {
                Err(why) => refusal = why,
                met => return met,
            }
        }
        Err(if stop.is_set() { Refusal::Interrupted } else { refusal })
    }

    fn call_one(
        &self,
        address: SocketAddr,
        key: Option<Key>,
        until: Instant,
        stop: &Stop,
    ) -> Result<(Arc<TcpStream>, Session), Refusal> {
        if self.options.secret.is_none() {
            check_address(address, self.testbed())?;
        }
        let left = || until.saturating_duration_since(Instant::now());
        let unanswered = |refusal| if refusal == Refusal::Late { Refusal::Unanswered } else { refusal };
        let socket = connect(address, left(), stop).map_err(|e| unanswered(e.into()))?;
        self.prepare(&socket)?;
        let mut wire: Wire<'_> = DeadlineStream::new(&socket, left(), stop);
        preamble::exchange(&mut wire, Purpose::Hub).map_err(unanswered)?;
        if self.options.secret.is_none() {
            check_called(&socket, &mut wire, self.testbed())?;
        }
        let mut session = call(&mut wire, &self.party(), &[])?;
        if key.is_some_and(|key| key != session.key) {
            return Err(Refusal::OtherHub);
        }
        let welcome = greeting::read(&mut wire, Kind::Greeting, MAX_GREETING)?;
        session.open(&welcome)?;
        Ok((Arc::new(socket), session))
    }

    fn testbed(&self) -> Option<&str> {
        self.options.testbed.as_deref()
    }

    fn prepare(&self, socket: &TcpStream) -> io::Result<()> {
        shut_in_children(socket);
        socket.set_nodelay(true)?;
        cut_after(self.options.silence, socket)?;
        recover_soon(socket);
        Ok(())
    }
}

/// Tells a caller whose key is known that it is in. The kernel has room for so little, as nothing was written for long.
pub(super) fn welcome(socket: &TcpStream, session: &mut Session) -> Result<(), Refusal> {
    greeting::write(socket, Kind::Greeting, &session.seal(&[]))
}

/// Tells a caller why not, as far as it may know.
pub(super) fn turn_away(socket: &TcpStream, refusal: &Refusal) {
    let _ = greeting::write(socket, Kind::Refused, &[refusal.code()]);
}
