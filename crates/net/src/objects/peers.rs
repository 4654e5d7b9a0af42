//! The other processes: over which link each is told something, what it may not have heard yet, and who and where it is.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use tweed_proto::hub::{Body, Key};
use tweed_proto::objects::{Bytes, Channel, Mark, OutOfOrder, Process, Stream};

use crate::connect::descriptor::PeerDescriptor;

/// So many messages are kept for a process that cannot be reached.
const MOST_KEPT: usize = 1 << 16;

/// The permanent id of the process that has this key.
pub(super) fn process_of(key: &Key) -> Process {
    let mut first = [0; 8];
    first.copy_from_slice(&key[..8]);
    u64::from_le_bytes(first)
}

/// A frame that is sent: kept until the other end has taken it.
pub(super) struct Outgoing {
    pub(super) frame: Bytes,
    pub(super) body: Option<Body>,
    /// It is a block of this pull.
    pub(super) of: Option<Stream>,
}

struct Peer {
    key: Key,
    /// What is sent goes over this one.
    link: Option<u64>,
    channel: Channel<Outgoing>,
    descriptor: Option<PeerDescriptor>,
}

/// All others that have been met. A process outlives its links; keys are made anew at each start.
#[derive(Default)]
pub(super) struct Peers {
    met: BTreeMap<Process, Peer>,
    by_link: BTreeMap<u64, Process>,
    /// How those that are gone were called.
    gone: BTreeMap<Process, String>,
}

impl Peers {
    /// A process with this descriptor is about to be called. `false`: it is known already, or gone.
    pub(super) fn expect(&mut self, key: Key, descriptor: PeerDescriptor) -> bool {
        let process = process_of(&key);
        let is_new = !self.knows(process) && !self.gone.contains_key(&process);
        if is_new {
            let (channel, descriptor) = (Channel::default(), Some(descriptor));
            self.met.insert(process, Peer { key, link: None, channel, descriptor });
        }
        is_new
    }

    /// A link stands. `false`: to a process that is gone.
    pub(super) fn join(&mut self, link: u64, key: Key) -> bool {
        let process = process_of(&key);
        if self.gone.contains_key(&process) {
            return false;
        }
        self.by_link.insert(link, process);
        let peer = || Peer { key, link: None, channel: Channel::default(), descriptor: None };
        self.met.entry(process).or_insert_with(peer).key == key // two keys that begin alike do not happen by chance
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
        let links = self.links(process).collect();
        self.by_link.retain(|_, of| *of != process);
        links
    }

    /// One that was not met, if there is no link to it.
    pub(super) fn forget(&mut self, process: Process) {
        if self.is_away(process) {
            self.met.remove(&process);
        }
    }

    pub(super) fn at(&self, link: u64) -> Option<Process> {
        self.by_link.get(&link).copied()
    }

    pub(super) fn knows(&self, process: Process) -> bool {
        self.met.contains_key(&process)
    }

    /// All that are not known to be gone.
    pub(super) fn known(&self) -> impl Iterator<Item = Process> + '_ {
        self.met.keys().copied()
    }

    /// It is not known to be gone, and no link to it stands.
    pub(super) fn is_away(&self, process: Process) -> bool {
        self.knows(process) && self.links(process).next().is_none()
    }

    pub(super) fn links(&self, process: Process) -> impl Iterator<Item = u64> + '_ {
        self.by_link.iter().filter(move |of| *of.1 == process).map(|(&link, _)| link)
    }

    pub(super) fn descriptor(&self, process: Process) -> Option<&PeerDescriptor> {
        self.met.get(&process)?.descriptor.as_ref()
    }

    /// Its number among the processes of its host.
    pub(super) fn pid(&self, process: Process) -> Option<u32> {
        self.descriptor(process).map(|descriptor| descriptor.pid)
    }

    /// Where a process can be called, if it has said so.
    pub(super) fn place(&self, process: Process) -> Option<(SocketAddr, Key)> {
        let peer = self.met.get(&process)?;
        Some((peer.descriptor.as_ref()?.tcp?, peer.key))
    }

    /// What is to be said over a link that stands.
    pub(super) fn greet(&mut self, process: Process) -> Option<Mark> {
        self.met.get_mut(&process).map(|peer| peer.channel.greet())
    }

    /// Something is to be sent. `false`: to a process that is gone, or for which too much is kept.
    pub(super) fn push(&mut self, to: Process, outgoing: Outgoing) -> bool {
        let peer = self.met.get_mut(&to).filter(|peer| peer.channel.kept() < MOST_KEPT);
        peer.map(|peer| peer.channel.push(outgoing)).is_some()
    }

    /// What may leave next for a process, and over which link.
    pub(super) fn poll(&mut self, to: Process) -> Option<(u64, Mark, &Outgoing)> {
        let peer = self.met.get_mut(&to)?;
        let (mark, outgoing) = peer.channel.poll()?;
        Some((peer.link?, mark, outgoing))
    }

    /// What is said where nothing is sent; see [`Channel::poll_taken`].
    pub(super) fn poll_taken(&mut self, to: Process, untold: u64) -> Option<(u64, Mark)> {
        let peer = self.met.get_mut(&to)?;
        Some((peer.link?, peer.channel.poll_taken(untold)?))
    }

    /// A mark has come: whether its frame is the next one, and which blocks of pulls the process has taken.
    pub(super) fn handle(&mut self, from: Process, mark: Mark) -> Result<(bool, Vec<Stream>), OutOfOrder> {
        let Some(peer) = self.met.get_mut(&from) else { return Ok((false, Vec::new())) };
        let (is_next, taken) = peer.channel.handle(mark)?;
        Ok((is_next, taken.into_iter().filter_map(|outgoing| outgoing.of).collect()))
    }

    /// Over which link a process is sent something.
    pub(super) fn link(&self, process: Process) -> Option<u64> {
        self.met.get(&process).and_then(|peer| peer.link)
    }

    /// It is gone, or has taken what it was told first.
    pub(super) fn is_heard(&self, process: Process) -> bool {
        self.met.get(&process).is_none_or(|peer| peer.channel.is_heard())
    }

    /// There was no link to it before.
    pub(super) fn is_new(&self, process: Process) -> bool {
        self.met.get(&process).is_some_and(|peer| peer.channel.is_new())
    }

    /// What is sent goes over this link from now on.
    pub(super) fn resume(&mut self, process: Process, link: u64) {
        if let Some(peer) = self.met.get_mut(&process) {
            peer.link = Some(link);
            peer.channel.resume();
        }
    }

    /// A link has ended. Returns whose it was, and another one of that process.
    pub(super) fn end(&mut self, link: u64) -> Option<(Process, Option<u64>)> {
        let process = self.by_link.remove(&link)?;
        if let Some(peer) = self.met.get_mut(&process).filter(|peer| peer.link == Some(link)) {
            peer.link = None;
            peer.channel.interrupt();
        }
        Some((process, self.links(process).last()))
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
