//! How a process comes to know the others: it calls some, the others call it, and of each pair one dials.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tweed_proto::engine::members::{Members, Tuning, SELF};
use tweed_proto::engine::{EngineError, Peer};
use tweed_proto::late::Limits;
use tweed_proto::Reach;

use crate::connect::admission::pending::Caller;
use crate::connect::admission::Refusal;
use crate::connect::agreement::Agreement;
use crate::connect::descriptor::PeerDescriptor;
use crate::connect::local_handshake::{dial_local, Home};
use crate::connect::peer_status::PeerStatus;
use crate::engine::live::{Links, Shared};
use crate::engine::watcher::Watch;
use crate::link::stream::{Socket, Stream};
use crate::ltp::endpoints::GroupPeers;
use crate::node::GroupSpec;
use crate::state::{lock, Inner};

impl Inner {
    /// How long introductions and silent wires may take.
    pub(crate) fn limits(&self) -> Limits {
        self.options.limits(Duration::MAX)
    }

    fn home(&self) -> Home<'_> {
        Home {
            arena: &self.arena,
            page: self.page,
            uid: &self.card.uid,
            host: &self.card.host,
            patience: self.limits().greet,
        }
    }

    pub(crate) fn meet_all(
        self: &Arc<Self>,
        spec: &GroupSpec,
    ) -> Result<(Members, Vec<PeerStatus>), EngineError> {
        let cards = spec
            .cards
            .iter()
            .enumerate()
            .map(|(rank, bytes)| PeerDescriptor::decode(rank, bytes))
            .collect::<Result<Vec<_>, _>>()?;
        let GroupSpec { name, number, rank, timeout, .. } = spec;
        let known = Agreement { group: name, rank: *rank, cards: &cards };
        known.check(&self.card, self.keys.as_ref().map(|k| &k.secret))?;
        self.dial_all(&known)?;
        let deadline = Instant::now() + self.options.limits(spec.timeout).fail;
        let mut peers = Vec::new();
        for card in &cards {
            if card.uid == self.card.uid {
                peers.push(SELF);
            } else {
                peers
                    .push(self.wait_for(card, deadline).map_err(|why| self.unreachable(&known, card, &why))?);
            }
        }
        let reach: Vec<Reach> = cards
            .iter()
            .map(|c| {
                if c.uid == self.card.uid || self.card.shares_memory_with(c) {
                    Reach::Shared
                } else {
                    Reach::Wire
                }
            })
            .collect();
        let company = GroupPeers { group: name, peers: &peers, reach: &reach, deadline };
        let packets = spec.terms.ltp.as_ref().map(|ltp| self.link_packets(ltp, &company)).transpose()?;
        // All ranks must cut buffers alike, so the slowest kind of link anywhere in the group decides.
        let has_wires =
            cards.iter().any(|a| cards.iter().any(|b| a.uid != b.uid && !a.shares_memory_with(b)));
        let tuning = match &spec.terms.ltp {
            _ if !has_wires => Tuning::SHARED,
            Some(_) => Tuning::PACKETS,
            None => Tuning::WIRE,
        };
        let status = cards.iter().map(|c| PeerStatus::of(c, &self.card)).collect();
        let members = Members {
            number: *number,
            name: name.clone(),
            rank: *rank,
            peers,
            reach,
            has_wires,
            tuning,
            timeout: *timeout,
            config: spec.terms.clone(),
            endpoint: packets,
        };
        Ok((members, status))
    }

    fn unreachable(&self, cards: &Agreement<'_>, card: &PeerDescriptor, why: &Refusal) -> EngineError {
        let rank = cards.cards.iter().position(|c| c.uid == card.uid).unwrap_or(0);
        let neighbour = self.card.shares_memory_with(card);
        let place = if neighbour { format!("process {}", card.pid) } else { card.place() };
        let text = format!(
            "group {:?}: rank {rank} on {} ({place}) cannot be reached: {why}",
            cards.group, card.host
        );
        if why.is_final() {
            return EngineError::Usage(text);
        }
        EngineError::PeerLost(format!(
            "{text}. Is it still running, and does a firewall let {place} through?"
        ))
    }

    fn find(&self, uid: &str) -> Option<usize> {
        lock(&self.engine).peers.find(uid)
    }

    /// Waits until that process is a peer, or makes it one when it is pending.
    fn wait_for(&self, card: &PeerDescriptor, deadline: Instant) -> Result<usize, Refusal> {
        let caller = Caller { uid: card.uid.clone(), key: card.key() };
        let mut pending = lock(&self.pending);
        loop {
            if let Some(peer) = self.find(&card.uid) {
                return Ok(peer);
            }
            if let Some(links) = pending.take(&caller) {
                drop(pending);
                return self.link(card, links);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(if pending.has_impostor(&caller) { Refusal::Key } else { Refusal::Silent });
            }
            pending = self.met.wait_timeout(pending, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Calls those whom this process has to call, all at once: on a long link an introduction takes a while.
    fn dial_all(self: &Arc<Self>, cards: &Agreement<'_>) -> Result<(), EngineError> {
        let calls =
            |c: &&PeerDescriptor| c.uid != self.card.uid && self.calls(c) && self.find(&c.uid).is_none();
        let (near, far): (Vec<&PeerDescriptor>, Vec<_>) =
            cards.cards.iter().filter(calls).partition(|c| self.card.shares_memory_with(c));
        for card in near {
            dial_local(&card.local)
                .map_err(Refusal::from)
                .and_then(|socket| self.admit_neighbour(&socket))
                .map_err(|why| self.unreachable(cards, card, &why))?;
        }
        std::thread::scope(|scope| {
            let dialled: Vec<_> =
                far.into_iter().map(|c| (c, scope.spawn(move || self.dial_wire(c)))).collect();
            dialled.into_iter().try_for_each(|(card, call)| {
                let called = call.join().unwrap_or_else(|_| Err(Refusal::System("a thread panicked".into())));
                called.map_err(|why| self.unreachable(cards, card, &why))
            })
        })
    }

    fn calls(&self, card: &PeerDescriptor) -> bool {
        if self.card.shares_memory_with(card) {
            return self.card.uid < card.uid;
        }
        self.card.dials(card) == Some(true)
    }

    /// Somebody called on the local socket. Introductions block, so each has a thread of its own.
    pub(crate) fn greet_local(self: &Arc<Self>, socket: UnixStream) {
        if let Err(refusal) = check_user(&socket) {
            return self.refuse("a process on this host", &refusal);
        }
        let node = Arc::clone(self);
        let greet = move || {
            if let Err(refusal) = node.admit_neighbour(&socket) {
                node.refuse("a process on this host", &refusal);
            }
        };
        let _ = std::thread::Builder::new().name("tweed-greet".into()).spawn(greet);
    }

    /// Counts a caller that was turned away, and says so now and then.
    pub(crate) fn refuse(&self, who: &str, refusal: &Refusal) {
        if self.is_stopping() {
            return;
        }
        if let Some(line) = self.refusals.note(who, refusal, Instant::now()) {
            crate::stderr::print_line(&line);
        }
    }

    fn admit_neighbour(self: &Arc<Self>, socket: &UnixStream) -> Result<(), Refusal> {
        check_user(socket)?;
        crate::link::fork::shut_in_children(socket);
        socket.set_nonblocking(false)?;
        let (theirs, shared) = self.home().meet(socket)?;
        let pid = credentials(socket).map(|c| c.pid as u32).filter(|&pid| pid > 0);
        let socket = socket.try_clone()?;
        socket.set_nonblocking(true)?;
        let stream = Stream::new(Socket::Local(mio::net::UnixStream::from_std(socket)));
        let peer = self.add_peer(&theirs.uid, &theirs.host, Some(shared), vec![stream]);
        if let Some(pid) = pid.filter(|&pid| pid != self.process) {
            self.watcher.watch(Watch::Process(peer, pid));
        }
        Ok(())
    }

    pub(crate) fn add_peer(
        &self,
        uid: &str,
        host: &str,
        shared: Option<Shared>,
        streams: Vec<Stream>,
    ) -> usize {
        let streams: Vec<Arc<Stream>> = streams.into_iter().map(Arc::new).collect();
        let mut engine = lock(&self.engine);
        let peer = Peer::new(uid.to_owned(), host.to_owned(), shared.is_some(), streams.len());
        let index = engine.peers.add(peer);
        engine.host.links.push(Links { shared, streams: streams.clone() });
        drop(engine);
        for (place, stream) in streams.into_iter().enumerate() {
            self.watcher.watch(Watch::Stream(index, place, stream));
        }
        drop(lock(&self.pending));
        self.met.notify_all();
        self.ring();
        index
    }

    pub(crate) fn send_bye(&self) {
        let mut engine = lock(&self.engine);
        engine.save_traces();
        engine.send_bye();
    }
}

/// Only processes of this user may share memory with this one.
fn check_user(socket: &UnixStream) -> Result<(), Refusal> {
    // SAFETY: a plain question.
    let own = unsafe { libc::geteuid() };
    match credentials(socket) {
        Some(c) if c.uid != own => Err(Refusal::User(c.uid)),
        _ => Ok(()),
    }
}

/// Process and user at the other end of a local socket; a number is 0 if it is not visible from here.
fn credentials(socket: &UnixStream) -> Option<libc::ucred> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as u32;
    let place = (&raw mut credentials).cast();
    // SAFETY: the place is as long as said.
    let got = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, place, &mut length)
    };
    (got == 0).then_some(credentials)
}
