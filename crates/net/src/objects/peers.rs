//! The other processes: over which link each is told something, and who and where it is.

use std::collections::BTreeMap;

use tweed_proto::hub::Key;
use tweed_proto::objects::Process;

use crate::connect::descriptor::PeerDescriptor;

/// The permanent id of the process that has this key.
pub(super) fn process_of(key: &Key) -> Process {
    let mut first = [0; 8];
    first.copy_from_slice(&key[..8]);
    u64::from_le_bytes(first)
}

struct Peer {
    key: Key,
    /// What is sent goes over this one, so that it comes in order; two that call each other have two.
    link: u64,
    descriptor: Option<PeerDescriptor>,
}

/// All others that have been met. A link that ends is the end of its process: keys are made anew at each start.
#[derive(Default)]
pub(super) struct Peers {
    met: BTreeMap<Process, Peer>,
    by_link: BTreeMap<u64, Process>,
    /// How those that are gone were called.
    gone: BTreeMap<Process, String>,
}

impl Peers {
    /// A link stands. `false`: to a process that is gone.
    pub(super) fn join(&mut self, link: u64, key: Key) -> bool {
        let process = process_of(&key);
        if self.gone.contains_key(&process) {
            return false;
        }
        self.by_link.insert(link, process);
        let peer = self.met.entry(process).or_insert(Peer { key, link, descriptor: None });
        peer.key == key // two keys that begin alike do not happen by chance
    }

    /// A process has said who it is.
    pub(super) fn describe(&mut self, process: Process, descriptor: PeerDescriptor) -> bool {
        let Some(peer) = self.met.get_mut(&process) else { return false };
        let is_its = descriptor.key() == Some(peer.key);
        peer.descriptor = Some(descriptor).filter(|_| is_its);
        is_its
    }

    /// A process is gone. Returns its links.
    pub(super) fn lose(&mut self, process: Process, why: &str) -> Vec<u64> {
        if self.gone.contains_key(&process) {
            return Vec::new();
        }
        self.gone.insert(process, format!("{} ({why})", self.name(process)));
        self.met.remove(&process);
        let links: Vec<u64> =
            self.by_link.iter().filter(|of| *of.1 == process).map(|(&link, _)| link).collect();
        self.by_link.retain(|_, of| *of != process);
        links
    }

    pub(super) fn at(&self, link: u64) -> Option<Process> {
        self.by_link.get(&link).copied()
    }

    pub(super) fn link(&self, process: Process) -> Option<u64> {
        self.met.get(&process).map(|peer| peer.link)
    }

    /// A process, for people.
    pub(super) fn name(&self, process: Process) -> String {
        let descriptor = self.met.get(&process).and_then(|peer| peer.descriptor.as_ref());
        let known = descriptor.map(|d| format!("process {} on {} at {}", d.pid, d.host, d.place()));
        known.unwrap_or_else(|| format!("a process that has not said who it is ({process:016x})"))
    }

    /// Those that are gone, for people.
    pub(super) fn gone(&self) -> impl Iterator<Item = &str> {
        self.gone.values().map(String::as_str)
    }
}
