//! A process's place in the network: its memory, its listeners, its threads, and the engine between them.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use tweed_proto::engine::members::Members;
use tweed_proto::engine::{EngineError, GroupNumber};

use crate::connect::admission::listener::listening_thread;
use crate::connect::connector::Connector;
use crate::connect::options::{GroupSpec, NodeOptions, Turn};
use crate::engine::callbacks::Callbacks;
use crate::engine::driver::Driver;
use crate::engine::peer_status::PeerStatus;
use crate::group::Group;
use crate::operation::plans::Plans;
use crate::sync::{LockRank, Mutex};
use crate::system_error::in_words;

/// A process's place in the network.
pub struct Node {
    pub(crate) connector: Arc<Connector>,
    /// Empty once it has left.
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
    /// The numbers of all groups that it has joined; `None` once it has left.
    pub(crate) joined: Mutex<Option<Vec<GroupNumber>>>,
}

impl Node {
    /// Opens the listeners and starts its threads.
    pub fn start(options: NodeOptions) -> Result<Node, EngineError> {
        let (connector, watcher) = Connector::open(options)?;
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.into()).spawn(run)
        };
        let one = Arc::clone(&connector);
        let mut threads = vec![spawn("tweed-watch", Box::new(move || watcher.run(&one.driver)))];
        let (one, local) = (Arc::clone(&connector), Arc::clone(&connector.local_listener));
        threads.push(spawn("tweed-local", Box::new(move || local.run(&one))));
        if let Some(listener) = connector.listener.clone() {
            let one = Arc::clone(&connector);
            let address =
                listener.address().map_err(|e| EngineError::setup("the engine cannot listen", e))?;
            threads.push(listening_thread("engine", address).spawn(move || listener.run(&one)));
        }
        let threads = threads.into_iter().collect::<io::Result<Vec<_>>>();
        let threads = Callbacks::start(&connector.driver).and(threads);
        let threads = threads
            .map_err(|e| EngineError::setup("the engine's threads cannot be started", in_words(&e)))?;
        let threads = Mutex::new(LockRank::NodeThreads, threads);
        Ok(Node { connector, threads, joined: Mutex::new(LockRank::Joined, Some(Vec::new())) })
    }

    pub(crate) fn driver(&self) -> &Arc<Driver> {
        &self.connector.driver
    }

    /// What the other ranks need to reach this process.
    pub fn descriptor(&self) -> Vec<u8> {
        self.connector.current_descriptor().encode()
    }

    /// How many callers were turned away, by reason.
    pub fn refused(&self) -> Vec<(&'static str, u64)> {
        self.connector.refusals.counts()
    }

    /// Meets the other ranks. All of them must call it.
    pub fn join(&self, spec: GroupSpec) -> Result<Group, EngineError> {
        self.join_unless(spec, &|| false)
    }

    /// As [`Node::join`], but ends as soon as `interrupted` holds, which is asked on this thread, some times a second.
    pub fn join_unless(&self, spec: GroupSpec, interrupted: &dyn Fn() -> bool) -> Result<Group, EngineError> {
        self.join_turning(spec, interrupted, None)
    }

    /// As [`Node::join_unless`]. Of a pair, one calls the other; where that does not come through, `turn` has it called.
    pub fn join_turning(
        &self,
        spec: GroupSpec,
        interrupted: &dyn Fn() -> bool,
        turn: Option<&Turn<'_>>,
    ) -> Result<Group, EngineError> {
        self.driver().check_process()?;
        if self.driver().is_stopping() {
            return Err(left(&spec.name));
        }
        if let Some(why) = spec.config.objection(spec.descriptors.len() as u32) {
            return Err(EngineError::Usage(format!("group {:?}: {why}", spec.name)));
        }
        let plans = Plans::new(spec.rows.clone(), &spec.config)?;
        let _one_at_a_time = self.connector.joining(interrupted)?;
        // What members who have met send for a group that never comes about here is not kept.
        let met = self.connector.meet_all(&spec, interrupted, turn);
        let (members, status) = met.inspect_err(|_| self.driver().close_group(spec.number()))?;
        let members = Arc::new(members);
        if !self.open_group(&members, status)? {
            self.driver().close_group(spec.number());
            return Err(left(&spec.name));
        }
        self.driver().ring();
        Ok(Group::new(Arc::clone(&self.connector), members, plans))
    }

    /// `false` if the node has left meanwhile. `leave` closes what is listed, so nothing is opened without being listed.
    fn open_group(&self, members: &Arc<Members>, status: Vec<PeerStatus>) -> Result<bool, EngineError> {
        let mut joined = self.joined.lock();
        let Some(numbers) = &mut *joined else { return Ok(false) };
        let mut engine = self.driver().engine.lock();
        engine.open_group(Arc::clone(members))?;
        engine.host.status.insert(members.number, status);
        numbers.push(members.number);
        Ok(true)
    }

    /// Shared memory that peers on this host read and write in place.
    pub fn alloc(&self, bytes: u64) -> Result<*mut u8, EngineError> {
        self.driver().check_process()?;
        self.driver().alloc(bytes).ok_or_else(|| {
            let advice = "free `tweed.empty` tensors first";
            EngineError::Usage(format!("no room for {bytes} bytes in shared memory; {advice}"))
        })
    }

    /// Gives back what `alloc` returned. In a fork nothing happens: the memory is the child's own.
    pub fn free(&self, address: *mut u8) {
        self.driver().free(address);
    }
}

fn left(group: &str) -> EngineError {
    EngineError::Usage(format!("group {group:?}: the engine has left the network, as the process ends"))
}

impl Drop for Node {
    fn drop(&mut self) {
        self.leave();
        // In a fork they are the parent's.
        std::mem::forget(std::mem::take(self.threads.get_mut()));
    }
}
