//! How a process comes to know the others: it calls those whose name is greater, and answers the rest.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tweed_proto::late::Limits;
use tweed_proto::Reach;

use crate::card::Card;
use crate::error::EngineError;
use crate::group::{Membership, Tuning};
use crate::links::{Peer, Shared};
use crate::meet::{dial_local, receive_greeting, send_greeting, Greeting, Home};
use crate::node::{lock, GroupSpec, Inner};
use crate::silence::cut_after;
use crate::stream::{Socket, Stream};
use crate::watch::Watch;
use crate::whereabouts::Whereabouts;

impl Inner {
    /// How long introductions and silent wires may take.
    fn limits(&self) -> Limits {
        self.options.limits(Duration::MAX)
    }

    fn home(&self) -> Home<'_> {
        Home {
            arena: &self.arena,
            bell: self.bell,
            uid: &self.card.uid,
            host: &self.card.host,
            patience: self.limits().greet,
        }
    }

    pub(crate) fn meet_all(self: &Arc<Self>, spec: &GroupSpec) -> Result<Membership, EngineError> {
        let cards = spec
            .cards
            .iter()
            .enumerate()
            .map(|(rank, bytes)| Card::decode(rank, bytes))
            .collect::<Result<Vec<_>, _>>()?;
        self.check_cards(spec, &cards)?;
        for card in cards.iter().filter(|c| self.card.uid < c.uid && self.find(&c.uid).is_none()) {
            self.dial(card).map_err(|e| self.unreachable(spec, &cards, card, &e.to_string()))?;
        }
        let deadline = Instant::now() + self.options.limits(spec.timeout).fail;
        let mut peers = Vec::new();
        for card in &cards {
            let peer =
                if card.uid == self.card.uid { Some(usize::MAX) } else { self.wait_for(&card.uid, deadline) };
            let late = || self.unreachable(spec, &cards, card, "it did not call in time");
            peers.push(peer.ok_or_else(late)?);
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
        // All ranks must cut buffers alike, so the slowest kind of link anywhere in the group decides.
        let has_wires =
            cards.iter().any(|a| cards.iter().any(|b| a.uid != b.uid && !a.shares_memory_with(b)));
        let tuning = if has_wires { Tuning::WIRE } else { Tuning::SHARED };
        let GroupSpec { name, number, rank, timeout, .. } = spec;
        Ok(Membership {
            number: *number,
            name: name.clone(),
            rank: *rank,
            peers,
            reach,
            whereabouts: cards.iter().map(|c| Whereabouts::of(c, &self.card)).collect(),
            has_wires,
            tuning,
            timeout: *timeout,
        })
    }

    fn check_cards(&self, spec: &GroupSpec, cards: &[Card]) -> Result<(), EngineError> {
        let own = cards.get(spec.rank as usize).is_some_and(|c| c.uid == self.card.uid);
        if !own {
            let text = format!(
                "group {:?}: the card of rank {} is not this process's; do two processes have that rank?",
                spec.name, spec.rank
            );
            return Err(EngineError::Usage(text));
        }
        for (rank, card) in cards.iter().enumerate() {
            if let Some(twin) = cards[..rank].iter().position(|c| c.uid == card.uid) {
                let text = format!("group {:?}: ranks {twin} and {rank} are the same process", spec.name);
                return Err(EngineError::Usage(text));
            }
        }
        Ok(())
    }

    fn unreachable(&self, spec: &GroupSpec, cards: &[Card], card: &Card, why: &str) -> EngineError {
        let rank = cards.iter().position(|c| c.uid == card.uid).unwrap_or(0);
        let place = if self.card.shares_memory_with(card) {
            format!("process {}", card.pid)
        } else {
            card.tcp.to_string()
        };
        EngineError::PeerLost(format!(
            "group {:?}: rank {rank} on {} ({place}) cannot be reached: {why}. Is it still running, and does a firewall let {place} through?",
            spec.name, card.host
        ))
    }

    fn find(&self, uid: &str) -> Option<usize> {
        lock(&self.engine).links.find(uid)
    }

    fn wait_for(&self, uid: &str, deadline: Instant) -> Option<usize> {
        let mut meetings = lock(&self.meetings);
        loop {
            if let Some(peer) = self.find(uid) {
                return Some(peer);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            meetings = self.met.wait_timeout(meetings, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn dial(self: &Arc<Self>, card: &Card) -> io::Result<()> {
        if self.card.shares_memory_with(card) {
            let socket = dial_local(&card.local)?;
            return self.admit_neighbour(&socket);
        }
        let mut sockets = Vec::new();
        for stream in 0..self.options.streams.max(1) {
            let socket = TcpStream::connect_timeout(&card.tcp, self.limits().greet)?;
            self.prepare(&socket)?;
            send_greeting(
                &socket,
                &Greeting::new(&self.card.uid, &self.card.host, stream, self.options.streams.max(1)),
            )?;
            receive_greeting(&socket)?;
            sockets.push(socket);
        }
        self.add_peer(
            &card.uid,
            &card.host,
            None,
            sockets.into_iter().map(wire_stream).collect::<io::Result<_>>()?,
        );
        Ok(())
    }

    /// Somebody called on the local socket.
    pub(crate) fn greet_local(self: &Arc<Self>, socket: UnixStream) {
        self.greet(move |node| node.admit_neighbour(&socket));
    }

    /// Somebody called on the TCP socket.
    pub(crate) fn greet_wire(self: &Arc<Self>, socket: TcpStream) {
        self.greet(move |node| node.admit_wire(socket));
    }

    /// Greetings block, so each has a thread of its own. One that fails concerns nobody else.
    fn greet(self: &Arc<Self>, meet: impl FnOnce(&Arc<Inner>) -> io::Result<()> + Send + 'static) {
        let node = Arc::clone(self);
        let _ = std::thread::Builder::new().name("tweed-greet".into()).spawn(move || meet(&node));
    }

    fn admit_neighbour(self: &Arc<Self>, socket: &UnixStream) -> io::Result<()> {
        socket.set_nonblocking(false)?;
        let (theirs, shared) = self.home().meet(socket)?;
        let pid = peer_process(socket);
        let socket = socket.try_clone()?;
        socket.set_nonblocking(true)?;
        let stream = Stream::new(Socket::Local(mio::net::UnixStream::from_std(socket)));
        let peer = self.add_peer(&theirs.uid, &theirs.host, Some(shared), vec![stream]);
        if let Some(pid) = pid.filter(|&pid| pid != self.process) {
            self.watcher.watch(Watch::Process(peer, pid));
        }
        Ok(())
    }

    fn admit_wire(self: &Arc<Self>, socket: TcpStream) -> io::Result<()> {
        socket.set_nonblocking(false)?;
        self.prepare(&socket)?;
        let theirs = receive_greeting(&socket)?;
        if theirs.stream >= theirs.streams || theirs.streams > 64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        send_greeting(
            &socket,
            &Greeting::new(&self.card.uid, &self.card.host, theirs.stream, theirs.streams),
        )?;
        let mut half = lock(&self.half);
        let streams =
            half.entry(theirs.uid.clone()).or_insert_with(|| (0..theirs.streams).map(|_| None).collect());
        if let Some(place) = streams.get_mut(theirs.stream as usize) {
            *place = Some(socket);
        }
        if streams.iter().all(Option::is_some) {
            let sockets = half.remove(&theirs.uid).unwrap_or_default().into_iter().flatten();
            let streams = sockets.map(wire_stream).collect::<io::Result<_>>()?;
            self.add_peer(&theirs.uid, &theirs.host, None, streams);
        }
        Ok(())
    }

    fn add_peer(&self, uid: &str, host: &str, shared: Option<Shared>, streams: Vec<Stream>) -> usize {
        let streams: Vec<Arc<Stream>> = streams.into_iter().map(Arc::new).collect();
        let mut engine = lock(&self.engine);
        let index = engine.links.peers.len();
        engine.links.peers.push(Peer::new(uid.to_owned(), host.to_owned(), shared, streams.clone()));
        drop(engine);
        for (place, stream) in streams.into_iter().enumerate() {
            self.watcher.watch(Watch::Stream(index, place, stream));
        }
        *lock(&self.meetings) += 1;
        self.met.notify_all();
        self.ring();
        index
    }

    fn prepare(&self, socket: &TcpStream) -> io::Result<()> {
        socket.set_nodelay(true)?;
        let Limits { greet, silence, .. } = self.limits();
        socket.set_read_timeout(Some(greet))?;
        socket.set_write_timeout(Some(greet))?;
        cut_after(silence, socket)?;
        let Some(name) = &self.options.congestion else { return Ok(()) };
        // SAFETY: the name's bytes are as long as said.
        let set = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_CONGESTION,
                name.as_ptr().cast(),
                name.len() as u32,
            )
        };
        if set == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    pub(crate) fn say_bye(&self) {
        let mut engine = lock(&self.engine);
        engine.save_traces();
        engine.say_bye();
        engine.links.flush();
    }
}

fn wire_stream(socket: TcpStream) -> io::Result<Stream> {
    socket.set_nonblocking(true)?;
    Ok(Stream::new(Socket::Tcp(mio::net::TcpStream::from_std(socket))))
}

/// The process at the other end of a local socket; none if it is not visible from here.
fn peer_process(socket: &UnixStream) -> Option<u32> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as u32;
    let place = (&raw mut credentials).cast();
    // SAFETY: the place is as long as said.
    let got = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, place, &mut length)
    };
    (got == 0 && credentials.pid > 0).then_some(credentials.pid as u32)
}
