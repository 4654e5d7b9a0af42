//! Who may come in: closed by default, a secret for other hosts, and strangers turned away without harm.
//!
//! `listener` and `local_listener` let callers in, so many at a time (a `crowd` each); over a `deadline_stream`, they are
//! heard out (`framing`, and the handshakes of `connect`); `pending` is where they wait until a group names them; `refusals`
//! counts those that were turned away.

mod crowd;
pub(crate) mod deadline_stream;
pub(crate) mod listener;
pub(crate) mod local_listener;
pub(crate) mod pending;
mod refusals;

use std::net::IpAddr;
use std::path::PathBuf;

use crate::connect::same_host::network_id;
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
    /// Refuses an address that strangers could reach, unless there is a secret or nobody else in the network.
    pub(crate) fn check(&self, host: IpAddr) -> Result<(), EngineError> {
        if host.is_unspecified() {
            return Err(EngineError::Usage(format!(
                "TWEED_HOST={host} is no address to call: give the one by which the other ranks reach this machine"
            )));
        }
        let shut = host.is_loopback() || self.dial_only || self.secret.is_some();
        if shut || self.testbed.as_ref().is_some_and(|t| *t == network_id()) {
            return Ok(());
        }
        Err(EngineError::Usage(format!(
            "without a secret nothing listens on {host}, where strangers could call. Two ways out: give all ranks the same \
             TWEED_SECRET (make one with: openssl rand -hex 32), or leave TWEED_HOST unset if all ranks run on this machine"
        )))
    }

    /// What proves this process; `None` without a secret.
    pub(crate) fn keys(&self) -> Result<Option<Keys>, EngineError> {
        let Some(secret) = self.secret.clone() else { return Ok(None) };
        Ok(Some(Keys { secret, identity: Identity::open(self.key_file.as_deref())? }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHERS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    #[test]
    fn without_a_secret_only_loopback_is_open() {
        let shut = Admission::default();
        assert_eq!(shut.check([127, 0, 0, 1].into()), Ok(()));
        let text = shut.check(OTHERS).unwrap_err().to_string();
        assert!(text.contains("TWEED_SECRET") && text.contains("TWEED_HOST"), "{text}");
    }

    #[test]
    fn a_secret_or_the_testbed_opens_it() {
        let secret = Some(Secret::new("a secret of sixteen").unwrap());
        assert_eq!(Admission { secret, ..Admission::default() }.check(OTHERS), Ok(()));
        let here = Some(network_id());
        assert_eq!(Admission { testbed: here, ..Admission::default() }.check(OTHERS), Ok(()));
        let elsewhere = Some("net:[1]".to_owned());
        assert!(Admission { testbed: elsewhere, ..Admission::default() }.check(OTHERS).is_err());
    }

    #[test]
    fn an_address_that_nobody_can_call_is_refused() {
        assert!(Admission::default().check([0, 0, 0, 0].into()).is_err());
    }
}
