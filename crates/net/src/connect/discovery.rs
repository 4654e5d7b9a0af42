//! How a process makes another one its peer: over a local socket, or over wires.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tweed_proto::engine::members::{Members, Tuning};
use tweed_proto::engine::{EngineError, Event, Peer};
use tweed_proto::Reach;

use crate::connect::admission::deadline_stream::DeadlineStream;
use crate::connect::agreement::Agreement;
use crate::connect::backoff::{seed, Backoff};
use crate::connect::connector::Connector;
use crate::connect::descriptor::PeerDescriptor;
use crate::connect::invite::GroupPeers;
use crate::connect::local_handshake::{dial_local, Greeting, LocalHandshake};
use crate::connect::meeting::Meeting;
use crate::connect::options::{GroupSpec, Turn};
use crate::connect::same_user::check_neighbour;
use crate::connect::tcp_handshake::Call;
use crate::engine::live::{Links, Shared};
use crate::engine::peer_status::PeerStatus;
use crate::engine::watcher::Watch;
use crate::framing::Refusal;
use crate::link::sockopt::credentials;
use crate::link::stream::{Socket, Stream};
use crate::secure::Key;
use crate::sync::stop::SLICE;
use crate::sync::MutexGuard;

const CALLED_ANEW: &str = "it has called anew, so its connection broke";
/// Longer than anybody waits: deadlines stay within what the clock can count.
const AGES: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

impl Connector {
    fn handshake(&self) -> LocalHandshake<'_> {
        LocalHandshake {
            arena: &self.driver.arena,
            page: self.driver.page,
            own: &self.descriptor,
            secret: self.keys.as_ref().map(|k| &k.secret),
        }
    }

    /// Finds all members of a group; `interrupted` is asked in short intervals, and ends it. For `turn`, see `Meeting`.
    pub(crate) fn meet_all(
        self: &Arc<Self>,
        spec: &GroupSpec,
        interrupted: &dyn Fn() -> bool,
        turn: Option<&Turn<'_>>,
    ) -> Result<(Members, Vec<PeerStatus>), EngineError> {
        let decode = |(rank, bytes): (usize, &Vec<u8>)| PeerDescriptor::decode(rank, bytes);
        let descriptors = spec.descriptors.iter().enumerate().map(decode).collect::<Result<Vec<_>, _>>()?;
        let GroupSpec { name, epoch, rank, timeout, .. } = spec;
        let known = Agreement { group: name, rank: *rank, descriptors: &descriptors, missing: &spec.missing };
        known.check(&self.descriptor, |uid| self.find(uid).is_some())?;
        let (now, after) = (Instant::now(), self.options.limits(spec.timeout).fail);
        let deadline = now.checked_add(after).unwrap_or(now + AGES);
        let peers = Meeting { connector: self, known: &known, deadline, interrupted, turn }.run()?;
        let reach = self.reach_of(&descriptors, &peers);
        let members = GroupPeers { group: name, peers: &peers, reach: &reach, deadline, interrupted };
        let packets = spec.config.ltp.as_ref().map(|ltp| self.invite_members(ltp, &members)).transpose()?;
        // All ranks must cut buffers alike, so the slowest kind of link anywhere in the group decides.
        let has_wires = descriptors
            .iter()
            .any(|a| descriptors.iter().any(|b| a.uid != b.uid && !a.shares_memory_with(b)));
        let tuning = match &spec.config.ltp {
            _ if !has_wires => Tuning::SHARED,
            Some(_) => Tuning::PACKETS,
            None => Tuning::WIRE,
        };
        let status = descriptors.iter().map(|c| c.status(&self.descriptor)).collect();
        let members = Members {
            number: spec.number(),
            epoch: *epoch,
            name: name.clone(),
            rank: *rank,
            peers,
            reach,
            has_wires,
            tuning,
            timeout: *timeout,
            config: spec.config.clone(),
            endpoint: packets,
        };
        Ok((members, status))
    }

    /// How each rank is reached, by its descriptor and its peer.
    fn reach_of(&self, descriptors: &[PeerDescriptor], peers: &[usize]) -> Vec<Reach> {
        let engine = self.driver.engine.lock();
        let reach = |(descriptor, &peer): (&PeerDescriptor, &usize)| match engine.host.links.get(peer) {
            _ if !self.descriptor.is_far(descriptor) => Reach::Shared,
            Some(links) if links.relay.is_some() => Reach::Relayed,
            _ => Reach::Wire,
        };
        descriptors.iter().zip(peers).map(reach).collect()
    }

    /// Waits for its turn: groups are joined one at a time.
    pub(crate) fn joining(&self, interrupted: &dyn Fn() -> bool) -> Result<MutexGuard<'_, ()>, EngineError> {
        loop {
            match self.joining.try_lock() {
                Some(guard) => return Ok(guard),
                None if interrupted() => {
                    let why = "interrupted while another thread joined another group";
                    return Err(EngineError::Aborted(why.into()));
                }
                None => std::thread::sleep(SLICE / 10),
            }
        }
    }

    /// The link to that process that stands. One that was lost never comes back: both ends meet anew.
    pub(crate) fn find(&self, uid: &str) -> Option<usize> {
        let peer = self.directory.lock().find(uid)?.peer;
        let engine = self.driver.engine.lock();
        engine.peers.get(peer).is_some_and(|p| p.uid == uid && p.lost.is_none()).then_some(peer)
    }

    /// Of two processes, exactly one calls the other.
    pub(crate) fn calls(&self, descriptor: &PeerDescriptor) -> bool {
        if self.descriptor.shares_memory_with(descriptor) {
            return self.descriptor.uid < descriptor.uid;
        }
        self.descriptor.dials(descriptor) == Some(true)
    }

    /// Calls a process of this host; again, if a crowd there took its place.
    pub(crate) fn dial_neighbour(self: &Arc<Self>, call: &Call<'_>) -> Result<(), Refusal> {
        let mut backoff = Backoff::new(seed(&[&self.descriptor.uid, &call.descriptor.uid], 0));
        let begin = Instant::now();
        loop {
            let called = self.dial_neighbour_once(call);
            let again = called == Err(Refusal::HungUp) && begin.elapsed() < self.limits().greet;
            if !again || !call.stop.sleep(backoff.next_pause(), call.deadline) {
                return called;
            }
        }
    }

    fn dial_neighbour_once(&self, call: &Call<'_>) -> Result<(), Refusal> {
        let socket = dial_local(&call.descriptor.local)?;
        crate::link::fork::shut_in_children(&socket);
        check_neighbour(&socket)?;
        let mut wire = DeadlineStream::new(&socket, self.limits().greet, call.stop);
        let shared = self.handshake().call(&mut wire, call.descriptor, call.attempt)?;
        self.add_neighbour((&call.descriptor.uid, call.attempt), &call.descriptor.host, shared, socket)
    }

    /// Answers a process of this host that has called and was challenged. `proven` is called once it has proven that it may.
    pub(super) fn answer_neighbour(
        &self,
        socket: &UnixStream,
        challenge: &str,
        proven: impl FnOnce(),
    ) -> Result<(Greeting, Shared), Refusal> {
        let mut wire = DeadlineStream::until_shut(socket, self.limits().greet);
        self.handshake().answer(&mut wire, challenge, proven)
    }

    pub(super) fn add_neighbour(
        &self,
        (uid, attempt): (&str, u64),
        host: &str,
        shared: Shared,
        socket: UnixStream,
    ) -> Result<(), Refusal> {
        let pid = credentials(&socket).ok().map(|c| c.pid as u32).filter(|&pid| pid > 0);
        let stream = Stream::new(Socket::Local(mio::net::UnixStream::from_std(socket)));
        let links = Links { shared: Some(shared), streams: vec![Arc::new(stream)], ..Links::default() };
        let peer = self.add_peer((uid, attempt, None), host, links)?;
        if let Some(pid) = pid.filter(|&pid| pid != self.driver.process) {
            self.driver.watcher.watch(Watch::Process(peer, pid));
        }
        Ok(())
    }

    /// Makes a peer of the process `uid`, whose link was made by the call `attempt`. A link that this one replaces is
    /// broken: nobody calls again while his link stands.
    pub(crate) fn add_peer(
        &self,
        (uid, attempt, key): (&str, u64, Option<Key>),
        host: &str,
        links: Links,
    ) -> Result<usize, Refusal> {
        let (shared, streams) = (links.shared.is_some(), links.streams.clone());
        let mut engine = self.driver.engine.lock();
        let index = engine.peers.len();
        let replaced =
            self.directory.lock().enter(uid, index, (attempt, key)).map_err(|_| Refusal::Outdated)?;
        engine.peers.add(Peer::new(uid.to_owned(), host.to_owned(), shared, streams.len()));
        engine.host.links.push(links);
        drop(engine);
        for (place, stream) in streams.into_iter().enumerate() {
            self.driver.watcher.watch(Watch::Stream(index, place, stream));
        }
        self.note_attempt(attempt);
        if let Some(old) = replaced {
            self.driver.enqueue(Event::Lost(old, CALLED_ANEW.into()));
        }
        self.notify_met();
        self.driver.ring();
        Ok(index)
    }

    /// That process has begun a later call, and has proven that it is the one: the link that an earlier call of its had
    /// made is broken at its end.
    pub(crate) fn give_up_before(&self, (uid, attempt): (&str, u64), key: Option<&Key>) {
        let mut directory = self.directory.lock();
        let same = directory.find(uid).is_some_and(|known| known.key.as_ref() == key);
        let old = if same { directory.give_up(uid, attempt.saturating_sub(1)) } else { None };
        drop(directory);
        if let Some(old) = old {
            self.driver.post(Event::Lost(old, CALLED_ANEW.into()));
        }
    }
}
