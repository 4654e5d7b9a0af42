//! Who may come in: closed by default, a secret for other hosts, and strangers turned away without harm.
//!
//! `bind_needs_secret` refuses an address where strangers could call. `listener` and `local_listener` let callers in, so
//! many at a time (a `crowd` each); over a `deadline_stream`, they are heard out (`framing`, and the handshakes of
//! `connect`); `pending` is where they wait until a group names them; `refusals` counts those that were turned away.

mod bind_needs_secret;
mod crowd;
pub(crate) mod deadline_stream;
pub(crate) mod listener;
pub(crate) mod local_listener;
pub(crate) mod pending;
mod refusals;

use std::path::PathBuf;

use crate::secure::{Identity, Secret};
use tweed_proto::engine::EngineError;

pub(crate) use refusals::Refusals;

/// What a process lets in.
#[derive(Clone, Debug, Default)]
pub struct Admission {
    /// Admits members over TCP, and has all that they say sealed. `None`: nobody from other hosts.
    pub secret: Option<Secret>,
    /// Keeps this member's key across restarts; `None`: a new key for each process.
    pub key_file: Option<PathBuf>,
    /// Open no listener: this process dials all that share no memory with it.
    pub dial_only: bool,
    /// The network namespace that is a testbed's, where no secret is needed.
    pub testbed: Option<String>,
}

/// What proves a member: the run's secret, and a key of its own.
pub(crate) struct Keys {
    pub(crate) secret: Secret,
    pub(crate) identity: Identity,
}

impl Admission {
    /// What proves this process; `None` without a secret.
    pub(crate) fn keys(&self) -> Result<Option<Keys>, EngineError> {
        let Some(secret) = self.secret.clone() else { return Ok(None) };
        Ok(Some(Keys { secret, identity: Identity::open(self.key_file.as_deref())? }))
    }
}
