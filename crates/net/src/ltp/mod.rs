//! The live driver of the loss-tolerant transport: one UDP socket and one thread for all peers of a process.
//!
//! `tweed_proto::ltp::Link` decides what leaves when, and what a packet that came in means. Here are the socket
//! (`socket`), the bursts that go through it (`burst`), the seal on each packet (`seal`, with keys that come in an
//! `invitation`), the peers (`peers`, `peer`, with memory for what arrives), and the thread that walks from one to the
//! next (`thread`, which sleeps in `wait` on an `event`). `endpoints` holds a node's sockets, one for each set of
//! settings.
//!
//! # Theory of operation
//!
//! A peer is *invited* by `invite`, which makes the key of its packets to us and the number that they bear. It becomes
//! *reachable* when its own invitation is accepted (`accept`), which names its port and our key; until then messages to
//! it wait. Its packets may come before that: the first genuine one makes its link, and the newest says where it is. It
//! is *gone* after `drop_peer`, or when genuine packets make no sense; a new `invite` under its number begins anew.
//!
//! A message that was given to `send` is *waiting*, then *sending*, and it ends in one of three ways: the peer has closed
//! it (`Handler::delivered`), it was cancelled, or its peer is gone. Its memory is read only under `peers`: what leaves is a
//! copy (`burst`). So once a cancelling caller has had the lock, nobody reads it.
//!
//! Whose move it is: callers take `peers`, change a link and wake the thread. The thread alone receives, runs timers and
//! sends; it takes `peers` for one step at a time, and lets callers go first (`callers`), who may hold the engine's lock.
//!
//! Locks: `DatagramEndpoints`' `endpoints`, then a socket's `thread`, then its `peers`; `offers` for itself. The engine's
//! lock goes before all of them, since the engine sends and drops peers under it; nobody here takes it. The thread calls
//! its handler, and asks it for memory, with none held.
//!
//! What cannot happen: a repeated packet changes a link; a forged one changes a sealed link, or moves its peer's
//! address (in the clear it can); a message is read after its ticket was given back; the thread sleeps through a call (`wait_model`, under loom).

mod burst;
pub(crate) mod endpoints;
mod event;
mod invitation;
mod peer;
mod peers;
mod seal;
mod socket;
mod thread;
mod wait;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use tweed_proto::engine::PacketMessage;
use tweed_proto::ltp::{Closing, LinkMetrics, Outgoing, Settings};

use crate::link::ports::Ports;
use crate::sync::{LockRank, Mutex, MutexGuard};

pub(crate) use invitation::is_invitation;
pub use peers::Refused;
pub use seal::Cipher;

use invitation::Invitation;
use peer::{Body, Peer};
use peers::Peers;
use socket::Socket;
use wait::Waker;

/// Who is told of what has happened, from the thread of the driver, which holds no lock meanwhile. A call may come
/// shortly after [`Datagrams::cancel`] or [`Datagrams::drop_peer`] has returned, if it had begun before.
pub trait Handler: Send + Sync {
    /// Memory for a message of so many bytes; what is in it does not matter. It should be warm: the kernel takes as
    /// long to clear a fresh page as the network takes to fill it.
    fn buffer(&self, bytes: usize) -> Vec<u8>;

    /// A message has come.
    fn received(&self, peer: usize, packet_message: PacketMessage);

    /// The peer has closed the message that was sent with this ticket; its memory is read no more. `missing`: ranges
    /// of bytes that the peer does not have, ascending.
    fn delivered(&self, peer: usize, ticket: u64, missing: Vec<Range<u32>>);

    /// The peer's packets are genuine, and make no sense. It is forgotten, as after [`Datagrams::drop_peer`].
    fn broken(&self, peer: usize, why: String);
}

/// How a socket is set up.
#[derive(Clone, Debug)]
pub struct DatagramOptions {
    /// How long lossy messages are waited for.
    pub closing: Closing,
    /// How packets to us are sealed.
    pub cipher: Cipher,
    /// Where first passes over a message begin.
    pub seed: u64,
    /// Most bytes of messages under way, from a peer and to it; the same on all sides. No message is longer.
    pub most_bytes: u64,
    /// Many packets per system call, where the kernel can.
    pub offload: bool,
    /// On which the socket may be.
    pub ports: Ports,
}

impl Default for DatagramOptions {
    /// Sealed by whatever is fastest here; 4 GiB under way.
    fn default() -> DatagramOptions {
        DatagramOptions {
            closing: Closing::default(),
            cipher: Cipher::fastest(),
            seed: 0,
            most_bytes: 1 << 32,
            offload: true,
            ports: Ports::default(),
        }
    }
}

/// The datagrams of one socket; the module's documentation describes them.
pub struct Datagrams {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What callers and the thread have in common.
struct Shared {
    socket: Arc<Socket>,
    options: DatagramOptions,
    handler: Arc<dyn Handler>,
    waker: Waker,
    peers: Mutex<Peers>,
    /// So many callers want the lock: the thread lets them go first.
    callers: AtomicUsize,
    stopping: AtomicBool,
    began: Instant,
}

/// Something to tell the [`Handler`].
enum Notice {
    Received { peer: usize, packet_message: PacketMessage },
    Delivered { peer: usize, ticket: u64, missing: Vec<Range<u32>> },
    Broken { peer: usize, why: String },
}

impl Datagrams {
    /// Opens a socket on `host` and starts the thread. Says so on stderr, once, if the kernel gives small buffers.
    pub fn open(
        host: IpAddr,
        options: DatagramOptions,
        handler: Arc<dyn Handler>,
    ) -> io::Result<Arc<Datagrams>> {
        let shared = Arc::new(Shared {
            socket: Arc::new(Socket::open(host, options.ports, options.offload)?),
            options,
            handler,
            waker: Waker::new()?,
            peers: Mutex::new(LockRank::DatagramPeers, Peers::default()),
            callers: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            began: Instant::now(),
        });
        let of_thread = shared.clone();
        let thread =
            std::thread::Builder::new().name("tweed-ltp".into()).spawn(move || thread::run(&of_thread))?;
        Ok(Arc::new(Datagrams { shared, thread: Mutex::new(LockRank::DatagramThread, Some(thread)) }))
    }

    /// Begins with a peer, anew if there was one of this number. What it returns is secret, and is to reach the peer's
    /// [`Datagrams::accept`] over a sealed stream.
    pub fn invite(&self, peer: usize) -> Vec<u8> {
        let Shared { socket, options, .. } = &*self.shared;
        let settings = Settings {
            seal: options.cipher.tag_bytes() as u32,
            closing: options.closing,
            seed: options.seed,
            most_bytes: options.most_bytes,
            ..Settings::default()
        };
        let mut peers = self.shared.enter();
        let mut invitation = Invitation::fresh(options.cipher, socket.port());
        while !peers.is_free(invitation.link) {
            invitation = Invitation::fresh(options.cipher, socket.port());
        }
        peers.insert(peer, Peer::new(&invitation, settings, socket.clone()));
        invitation.encode()
    }

    /// Takes the invitation of a peer, which sits at `address`; [`Datagrams::invite`] must come before. The error says
    /// what is wrong with it.
    pub fn accept(&self, peer: usize, address: IpAddr, invitation: &[u8]) -> Result<(), String> {
        let refuse = |why: String| format!("rank {peer}'s invitation to LTP is refused: {why}");
        let invitation = Invitation::decode(invitation).map_err(refuse)?;
        if (invitation.cipher == Cipher::Clear) != (self.shared.options.cipher == Cipher::Clear) {
            return Err(refuse("one side seals its packets and the other does not".into()));
        }
        let address = SocketAddr::new(address, invitation.port);
        let mut peers = self.shared.enter();
        let known = peers.get_mut(peer).ok_or_else(|| refuse("this side has not invited it".into()))?;
        known.accept(address, &invitation).map_err(refuse)?;
        drop(peers);
        self.shared.waker.wake();
        Ok(())
    }

    /// Sends a message to a peer, or does nothing if there is none of this number.
    ///
    /// # Safety
    /// `data` points at `what.bytes` bytes that nobody changes until [`Handler::delivered`] has been called with
    /// `ticket`, or `cancel` or `drop_peer` has returned, or `close` has.
    pub unsafe fn send(&self, peer: usize, what: Outgoing, data: *const u8, ticket: u64) {
        if let Some(peer) = self.shared.enter().get_mut(peer) {
            peer.send(what, Body::new(data, ticket));
        }
        self.shared.waker.wake();
    }

    /// Gives a message up. Once this has returned, its memory is read no more.
    pub fn cancel(&self, peer: usize, ticket: u64) {
        if let Some(peer) = self.shared.enter().get_mut(peer) {
            peer.cancel(ticket);
        }
        self.shared.waker.wake();
    }

    /// Forgets a peer and all messages from and to it.
    pub fn drop_peer(&self, peer: usize) {
        self.shared.enter().remove(peer);
    }

    /// What the link to a peer has done and knows; `None` before its address is known.
    pub fn metrics(&self, peer: usize) -> Option<LinkMetrics> {
        self.shared.enter().get(peer)?.metrics()
    }

    /// Packets that changed nothing, so far.
    pub fn refused(&self) -> Refused {
        self.shared.enter().refused
    }

    /// Where the socket is bound.
    pub fn port(&self) -> u16 {
        self.shared.socket.port()
    }

    /// Early Close sets its thresholds anew, on all links.
    pub fn end_epoch(&self) {
        self.shared.enter().end_epoch();
    }

    /// Stops the thread and waits for it; no memory is read after that. Not to be called by a [`Handler`].
    pub fn close(&self) {
        self.shared.stopping.store(true, SeqCst);
        self.shared.waker.wake();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // A panic of the thread has been printed by then.
            let _ = thread.join();
        }
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    /// Time since the socket was opened.
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Takes the lock for callers, who go before the thread.
    fn enter(&self) -> MutexGuard<'_, Peers> {
        self.callers.fetch_add(1, SeqCst);
        let peers = self.peers.lock();
        self.callers.fetch_sub(1, SeqCst);
        peers
    }

    /// Takes the lock for the thread.
    fn lock(&self) -> MutexGuard<'_, Peers> {
        while self.callers.load(SeqCst) > 0 {
            std::thread::yield_now();
        }
        self.peers.lock()
    }
}
