//! All links of a process to its hub or its members, and whoever waits for what comes over them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token, Waker};
use tweed_proto::engine::EngineError;
use tweed_proto::hub::{Body, Key, Roster};

use super::introduction::{turn_away, welcome, HubOptions, Introductions};
use super::stream::{Scratch, Stream, Turn};
use crate::connect::admission::listener::{listening_thread, Admitting, Listener};
use crate::connect::admission::Refusals;
use crate::connect::same_user::check_address;
use crate::framing::Refusal;
use crate::link::sockopt::tcp_info;
use crate::secure::{Held, Identity, Session};
use crate::sync::stop::{Stop, SLICE};
use crate::sync::{LockRank, Mutex};

const WAKE: Token = Token(usize::MAX);
/// So much is handed over at a time; the rest waits with the kernel.
const MOST_EVENTS: usize = 1024;
const MOST_EVENT_BYTES: usize = 16 << 20;

/// Who may be a member.
#[derive(Clone, Debug)]
pub struct Admitted {
    /// These alone; `None`: whoever has the secret.
    pub keys: Option<BTreeSet<Key>>,
    /// So many at a time.
    pub most: usize,
}

/// What has happened on a link.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// It stands; whoever has this key is at its other end.
    Joined(u64, Key),
    /// A message has come.
    Message(u64, Vec<u8>),
    /// It has ended, and why.
    Left(u64, String),
    /// Somebody called [`HubLinks::wake`].
    Woken,
}

struct Link {
    key: Key,
    stream: Stream,
}

#[derive(Default)]
struct State {
    links: BTreeMap<u64, Link>,
    entered: u64,
    roster: Roster,
    events: VecDeque<Event>,
    event_bytes: usize,
    /// Bytes of messages that had not come whole when their links ended.
    unfinished: u64,
    /// Where something may have come in.
    readable: BTreeSet<u64>,
    /// Where something was entered and not written.
    entered_only: Vec<u64>,
    /// Whose turn was the last one.
    last_read: u64,
    scratch: Scratch,
}

impl State {
    /// A new link, of which nothing has been read.
    fn enter(&mut self, key: Key, stream: Stream, registry: &Registry) -> io::Result<u64> {
        let number = self.entered;
        let socket = stream.socket.as_raw_fd();
        let interest = Interest::READABLE | Interest::WRITABLE;
        registry.register(&mut SourceFd(&socket), Token(number as usize), interest)?;
        self.links.insert(number, Link { key, stream });
        self.readable.insert(number);
        self.events.push_back(Event::Joined(number, key));
        Ok(number)
    }

    /// Ends a link, if it stands.
    fn end(&mut self, number: u64, why: &str, registry: &Registry) {
        let Some(link) = self.links.remove(&number) else { return };
        self.unfinished += link.stream.come() as u64;
        let _ = registry.deregister(&mut SourceFd(&link.stream.socket.as_raw_fd()));
        let _ = link.stream.socket.shutdown(Shutdown::Both);
        self.readable.remove(&number);
        self.roster.leave(&link.key, number);
        self.events.push_back(Event::Left(number, why.into()));
    }

    /// Does something with a link, which ends if that fails: what it has said before is heard.
    fn with(&mut self, number: u64, registry: &Registry, act: impl FnOnce(&mut Stream) -> io::Result<()>) {
        let Some(link) = self.links.get_mut(&number) else { return };
        if let Err(error) = act(&mut link.stream) {
            let _ = self.read_one(number);
            self.end(number, &in_words(&error), registry);
        }
    }

    /// Writes what was only entered.
    fn write_entered(&mut self, registry: &Registry) {
        for number in std::mem::take(&mut self.entered_only) {
            self.with(number, registry, Stream::write);
        }
    }

    /// Reads where something has come, a turn each, as long as there is room for it: from the one on that follows who had
    /// the last turn, or one that never stops would keep those behind it from being heard.
    fn read(&mut self, registry: &Registry) {
        let mut first = std::mem::take(&mut self.readable);
        let next = first.split_off(&(self.last_read + 1));
        for number in next.into_iter().chain(first) {
            if self.events.len() >= MOST_EVENTS || self.event_bytes >= MOST_EVENT_BYTES {
                self.readable.insert(number);
                continue;
            }
            self.last_read = number;
            match self.read_one(number) {
                Ok(Turn::Drained) => {}
                Ok(Turn::More) => drop(self.readable.insert(number)),
                Err(error) => self.end(number, &in_words(&error), registry),
            }
        }
    }

    fn read_one(&mut self, number: u64) -> io::Result<Turn> {
        let Some(link) = self.links.get_mut(&number) else { return Ok(Turn::Drained) };
        let (events, bytes) = (&mut self.events, &mut self.event_bytes);
        link.stream.read(&mut self.scratch, |message| {
            *bytes += message.len();
            events.push_back(Event::Message(number, message));
        })
    }
}

struct Shared {
    introductions: Introductions,
    state: Mutex<State>,
    registry: Registry,
    waker: Waker,
    refusals: Refusals,
}

/// See the module. Calls may come from any thread.
pub struct HubLinks {
    shared: Arc<Shared>,
    poll: Mutex<(Poll, Events)>,
    listening: Mutex<Option<(Arc<Listener>, JoinHandle<()>)>>,
    closed: AtomicBool,
    key_file: Mutex<Option<Held>>,
    process: u32,
}

impl HubLinks {
    /// Has a key, and no link yet.
    pub fn open(options: HubOptions) -> Result<HubLinks, EngineError> {
        let introductions = Introductions::open(options)?;
        let held = introductions.options.key_file.as_deref().map(Identity::hold).transpose()?;
        let opened = || {
            crate::link::fork::install()?;
            let poll = Poll::new()?;
            let (registry, waker) = (poll.registry().try_clone()?, Waker::new(poll.registry(), WAKE)?);
            let state = Mutex::new(LockRank::HubState, State::default());
            let shared = Shared { introductions, state, registry, waker, refusals: Refusals::default() };
            let poll = Mutex::new(LockRank::HubPoll, (poll, Events::with_capacity(1024)));
            let listening = Mutex::new(LockRank::HubListening, None);
            let (closed, process) = (AtomicBool::new(false), std::process::id());
            let key_file = Mutex::new(LockRank::HubKeyFile, held);
            Ok(HubLinks { shared: Arc::new(shared), poll, listening, closed, key_file, process })
        };
        opened().map_err(|e: io::Error| {
            EngineError::setup("links of a hub cannot be opened", crate::system_error::in_words(&e))
        })
    }

    /// This process's own key.
    pub fn key(&self) -> Key {
        self.shared.introductions.key()
    }

    /// Lets members call at `address`. Returns it, with the port if it was 0. Without a secret that is loopback, or an
    /// address in the network namespace that is a testbed's. The thread that listens has a name for people, such as "hub".
    pub fn listen(&self, address: SocketAddr, name: &str) -> Result<SocketAddr, EngineError> {
        self.check_process()?;
        let HubOptions { secret, testbed, .. } = &self.shared.introductions.options;
        if secret.is_none() && check_address(address, testbed.as_deref()).is_err() {
            return Err(EngineError::Usage(format!(
                "without a secret nothing listens on {address}, where strangers could call: give it and those that call the same \
                 secret, as TWEED_SECRET (make one with: openssl rand -hex 32), or let it listen on 127.0.0.1"
            )));
        }
        let failed = |e| EngineError::setup(&format!("the hub cannot listen on {address}"), e);
        let mut listening = self.listening.lock();
        if listening.is_some() {
            return Err(EngineError::Usage("the hub listens already".into()));
        }
        let listener = Arc::new(Listener::bind(address, true).map_err(failed)?);
        listener.listen().map_err(failed)?;
        let bound = listener.address().map_err(failed)?;
        let (one, admitting) = (Arc::clone(&listener), Arc::clone(&self.shared));
        let thread = listening_thread(name, bound).spawn(move || one.run(&admitting));
        *listening = Some((listener, thread.map_err(failed)?));
        Ok(bound)
    }

    /// Calls a hub at `host:port`, once. Ends early when `interrupted` holds, which is asked on this thread, or the links are
    /// closed.
    pub fn call(
        &self,
        address: &str,
        key: Option<Key>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<u64, EngineError> {
        self.check_process()?;
        self.dial(address, key, interrupted).map_err(|refusal| {
            let text = format!("no link to the hub at {address}: {refusal}");
            if refusal.is_final() {
                EngineError::Usage(text)
            } else {
                EngineError::PeerLost(text)
            }
        })
    }

    /// As `call`, for those that act by why there is no link.
    pub(crate) fn dial(
        &self,
        address: &str,
        key: Option<Key>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<u64, Refusal> {
        let (stop, introductions) = (Stop::default(), &self.shared.introductions);
        let (socket, session) = std::thread::scope(|scope| {
            let caller = scope.spawn(|| introductions.call(address, key, &stop));
            while !caller.is_finished() {
                if interrupted() || self.closed.load(Ordering::Relaxed) {
                    stop.set();
                }
                std::thread::sleep(SLICE / 10);
            }
            caller.join().expect("calls do not panic")
        })?;
        let key = session.key;
        let stream = Stream::new(socket, session, introductions.options.bounds());
        let mut state = self.shared.state.lock();
        if self.closed.load(Ordering::Relaxed) {
            return Err(Refusal::System("this process has closed its links".into()));
        }
        state.entered += 1;
        Ok(state.enter(key, stream, &self.shared.registry)?)
    }

    /// Who is at the other end of a link that stands.
    pub fn key_of(&self, link: u64) -> Option<Key> {
        self.shared.state.lock().links.get(&link).map(|found| found.key)
    }

    /// Waits for something to happen, for at most `patience`, and does what there is to do for all links meanwhile.
    pub fn next(&self, patience: Duration) -> Result<Vec<Event>, EngineError> {
        self.check_process()?;
        let until = Instant::now() + patience;
        let mut waiting = self.poll.lock();
        let (poll, events) = &mut *waiting;
        let mut asked = false;
        loop {
            let mut state = self.shared.state.lock();
            state.write_entered(&self.shared.registry);
            state.read(&self.shared.registry);
            let left = until.saturating_duration_since(Instant::now());
            // The kernel is asked once even if there is no time to wait.
            if !state.events.is_empty() || (left.is_zero() && asked) {
                state.event_bytes = 0;
                return Ok(state.events.drain(..).collect());
            }
            asked = true;
            let pause = if state.readable.is_empty() { left } else { Duration::ZERO };
            drop(state);
            match poll.poll(events, Some(pause)) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(Vec::new()),
                polled => polled.map_err(|e| EngineError::setup("links cannot be waited for", e))?,
            }
            let mut state = self.shared.state.lock();
            for event in events.iter().filter(|event| event.token() != WAKE) {
                let number = event.token().0 as u64;
                if event.is_writable() {
                    state.with(number, &self.shared.registry, Stream::write);
                }
                if event.is_readable() && state.links.contains_key(&number) {
                    state.readable.insert(number);
                }
            }
        }
    }

    /// Sends a message, as far as the link stands: who is not there hears nothing, and `next` tells that it has left.
    pub fn send(&self, link: u64, head: &[u8], body: Option<Body>) {
        let mut state = self.shared.state.lock();
        state.with(link, &self.shared.registry, |stream| stream.send(head, body));
    }

    /// Enters a message that leaves with the next one over this link, in one piece, or as soon as somebody calls `next`.
    pub fn enter(&self, link: u64, head: &[u8], body: Option<Body>) {
        let mut state = self.shared.state.lock();
        state.with(link, &self.shared.registry, |stream| stream.enter(head, body));
        state.entered_only.push(link);
    }

    /// Messages over this link may be so long from now on.
    pub fn allow(&self, link: u64, most: u64) {
        if let Some(link) = self.shared.state.lock().links.get_mut(&link) {
            link.stream.allow(most);
        }
    }

    /// How long a message and its answer take on the way when nothing else is on it, as the kernel has measured it.
    pub fn round_trip(&self, link: u64) -> Option<Duration> {
        let state = self.shared.state.lock();
        let info = tcp_info(&*state.links.get(&link)?.stream.socket).ok()?;
        // All ones: not yet.
        (info.tcpi_min_rtt != u32::MAX).then(|| Duration::from_micros(info.tcpi_min_rtt.into()))
    }

    /// Bytes of what was sent that the other end's kernel does not have yet.
    pub fn unacknowledged(&self, link: u64) -> Option<u64> {
        self.shared.state.lock().links.get(&link)?.stream.unacknowledged().ok()
    }

    /// Ends a link.
    pub fn cut(&self, link: u64, why: &str) {
        self.shared.state.lock().end(link, why, &self.shared.registry);
    }

    /// Whoever waits in `next`, or does so next, comes back.
    pub fn wake(&self) {
        let mut state = self.shared.state.lock();
        if state.events.back() != Some(&Event::Woken) {
            state.events.push_back(Event::Woken);
        }
        drop(state);
        let _ = self.shared.waker.wake();
    }

    /// How long the last message over this link took to come, from its first byte on.
    pub fn took(&self, link: u64) -> Duration {
        self.shared.state.lock().links.get(&link).map_or(Duration::ZERO, |link| link.stream.took)
    }

    /// How many bytes have come of the message that comes now over this link, as far as `next` has read.
    pub fn come(&self, link: u64) -> usize {
        self.shared.state.lock().links.get(&link).map_or(0, |link| link.stream.come())
    }

    /// Bytes of messages that had not come whole when their links ended.
    pub fn unfinished(&self) -> u64 {
        self.shared.state.lock().unfinished
    }

    /// How many links, or whether this one, have something to send that the kernel has not taken.
    pub fn unsent(&self, only: Option<u64>) -> usize {
        let mut state = self.shared.state.lock();
        let asked = state.links.iter_mut().filter(|(number, _)| only.is_none_or(|only| only == **number));
        asked.filter_map(|(_, link)| (!link.stream.is_flushed()).then_some(())).count()
    }

    /// Who may come from now on; who is in and may not be is cut off.
    pub fn admit(&self, admitted: Admitted) {
        let mut state = self.shared.state.lock();
        for link in state.roster.admit(admitted.keys, admitted.most) {
            state.end(link, "it is not on the list of members", &self.shared.registry);
        }
        let _ = self.shared.waker.wake();
    }

    /// Nobody with this key comes any more, and who is in is cut off.
    pub fn expel(&self, key: &Key) {
        let mut state = self.shared.state.lock();
        if let Some(link) = state.roster.expel(key) {
            state.end(link, "it was expelled", &self.shared.registry);
        }
        let _ = self.shared.waker.wake();
    }

    /// How many callers were turned away, by reason.
    pub fn refused(&self) -> Vec<(&'static str, u64)> {
        self.shared.refusals.counts()
    }

    /// Nobody comes in any more, and all links end.
    pub fn close(&self) {
        if self.check_process().is_err() {
            return;
        }
        if let Some((listener, thread)) = self.listening.lock().take() {
            listener.close();
            let _ = thread.join();
        }
        let mut state = self.shared.state.lock();
        self.closed.store(true, Ordering::Relaxed);
        let numbers: Vec<u64> = state.links.keys().copied().collect();
        numbers
            .into_iter()
            .for_each(|link| state.end(link, "this process has closed it", &self.shared.registry));
        drop(self.key_file.lock().take());
        drop(state);
        let _ = self.shared.waker.wake();
    }

    fn check_process(&self) -> Result<(), EngineError> {
        if self.process == std::process::id() {
            return Ok(());
        }
        Err(EngineError::Forked(format!(
            "the links to a hub or its members are those of process {}, of which this one is a fork: open them after the fork",
            self.process
        )))
    }
}

impl Drop for HubLinks {
    fn drop(&mut self) {
        self.close();
        // In a fork the thread and the key file are the parent's.
        std::mem::forget(self.listening.get_mut().take());
        std::mem::forget(self.key_file.get_mut().take());
    }
}

impl Admitting for Shared {
    fn patience(&self) -> Duration {
        self.introductions.options.patience
    }

    fn admit(&self, socket: Arc<TcpStream>, proven: impl FnOnce()) -> Result<(), Refusal> {
        let session = self.introductions.answer(&socket, proven)?;
        self.take_in(&socket, session).inspect_err(|refusal| turn_away(&socket, refusal))?;
        let _ = self.waker.wake();
        Ok(())
    }

    fn refuse(&self, who: &str, refusal: &Refusal) {
        self.refusals.tell(who, refusal);
    }
}

impl Shared {
    /// Makes a link of a caller that has proven its key, if it may come in.
    fn take_in(&self, socket: &Arc<TcpStream>, mut session: Session) -> Result<(), Refusal> {
        let (key, mut state) = (session.key, self.state.lock());
        state.entered += 1;
        let number = state.entered;
        if let Some(older) = state.roster.enter(key, number).map_err(Refusal::Member)? {
            state.end(older, "it has called anew", &self.registry);
        }
        let entered = welcome(socket, &mut session).and_then(|()| {
            let stream = Stream::new(Arc::clone(socket), session, self.introductions.options.bounds());
            Ok(state.enter(key, stream, &self.registry)?)
        });
        if entered.is_err() {
            state.roster.leave(&key, number);
        }
        entered.map(drop)
    }
}

/// How a link has ended, for people.
fn in_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "it hung up".into(),
        _ => error.to_string(),
    }
}
