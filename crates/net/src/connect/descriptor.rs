//! A process's descriptor: all that another needs to reach it. It goes through the launcher's store.

use std::io;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::connect::same_host::boot_id;
use crate::engine::peer_status::PeerStatus;
use crate::framing::PROTOCOL;
use crate::process;
use crate::secure::{from_hex, hex, Key};
use tweed_proto::engine::EngineError;
use tweed_proto::late::{Process, RankStatus};

/// Who and where a process is.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub(crate) struct PeerDescriptor {
    pub(crate) protocol: u32,
    /// Random; names the process for its lifetime.
    pub(crate) uid: String,
    pub(crate) host: String,
    pub(crate) pid: u32,
    /// When the process started, in the kernel's ticks: numbers of processes are used again.
    pub(crate) started: u64,
    /// In which namespace its number counts.
    pub(crate) pids: String,
    /// Which boot of which machine.
    pub(crate) boot: String,
    /// Which network namespace; ranks of different ones never share memory.
    pub(crate) network: String,
    /// The name of its abstract socket, for peers that share memory. Any user of the host can see it, so it tells nothing.
    pub(crate) local: String,
    /// Random; who calls in the clear proves to have read it here, and so does this process to its callers (`proof`).
    pub(crate) nonce: String,
    /// Where it listens for the others; `None`: it only dials out.
    pub(crate) tcp: Option<SocketAddr>,
    /// The public key that it proves to have on sealed links, as hex digits.
    pub(crate) key: Option<String>,
    /// It refuses shared memory.
    pub(crate) wire_only: bool,
    /// Links of this process that broke: the uid of the other end, and the call that had made the link. Whoever still
    /// holds its end gives it up, and both meet again.
    pub(crate) broken: Vec<(String, u64)>,
}

impl PeerDescriptor {
    /// This process, with this key, listening there, and without a local socket.
    pub(crate) fn new(key: Option<String>, tcp: Option<SocketAddr>) -> io::Result<PeerDescriptor> {
        Ok(PeerDescriptor {
            protocol: PROTOCOL,
            uid: random_hex()?,
            host: host_name(),
            pid: std::process::id(),
            started: process::own_start(),
            pids: process::namespace("pid"),
            boot: boot_id(),
            network: process::namespace("net"),
            local: String::new(),
            nonce: random_hex()?,
            tcp,
            key,
            wire_only: true,
            broken: Vec::new(),
        })
    }

    /// Which of two that share no memory dials; `None` if neither can be dialled.
    pub(crate) fn dials(&self, other: &PeerDescriptor) -> Option<bool> {
        match (self.tcp, other.tcp) {
            (None, None) => None,
            (Some(_), Some(_)) => Some(self.uid < other.uid),
            (own, _) => Some(own.is_none()),
        }
    }

    /// That process is reached over wires alone.
    pub(crate) fn is_far(&self, other: &PeerDescriptor) -> bool {
        self.uid != other.uid && !self.shares_memory_with(other)
    }

    /// It is known to have ended, as seen by `own`; of processes elsewhere nothing is known.
    pub(crate) fn has_ended(&self, own: &PeerDescriptor) -> bool {
        self.boot == own.boot && self.pids == own.pids && process::has_ended(self.pid, self.started)
    }

    /// Where that process is, seen from `own`.
    pub(crate) fn status(&self, own: &PeerDescriptor) -> PeerStatus {
        let link = match self {
            _ if self.uid == own.uid => "self".to_owned(),
            _ if own.shares_memory_with(self) => "shm".to_owned(),
            _ => format!("tcp {}", self.place()),
        };
        let rank_status =
            RankStatus { host: self.host.clone(), pid: self.pid, link, process: Process::Unseen };
        PeerStatus { rank_status, network: self.network.clone(), same_boot: self.boot == own.boot }
    }

    /// Its public key.
    pub(crate) fn key(&self) -> Option<Key> {
        self.key.as_deref().and_then(from_hex)
    }

    /// Where it can be found, in words.
    pub(crate) fn place(&self) -> String {
        self.tcp.map_or_else(|| "dials out only".to_owned(), |address| address.to_string())
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a descriptor holds nothing that JSON cannot")
    }

    /// Reads rank `rank`'s descriptor.
    pub(crate) fn decode(rank: usize, bytes: &[u8]) -> Result<PeerDescriptor, EngineError> {
        let descriptor: PeerDescriptor = serde_json::from_slice(bytes).map_err(|e| {
            EngineError::Usage(format!(
                "the descriptor of rank {rank} cannot be read ({e}); do all ranks run the same tweed?"
            ))
        })?;
        if descriptor.protocol != PROTOCOL {
            let theirs = descriptor.protocol;
            return Err(EngineError::Usage(format!(
                "rank {rank} on {} speaks protocol {theirs}, this rank {PROTOCOL}; install the same tweed everywhere",
                descriptor.host
            )));
        }
        Ok(descriptor)
    }
}

/// 128 bits that nobody guesses, and that nobody else has, as hex digits.
pub(crate) fn random_hex() -> std::io::Result<String> {
    let mut bytes = [0u8; 16];
    // SAFETY: the buffer is as long as said.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got != bytes.len() as isize {
        return Err(std::io::Error::last_os_error());
    }
    Ok(hex(&bytes))
}

/// This machine's name.
pub(crate) fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "unknown".into(), |s| s.trim().to_owned())
}
