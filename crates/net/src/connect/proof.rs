//! How two processes that meet in the clear, or over shared memory, prove that they belong to one run.
//!
//! Each process has a random nonce on its descriptor, which goes through the launcher's store. Who calls shows that it
//! has read the nonce of the one that it calls, and who is called that it is the one with that nonce; neither sends it:
//! both sign the same transcript with it, each in its role, over a random challenge of either side. So another user of
//! the host, who sees sockets and ports and no store, neither takes a rank's place nor is taken for one.
//!
//! Neighbours with a secret sign with it too. What it signs is seen by a process of the same user only.

use ring::hmac::{self, Key, HMAC_SHA256};

use crate::secure::{hex, Secret};

/// Who signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Caller,
    Called,
}

/// What both sides sign.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transcript<'a> {
    /// Of the one that is called.
    pub(crate) nonce: &'a str,
    pub(crate) caller: &'a str,
    pub(crate) called: &'a str,
    pub(crate) caller_challenge: &'a str,
    pub(crate) called_challenge: &'a str,
    /// Which call of the caller's, and which of its streams.
    pub(crate) attempt: u64,
    pub(crate) stream: u32,
}

impl Transcript<'_> {
    /// Shows that `role` knows the nonce.
    pub(crate) fn sign(&self, role: Role) -> String {
        hex(hmac::sign(&self.key(), &self.bytes(role)).as_ref())
    }

    /// That is what `role` would have signed.
    pub(crate) fn verify(&self, role: Role, signed: &str) -> bool {
        is_signed(&self.key(), &self.bytes(role), signed)
    }

    /// Shows that `role` has the secret.
    pub(crate) fn sign_with(&self, secret: &Secret, role: Role) -> String {
        hex(hmac::sign(&secret.proof_key, &self.bytes(role)).as_ref())
    }

    /// That is what `role` would have signed with the secret.
    pub(crate) fn verify_with(&self, secret: &Secret, role: Role, signed: &str) -> bool {
        is_signed(&secret.proof_key, &self.bytes(role), signed)
    }

    fn key(&self) -> Key {
        Key::new(HMAC_SHA256, self.nonce.as_bytes())
    }

    /// No two transcripts have the same: each text has its length before it.
    fn bytes(&self, role: Role) -> Vec<u8> {
        let role = if role == Role::Caller { "caller" } else { "called" };
        let (attempt, stream) = (self.attempt.to_string(), self.stream.to_string());
        let texts =
            [role, self.caller, self.called, self.caller_challenge, self.called_challenge, &attempt, &stream];
        texts.iter().flat_map(|t| (t.len() as u32).to_be_bytes().into_iter().chain(t.bytes())).collect()
    }
}

/// Takes as long for any wrong text.
fn is_signed(key: &Key, bytes: &[u8], signed: &str) -> bool {
    crate::secure::from_hex(signed).is_some_and(|tag| hmac::verify(key, bytes, &tag).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: Transcript<'_> = Transcript {
        nonce: "n",
        caller: "a",
        called: "b",
        caller_challenge: "1",
        called_challenge: "2",
        attempt: 1,
        stream: 0,
    };

    #[test]
    fn only_the_same_call_in_the_same_role_is_believed() {
        let signed = CALL.sign(Role::Caller);
        assert!(CALL.verify(Role::Caller, &signed));
        assert!(!CALL.verify(Role::Called, &signed), "a mirror");
        let others = [
            Transcript { nonce: "m", ..CALL },
            Transcript { caller: "c", ..CALL },
            Transcript { called: "c", ..CALL },
            Transcript { caller_challenge: "", called_challenge: "12", ..CALL },
            Transcript { called_challenge: "3", ..CALL },
            Transcript { attempt: 2, ..CALL },
            Transcript { stream: 1, ..CALL },
        ];
        assert!(others.iter().all(|other| !other.verify(Role::Caller, &signed)));
        assert!(!CALL.verify(Role::Caller, "") && !CALL.verify(Role::Caller, &"0".repeat(64)));
    }

    #[test]
    fn a_secret_signs_for_itself() {
        let [ours, other] = ["a secret of sixteen", "another of sixteen"].map(|t| Secret::new(t).unwrap());
        let signed = CALL.sign_with(&ours, Role::Called);
        assert!(CALL.verify_with(&ours, Role::Called, &signed));
        assert!(!CALL.verify_with(&other, Role::Called, &signed));
        assert!(!CALL.verify_with(&ours, Role::Caller, &signed));
    }
}
