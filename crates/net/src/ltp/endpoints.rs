//! The way packets take beside the streams: sockets for them, opened when a group first asks, and how peers are
//! invited to them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Instant;

use tweed_proto::engine::config::Ltp;
use tweed_schedule::Rank;

use super::Datagrams;
use crate::sync::stop::SLICE;
use crate::sync::{Condvar, LockRank, Mutex};

/// No peer needs more invitations that nobody has answered.
const MOST_OFFERS: usize = 64;

/// A socket for packets, with settings of its own.
struct Endpoint {
    number: u64,
    datagrams: Arc<Datagrams>,
    /// The members that have been invited.
    invited: BTreeSet<usize>,
}

/// The sockets of a node, and invitations to those of its peers.
pub(crate) struct DatagramEndpoints {
    endpoints: Mutex<Vec<Endpoint>>,
    offers: Mutex<PendingOffers>,
    came: Condvar,
}

#[derive(Default)]
struct PendingOffers {
    /// The invitations, by peer and by number of the endpoint.
    invitations: BTreeMap<(usize, u64), Vec<u8>>,
    lost: BTreeSet<usize>,
}

impl Default for DatagramEndpoints {
    fn default() -> DatagramEndpoints {
        DatagramEndpoints {
            endpoints: Mutex::new(LockRank::Endpoints, Vec::new()),
            offers: Mutex::new(LockRank::Offers, PendingOffers::default()),
            came: Condvar::default(),
        }
    }
}

impl DatagramEndpoints {
    /// A peer's invitation to its socket of that number.
    pub(crate) fn keep(&self, peer: usize, number: u64, invitation: Vec<u8>) {
        let mut offers = self.offers.lock();
        if offers.invitations.range((peer, 0)..=(peer, u64::MAX)).count() < MOST_OFFERS {
            offers.invitations.insert((peer, number), invitation);
        }
        self.came.notify_all();
    }

    /// A peer is gone: nothing more is read for it, and nobody waits for its invitations.
    pub(crate) fn drop_peer(&self, peer: usize) {
        self.endpoints.lock().iter().for_each(|endpoint| endpoint.datagrams.drop_peer(peer));
        self.offers.lock().lost.insert(peer);
        self.came.notify_all();
    }

    /// Ends all threads. Nothing is locked while it waits for them: they may be telling the engine, which drops peers.
    pub(crate) fn close(&self) {
        let sockets: Vec<_> = self.endpoints.lock().iter().map(|e| Arc::clone(&e.datagrams)).collect();
        sockets.iter().for_each(|datagrams| datagrams.close());
    }

    /// The socket of that number, which `open` makes if it is not there. Groups are joined one at a time, so nobody else
    /// makes it meanwhile.
    pub(crate) fn find_or_open(
        &self,
        number: u64,
        open: impl FnOnce() -> io::Result<Arc<Datagrams>>,
    ) -> io::Result<Arc<Datagrams>> {
        let known =
            self.endpoints.lock().iter().find(|e| e.number == number).map(|e| Arc::clone(&e.datagrams));
        if let Some(datagrams) = known {
            return Ok(datagrams);
        }
        // Nothing is locked meanwhile: it may print, and whoever reads that may be slow, while the engine drops a peer.
        let datagrams = open()?;
        let invited = BTreeSet::new();
        self.endpoints.lock().push(Endpoint { number, datagrams: Arc::clone(&datagrams), invited });
        Ok(datagrams)
    }

    /// Which of the `members` have not been invited to that socket yet: from now on they have.
    pub(crate) fn uninvited(
        &self,
        number: u64,
        members: impl Iterator<Item = (Rank, usize)>,
    ) -> Vec<(Rank, usize)> {
        let mut endpoints = self.endpoints.lock();
        let endpoint = endpoints.iter_mut().find(|endpoint| endpoint.number == number);
        endpoint.map(|e| members.filter(|&(_, peer)| e.invited.insert(peer)).collect()).unwrap_or_default()
    }

    /// It is to be invited anew.
    pub(crate) fn forget(&self, number: u64, peer: usize) {
        if let Some(endpoint) = self.endpoints.lock().iter_mut().find(|endpoint| endpoint.number == number) {
            endpoint.invited.remove(&peer);
        }
    }

    /// Waits in slices: whoever waits can be interrupted.
    pub(crate) fn wait(
        &self,
        peer: usize,
        number: u64,
        (deadline, interrupted): (Instant, &dyn Fn() -> bool),
    ) -> Result<Vec<u8>, &'static str> {
        let mut offers = self.offers.lock();
        loop {
            if let Some(invitation) = offers.invitations.remove(&(peer, number)) {
                return Ok(invitation);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if offers.lost.contains(&peer) {
                return Err("it was lost meanwhile");
            }
            if left.is_zero() {
                return Err("it has sent no invitation in time");
            }
            offers = self.came.wait_timeout(offers, left.min(SLICE));
            // Nothing is locked meanwhile: it may run code of the caller's.
            drop(offers);
            if interrupted() {
                return Err("this process was interrupted while it waited");
            }
            offers = self.offers.lock();
        }
    }
}

/// Equal for groups whose packets can share a socket (FNV-1a).
pub(crate) fn endpoint_number(ltp: &Ltp) -> u64 {
    let Ltp { fraction, slack, cipher, .. } = ltp;
    let text = format!("{:x} {} {cipher}", fraction.to_bits(), slack.as_nanos());
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use tweed_proto::ltp::Outgoing;

    use super::super::{DatagramOptions, Handler, PacketMessage};
    use super::*;

    #[test]
    fn an_invitation_is_taken_once_and_a_lost_peer_sends_none() {
        let endpoints = DatagramEndpoints::default();
        let now = Instant::now();
        endpoints.keep(1, 7, vec![1]);
        let wait = |until, interrupted| endpoints.wait(1, 7, (until, &move || interrupted));
        assert_eq!(wait(now, false), Ok(vec![1]));
        assert_eq!(wait(now, false), Err("it has sent no invitation in time"));
        let later = now + Duration::from_secs(9);
        assert_eq!(wait(later, true), Err("this process was interrupted while it waited"));
        endpoints.drop_peer(1);
        assert_eq!(wait(later, false), Err("it was lost meanwhile"));
    }

    #[test]
    fn nobody_fills_the_memory_with_invitations() {
        let endpoints = DatagramEndpoints::default();
        (0..1000).for_each(|number| endpoints.keep(1, number, vec![0; 40]));
        assert_eq!(endpoints.offers.lock().invitations.len(), MOST_OFFERS);
    }

    /// A handler that says when a message has come, while its socket is being closed.
    struct Reporter(Arc<DatagramEndpoints>, mpsc::Sender<()>);

    impl Handler for Reporter {
        fn buffer(&self, bytes: usize) -> Vec<u8> {
            vec![0; bytes]
        }

        fn received(&self, _peer: usize, _message: PacketMessage) {
            let _ = self.1.send(());
            // By then the socket is being closed.
            std::thread::sleep(Duration::from_millis(50));
            self.0.drop_peer(1);
        }

        fn delivered(&self, _peer: usize, _ticket: u64, _missing: Vec<std::ops::Range<u32>>) {}

        fn broken(&self, _peer: usize, _why: String) {}
    }

    #[test]
    fn nothing_is_locked_while_a_socket_is_closed() {
        let (endpoints, (report, coming)) = (Arc::new(DatagramEndpoints::default()), mpsc::channel());
        let host = [127, 0, 0, 1].into();
        let sockets = [1, 2].map(|number| {
            let handler = Arc::new(Reporter(Arc::clone(&endpoints), report.clone()));
            let open = || Datagrams::open(host, DatagramOptions::default(), handler);
            endpoints.find_or_open(number, open).expect("a socket can be opened")
        });
        let invitations = sockets.each_ref().map(|socket| socket.invite(1));
        sockets[0].accept(1, host, &invitations[1]).expect("they agree");
        sockets[1].accept(1, host, &invitations[0]).expect("they agree");
        let data = [7u8; 100];
        let what = Outgoing {
            round: 0,
            tag: [0; 48],
            bytes: 100,
            value: 1,
            critical: vec![],
            lossy: false,
            urgency: 0,
        };
        // SAFETY: the data stay as they are until both sockets are closed.
        unsafe { sockets[0].send(1, what, data.as_ptr(), 1) };
        coming.recv_timeout(Duration::from_secs(20)).expect("the message comes");
        let (closing, (closed, end)) = (Arc::clone(&endpoints), mpsc::channel());
        std::thread::spawn(move || {
            closing.close();
            closed.send(()).expect("the test waits");
        });
        end.recv_timeout(Duration::from_secs(20)).expect("it is closed, and nobody hangs");
    }

    /// The engine drops peers under its own lock, so who held this one and then wanted the engine would hang with it.
    #[test]
    #[cfg(debug_assertions)]
    fn the_engine_goes_before_the_sockets() {
        let (endpoints, engine) = (DatagramEndpoints::default(), Mutex::new(LockRank::Engine, ()));
        let open = || {
            drop(engine.lock());
            Err(io::ErrorKind::Other.into())
        };
        assert!(endpoints.find_or_open(7, open).is_err(), "a socket is opened with nothing locked");
        let swapped = std::panic::AssertUnwindSafe(|| {
            let _held = endpoints.endpoints.lock();
            drop(engine.lock());
        });
        let why = std::panic::catch_unwind(swapped).expect_err("it is out of order");
        let why = why.downcast::<String>().expect("it says why");
        assert_eq!(*why, "locks out of order: Engine is taken while Endpoints is held; it goes before it");
        let _engine = engine.lock();
        endpoints.drop_peer(1);
    }
}
