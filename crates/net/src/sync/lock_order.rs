//! The order in which a thread may take the locks of this crate.
//!
//! Two threads that take two locks in different orders wait for each other forever, once in a million runs. So each lock
//! has a rank, and a thread takes only locks of higher rank than all that it holds. Debug builds check this at every lock,
//! whether another thread is near or not, and panic with both names; release builds check nothing.

/// The locks by the fields that they are, outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LockRank {
    /// `Connector::joining`: held while a group is joined, and while the caller's `interrupted` is asked.
    Joining,
    /// The lock of `Node::joined`.
    Joined,
    /// The lock of `Node::threads`.
    NodeThreads,
    /// `objects::Shared::state`: all that a process knows of objects.
    Objects,
    /// `HubLinks::poll`: held while whoever drives the links waits.
    HubPoll,
    /// The lock of `HubLinks::listening`.
    HubListening,
    /// `hub::Shared::state`: the links, and who may have one.
    HubState,
    /// `HubLinks::key_file`: that it is this process's, until the links are closed.
    HubKeyFile,
    /// `Driver::seat`: held by the caller that drives while it waits.
    Seat,
    /// `Connector::pending`: who has called and was not named by a group yet.
    Pending,
    /// `Calls::failed` of a meeting.
    Failed,
    /// `Driver::engine`: held while the engine is driven, which calls the methods of `Live`: what they take goes after it.
    Engine,
    /// The lock of `Connector::directory`.
    Directory,
    /// `DatagramEndpoints::endpoints`: sockets for packets. The engine takes it to drop a peer, so nobody who holds it may
    /// ask the engine anything.
    Endpoints,
    /// `DatagramEndpoints::offers`: invitations of peers.
    Offers,
    /// `Datagrams::thread`: the handle of a socket's thread.
    DatagramThread,
    /// `ltp::Shared::peers`: the links over one socket.
    DatagramPeers,
    /// `Group::plans`: which schedule runs what.
    Plans,
    /// `Driver::inbox`: events for the engine.
    Inbox,
    /// `WatcherHandle::added`: what the watcher is to watch.
    Added,
    /// `Crowd::state`: the callers of a listener that have not said who they are.
    CrowdState,
    /// `Relay::state`: who waits for the other one of a pair, and pairs that are new.
    Relay,
    /// The lock of `Refusals::by_reason`.
    Refusals,
    /// The lock of `Op::callback`.
    Callback,
    /// The lock of `Callbacks::workers`.
    Workers,
    /// `Callbacks::threads`: the handles of the workers.
    WorkerThreads,
    /// `Stream::writing`: held while a piece of the queue is sealed and written.
    StreamWriting,
    /// `Stream::queue`: frames that have not left yet.
    StreamQueue,
    /// The lock of `Sealed::incoming`.
    SealedIncoming,
    /// The lock of `Sealed::outgoing`.
    SealedOutgoing,
    /// The lock of `Withdrawn::ranges`.
    Withdrawn,
    /// The lock of `BufferPool::buffers`.
    BufferPool,
    /// The lock of `Arena::blocks`.
    Blocks,
    /// `objects::Room::spare`: memory that is kept. Whoever holds the last of an object may hold any lock before.
    Spare,
    /// `fork::REGISTRY`: held over a fork of the process, too, at whatever point a user forks.
    ForkRegistry,
}

#[cfg(debug_assertions)]
mod checked {
    use std::cell::RefCell;

    use super::LockRank;

    thread_local! {
        static HELD: RefCell<Vec<LockRank>> = const { RefCell::new(Vec::new()) };
    }

    /// A lock's place in the order.
    pub(in crate::sync) struct Order(LockRank);

    /// A thread holds a lock, until this is dropped.
    pub(in crate::sync) struct Held(LockRank);

    impl Order {
        pub(in crate::sync) const fn new(rank: LockRank) -> Order {
            Order(rank)
        }

        /// Before a thread waits for the lock. Panics if it must not.
        #[track_caller]
        pub(in crate::sync) fn enter(&self) -> Held {
            if let Some(held) = HELD.with_borrow(|held| held.iter().copied().max()) {
                assert!(
                    held < self.0,
                    "locks out of order: {:?} is taken while {held:?} is held; it goes before it",
                    self.0
                );
            }
            self.enter_unasked()
        }

        /// After a thread has taken the lock without waiting, which hangs in no order.
        pub(in crate::sync) fn enter_unasked(&self) -> Held {
            HELD.with_borrow_mut(|held| held.push(self.0));
            Held(self.0)
        }
    }

    impl Held {
        /// Before a thread gives the lock back for a while and waits for it again. Panics if it holds one that goes after it.
        #[track_caller]
        pub(in crate::sync) fn check_wait(&self) {
            let last = HELD.with_borrow(|held| held.iter().copied().max());
            assert!(last <= Some(self.0), "{:?} is waited for while {last:?} is held", self.0);
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            // At the end of a thread its list may be gone already, and nobody asks any more.
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                if let Some(at) = held.iter().rposition(|&rank| rank == self.0) {
                    held.remove(at);
                }
            });
        }
    }
}

#[cfg(not(debug_assertions))]
mod unchecked {
    use super::LockRank;

    /// Holds nothing where the order is not checked.
    pub(in crate::sync) struct Order;

    /// Holds nothing where the order is not checked.
    pub(in crate::sync) struct Held;

    impl Order {
        pub(in crate::sync) const fn new(_rank: LockRank) -> Order {
            Order
        }

        pub(in crate::sync) fn enter(&self) -> Held {
            Held
        }

        pub(in crate::sync) fn enter_unasked(&self) -> Held {
            Held
        }
    }

    impl Held {
        pub(in crate::sync) fn check_wait(&self) {}
    }
}

#[cfg(debug_assertions)]
pub(super) use checked::{Held, Order};
#[cfg(not(debug_assertions))]
pub(super) use unchecked::{Held, Order};
