//! Without a secret only loopback is bound: any other address is refused, as strangers could call there.

use std::net::IpAddr;

use super::Admission;
use crate::process::namespace;
use tweed_proto::engine::EngineError;

impl Admission {
    /// Refuses an address that strangers could reach, unless there is a secret or nobody else in the network.
    pub(crate) fn check_bind(&self, host: IpAddr) -> Result<(), EngineError> {
        if host.is_unspecified() {
            return Err(EngineError::Usage(format!(
                "TWEED_HOST={host} is no address to call: give the one by which the other ranks reach this machine"
            )));
        }
        let shut = host.is_loopback() || self.dial_only || self.secret.is_some();
        if shut || self.testbed.as_ref().is_some_and(|t| *t == namespace("net")) {
            return Ok(());
        }
        Err(EngineError::Usage(format!(
            "without a secret nothing listens on {host}, where strangers could call. Two ways out: give all ranks the same \
             TWEED_SECRET (make one with: openssl rand -hex 32), or leave TWEED_HOST unset if all ranks run on this machine"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secure::Secret;

    const OTHERS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    #[test]
    fn without_a_secret_only_loopback_is_open() {
        let shut = Admission::default();
        assert_eq!(shut.check_bind([127, 0, 0, 1].into()), Ok(()));
        let text = shut.check_bind(OTHERS).unwrap_err().to_string();
        assert!(text.contains("TWEED_SECRET") && text.contains("TWEED_HOST"), "{text}");
    }

    #[test]
    fn a_secret_or_the_testbed_opens_it() {
        let secret = Some(Secret::new("a secret of sixteen").unwrap());
        assert_eq!(Admission { secret, ..Admission::default() }.check_bind(OTHERS), Ok(()));
        let here = Some(namespace("net"));
        assert_eq!(Admission { testbed: here, ..Admission::default() }.check_bind(OTHERS), Ok(()));
        let elsewhere = Some("net:[1]".to_owned());
        assert!(Admission { testbed: elsewhere, ..Admission::default() }.check_bind(OTHERS).is_err());
    }

    #[test]
    fn an_address_that_nobody_can_call_is_refused() {
        assert!(Admission::default().check_bind([0, 0, 0, 0].into()).is_err());
    }
}
