//! How two processes introduce themselves over TCP: a preamble each way, then a handshake if there is a secret, else a
//! look at whose process the other is (`same_user`) and a challenge to sign (`proof`); with it go who calls, who answers, which call this is and which of how many streams.
//!
//! Who calls tries again, after a pause, as long as it may: the called one may have had no room, or may not listen yet.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tweed_proto::late::Limits;

use crate::connect::admission::deadline_stream::{connect, DeadlineStream};
use crate::connect::admission::pending::Caller;
use crate::connect::admission::Keys;
use crate::connect::backoff::{seed, Backoff};
use crate::connect::connector::Connector;
use crate::connect::descriptor::{random_hex, PeerDescriptor};
use crate::connect::local_handshake::{read_challenge, read_greeting, Greeting};
use crate::connect::proof::Role;
use crate::connect::same_user::{check_address, check_called, check_other_end};
use crate::engine::live::Links;
use crate::framing::greeting::{self, Kind};
use crate::framing::preamble::{self, Purpose};
use crate::framing::{Refusal, MAX_GREETING};
use crate::link::sockopt;
use crate::link::stream::{Socket, Stream};
use crate::link::tcp_timeouts::{cut_after, recover_soon};
use crate::secure::{answer, call, Party, Sealed, Session};
use crate::sync::stop::Stop;

const MOST_STREAMS: u32 = 64;
/// So long a first call is left unanswered before it is made anew; each further one, half as long again as the one before.
/// The kernel's own repetitions come after one second, then after three, all callers' at once where many were dropped.
const FIRST_ANSWER: Duration = Duration::from_millis(1500);
/// So many times as long as it lets others take (`Limits::greet`), a caller tries or waits: what is lost again and again
/// comes after pauses of which each is twice as long as the one before, and that is no reason to do without a member.
pub(super) const PERSISTENCE: u32 = 4;
/// So many times as long, it waits for the called one to listen: that one hears which group it is in from a store that may
/// be behind the same network, over connections whose pauses are not ours to bound.
const NEWS: u32 = 12;

/// A connection whose introduction is over.
pub(crate) struct Link {
    pub(super) socket: Arc<TcpStream>,
    pub(super) session: Option<Session>,
    /// The process that hands on what is said, by its uid; `None`: it leads to the other end itself.
    pub(super) relay: Option<String>,
}

/// A call to a process: which one of this process's, and until when it may be tried.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) descriptor: &'a PeerDescriptor,
    pub(crate) attempt: u64,
    pub(crate) deadline: Instant,
    /// How long it is repeated while nothing answers.
    pub(crate) patience: Duration,
    pub(crate) stop: &'a Stop,
}

type Wire<'a> = DeadlineStream<'a, TcpStream>;

impl Connector {
    /// Calls a process, over all streams: the first shows that it can be reached, and the others follow at once. Over
    /// a network that loses packets each may take seconds.
    pub(crate) fn dial_wire(self: &Arc<Self>, call: &Call<'_>) -> Result<(), Refusal> {
        let mut links = vec![self.dial_stream(call, 0)?];
        std::thread::scope(|scope| {
            let dial = |stream| scope.spawn(move || self.dial_stream(call, stream));
            let dials: Vec<_> = (1..self.options.streams).map(dial).collect();
            dials.into_iter().try_for_each(|dial| {
                links.push(dial.join().expect("calls do not panic")?);
                Ok::<_, Refusal>(())
            })
        })?;
        self.link(call.descriptor, call.attempt, links).map(|_| ())
    }

    /// Makes a peer of who has proven to be that process.
    pub(crate) fn link(
        &self,
        descriptor: &PeerDescriptor,
        attempt: u64,
        links: Vec<Link>,
    ) -> Result<usize, Refusal> {
        let relay = links.first().and_then(|link| link.relay.clone());
        let streams = links.into_iter().map(Link::into_stream).collect::<io::Result<_>>()?;
        let leads = Links { streams, relay, ..Links::default() };
        self.add_peer((&descriptor.uid, attempt, descriptor.key()), &descriptor.host, leads)
    }

    fn dial_stream(&self, call: &Call<'_>, stream: u32) -> Result<Link, Refusal> {
        self.persist(call, stream, |answer| self.dial_once(call, stream, answer))
    }

    /// Makes a connection by `dial`, again and again where that may help. It is told how long the called one may take until
    /// it shows that it is there.
    pub(super) fn persist<L>(
        &self,
        call: &Call<'_>,
        stream: u32,
        dial: impl Fn(Duration) -> Result<L, Refusal>,
    ) -> Result<L, Refusal> {
        let mut backoff = Backoff::new(seed(&[&self.descriptor.uid, &call.descriptor.uid], stream));
        let (begin, greet) = (Instant::now(), self.limits().greet);
        let mut answer = FIRST_ANSWER;
        loop {
            let refusal = match dial(answer.min(greet)) {
                Ok(link) => return Ok(link),
                Err(refusal) => refusal,
            };
            let may = match &refusal {
                Refusal::HungUp | Refusal::Crowd => true,
                // Where more call than can wait, the kernel drops some, and all that it has dropped come back at once.
                Refusal::Unanswered => begin.elapsed() < call.patience,
                // Without a secret, a process listens only once it knows that its group needs it to.
                Refusal::Deaf => self.keys.is_none() && begin.elapsed() < NEWS * greet,
                _ => false,
            };
            if !may || !call.stop.sleep(backoff.next_pause(), call.deadline) {
                return Err(refusal);
            }
            answer = answer.mul_f64(1.5);
        }
    }

    fn dial_once(&self, to: &Call<'_>, stream: u32, answer: Duration) -> Result<Link, Refusal> {
        let socket = self.connect_to(to, answer)?;
        self.introduce(socket, to, answer, self.greeting(stream, self.options.streams.max(1)))
    }

    /// A connection over which nothing is said yet.
    pub(super) fn connect_to(&self, to: &Call<'_>, answer: Duration) -> Result<TcpStream, Refusal> {
        let address = to.descriptor.tcp.ok_or(Refusal::Silent)?;
        if self.keys.is_none() {
            check_address(address, self.testbed())?;
        }
        let answer = answer.min(to.deadline.saturating_duration_since(Instant::now()));
        let socket = connect(address, answer, to.stop).map_err(|e| unanswered(e.into()))?;
        self.prepare(&socket)?;
        Ok(socket)
    }

    /// Introduces this process to the one that is called, who may take `answer` until it shows that it is there.
    pub(super) fn introduce(
        &self,
        socket: TcpStream,
        to: &Call<'_>,
        answer: Duration,
        greeting: Greeting,
    ) -> Result<Link, Refusal> {
        let left = to.deadline.saturating_duration_since(Instant::now());
        // A kernel whose queue is full may take the call, and forget it.
        let mut wire = DeadlineStream::new(&socket, answer.min(left), to.stop);
        preamble::exchange(&mut wire, Purpose::ranks(self.keys.is_some())).map_err(unanswered)?;
        if self.keys.is_none() {
            check_called(&socket, &mut wire, self.testbed())?;
        }
        // Who is greeted may hold this connection as good before its answer comes here, so it is not dropped for another.
        let mut wire = DeadlineStream::new(&socket, left.min(PERSISTENCE * self.limits().greet), to.stop);
        let greeting = Greeting { attempt: to.attempt, ..greeting };
        let (answer, session) = match &self.keys {
            None => (call_in_the_clear(&mut wire, to.descriptor, greeting)?, None),
            Some(keys) => {
                let (answer, session) = call_sealed(&mut wire, keys, to.descriptor, &greeting)?;
                (answer, Some(session))
            }
        };
        if answer.uid != to.descriptor.uid {
            return Err(Refusal::Stranger);
        }
        Ok(Link { socket: Arc::new(socket), session, relay: None })
    }

    /// Answers a caller, and keeps it pending until a group names it, or joins it with whom it has called for. `proven` is
    /// called once it has shown that it is a tweed of our kind.
    pub(crate) fn admit_wire(&self, socket: Arc<TcpStream>, proven: impl FnOnce()) -> Result<(), Refusal> {
        socket.set_nonblocking(true)?;
        self.prepare(&socket)?;
        let mut wire = DeadlineStream::until_shut(&*socket, self.limits().greet);
        let (mut greeting, session) = self.hear(&socket, &mut wire, proven)?;
        match greeting.relay_to.take() {
            Some(to) => self.relay.enter((&greeting.uid, &to), socket),
            None => self.keep_pending(greeting, Link { socket, session, relay: None }),
        }
    }

    /// Hears a caller out, and answers.
    pub(super) fn hear(
        &self,
        socket: &TcpStream,
        wire: &mut Wire<'_>,
        proven: impl FnOnce(),
    ) -> Result<(Greeting, Option<Session>), Refusal> {
        preamble::exchange(&mut *wire, Purpose::ranks(self.keys.is_some()))?;
        // The secret proves who belongs to the run; without it, the other end has to be of this process's user.
        let same = if self.keys.is_some() { Ok(()) } else { check_other_end(socket, self.testbed()) };
        let greeted = same.and_then(|()| {
            proven();
            self.answer_caller(wire)
        });
        // Who was late is told nothing: to a caller that is hung up on, another call is worth a try.
        if let Some(refusal) = greeted.as_ref().err().filter(|&why| *why != Refusal::Late) {
            let _ = greeting::write(wire, Kind::Refused, &[refusal.code()]);
        }
        greeted
    }

    /// A link that was introduced waits for a group that names its caller.
    pub(super) fn keep_pending(&self, greeting: Greeting, link: Link) -> Result<(), Refusal> {
        let Greeting { uid, attempt, stream, streams, .. } = greeting;
        let caller = Caller { uid: uid.clone(), key: link.session.as_ref().map(|s| s.key) };
        self.give_up_before((&uid, attempt), caller.key.as_ref());
        let entered = self.pending.lock().enter(caller, attempt, (stream, streams), link);
        self.met.notify_all();
        entered
    }

    fn answer_caller(&self, wire: &mut Wire<'_>) -> Result<(Greeting, Option<Session>), Refusal> {
        let Some(keys) = &self.keys else { return Ok((self.answer_in_the_clear(wire)?, None)) };
        let suspect = |key| {
            self.pending.lock().suspect(key);
            self.met.notify_all();
        };
        let (mut session, text) = answer(&mut *wire, &keys.party(), suspect)?;
        let theirs = checked(read_greeting(&text)?)?;
        let ours = session.seal(&self.greeting(theirs.stream, theirs.streams).encode());
        greeting::write(wire, Kind::Greeting, &ours)?;
        Ok((theirs, Some(session)))
    }

    fn answer_in_the_clear(&self, wire: &mut Wire<'_>) -> Result<Greeting, Refusal> {
        let challenge = random_hex()?;
        greeting::write(&mut *wire, Kind::Challenge, challenge.as_bytes())?;
        let theirs = checked(read_greeting(&greeting::read(&mut *wire, Kind::Greeting, MAX_GREETING)?)?)?;
        let transcript = theirs.transcript(&self.descriptor, &challenge);
        if !transcript.verify(Role::Caller, &theirs.proof) {
            return Err(Refusal::Stranger);
        }
        let ours = self.greeting(theirs.stream, theirs.streams);
        let ours = Greeting { proof: transcript.sign(Role::Called), ..ours };
        greeting::write(wire, Kind::Greeting, &ours.encode())?;
        Ok(theirs)
    }

    pub(super) fn greeting(&self, stream: u32, streams: u32) -> Greeting {
        Greeting { stream, streams, ..Greeting::new(&self.descriptor.uid, &self.descriptor.host) }
    }

    fn testbed(&self) -> Option<&str> {
        self.options.admission.testbed.as_deref()
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
        Party { secret: &self.secret, identity: &self.identity, prologue: preamble::encode(Purpose::Sealed) }
    }
}

impl Link {
    /// The connection alone.
    pub(super) fn into_socket(self) -> io::Result<TcpStream> {
        // The listener may not have let go of it yet.
        Arc::try_unwrap(self.socket).or_else(|shared| shared.try_clone())
    }

    fn into_stream(mut self) -> io::Result<Arc<Stream>> {
        let session = self.session.take();
        let socket = self.into_socket()?;
        socket.set_nonblocking(true)?;
        let socket = mio::net::TcpStream::from_std(socket);
        Ok(Arc::new(Stream::new(match session {
            None => Socket::Tcp(socket),
            Some(session) => Socket::Sealed(Box::new(Sealed::new(socket, session))),
        })))
    }
}

/// That nothing is heard of the called one at all.
fn unanswered(refusal: Refusal) -> Refusal {
    if refusal == Refusal::Late {
        Refusal::Unanswered
    } else {
        refusal
    }
}

/// Proves itself by the secret, and has the called one prove its key.
fn call_sealed(
    wire: &mut Wire<'_>,
    keys: &Keys,
    descriptor: &PeerDescriptor,
    greeting: &Greeting,
) -> Result<(Greeting, Session), Refusal> {
    let mut session = call(&mut *wire, &keys.party(), &greeting.encode())?;
    if Some(session.key) != descriptor.key() {
        return Err(Refusal::Key);
    }
    let sealed = greeting::read(wire, Kind::Greeting, 2 * MAX_GREETING)?;
    let answer = read_greeting(&session.open(&sealed)?)?;
    Ok((answer, session))
}

/// Proves to have read the called one's descriptor, and has it prove that the descriptor is its own.
fn call_in_the_clear(
    wire: &mut Wire<'_>,
    descriptor: &PeerDescriptor,
    mut greeting: Greeting,
) -> Result<Greeting, Refusal> {
    let challenge = read_challenge(&mut *wire)?;
    greeting.challenge = random_hex()?;
    let unsigned = greeting.clone();
    let transcript = unsigned.transcript(descriptor, &challenge);
    greeting.proof = transcript.sign(Role::Caller);
    greeting::write(&mut *wire, Kind::Greeting, &greeting.encode())?;
    let answer = read_greeting(&greeting::read(wire, Kind::Greeting, MAX_GREETING)?)?;
    if !transcript.verify(Role::Called, &answer.proof) {
        return Err(Refusal::Stranger);
    }
    Ok(answer)
}

/// Its streams make sense.
fn checked(theirs: Greeting) -> Result<Greeting, Refusal> {
    if theirs.stream >= theirs.streams || theirs.streams > MOST_STREAMS {
        return Err(Refusal::Garbled("a greeting"));
    }
    Ok(theirs)
}
