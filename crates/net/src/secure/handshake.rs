//! The handshake: three messages, after which both sides know that the other has the secret, and who it is.

use std::io::{Read, Write};
use std::sync::{Arc, RwLock};

use snow::{Builder, HandshakeState};

use super::record::{Keys, Opener, Sealer, RECORDS_PER_KEY};
use super::{resolver, Identity, Key, Secret, PATTERN};
use crate::framing::greeting::{self, Kind};
use crate::framing::{preamble, Refusal, MAX_GREETING};

/// A handshake message carries keys, tags and at most a greeting.
const MOST_BYTES: usize = 128 + MAX_GREETING;

/// What a handshake leaves: a key for each direction, used once per connection, and the other side's identity.
pub(crate) struct Session {
    pub(super) sealer: Sealer,
    pub(super) opener: Opener,
    pub(crate) key: Key,
}

impl Session {
    fn new(state: HandshakeState, per_key: u64) -> Result<Session, Refusal> {
        let key =
            state.get_remote_static().and_then(|k| k.try_into().ok()).ok_or(Refusal::Garbled("a key"))?;
        let state = state.into_stateless_transport_mode().map_err(|_| Refusal::Garbled("a handshake"))?;
        let keys: Keys = Arc::new(RwLock::new(state));
        let sealer = Sealer::new(Arc::clone(&keys), per_key);
        Ok(Session { sealer, opener: Opener::new(keys, per_key), key })
    }

    /// What seals and opens what comes after the handshake.
    pub(crate) fn into_directions(self) -> (Sealer, Opener) {
        (self.sealer, self.opener)
    }

    /// A short text, sealed.
    pub(crate) fn seal(&mut self, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        self.sealer.seal_bare(text, &mut out);
        out
    }

    /// The inverse of `seal`, at the other side. Opened by the wrong key, it is the secret that differs.
    pub(crate) fn open(&mut self, sealed: &[u8]) -> Result<Vec<u8>, Refusal> {
        let mut text = vec![0; sealed.len()];
        let bytes = self.opener.open(sealed, &mut text).map_err(|_| Refusal::Secret)?;
        text.truncate(bytes);
        Ok(text)
    }
}

/// What one side brings. `prologue` is bound in: both sides must hold the same.
pub(crate) struct Party<'a> {
    pub(crate) secret: &'a Secret,
    pub(crate) identity: &'a Identity,
    pub(crate) prologue: [u8; preamble::BYTES],
}

impl Party<'_> {
    fn builder(&self) -> Result<Builder<'_>, Refusal> {
        let pattern = PATTERN.parse().expect("a pattern that snow knows");
        Builder::with_resolver(pattern, resolver())
            .psk(3, &self.secret.shared_key)
            .and_then(|b| b.local_private_key(&self.identity.private))
            .and_then(|b| b.prologue(&self.prologue))
            .map_err(|_| Refusal::Garbled("a key"))
    }
}

/// The side that dials. `text` goes with the last message; only who has the secret can read it.
pub(crate) fn call(mut wire: impl Read + Write, party: &Party<'_>, text: &[u8]) -> Result<Session, Refusal> {
    let mut state = party.builder()?.build_initiator().map_err(|_| Refusal::Garbled("a key"))?;
    send(&mut wire, &mut state, &[])?;
    receive(&mut wire, &mut state)?.map_err(|_| Refusal::Garbled("a handshake"))?;
    send(&mut wire, &mut state, text)?;
    Session::new(state, RECORDS_PER_KEY)
}

/// The side that was dialled. Returns the caller's text too. Where the secret differs, `suspect` gets the key of which
/// the caller says that it is its own: nothing proves it, so it may explain why a member is missing, and no more.
pub(crate) fn answer(
    mut wire: impl Read + Write,
    party: &Party<'_>,
    suspect: impl FnOnce(Key),
) -> Result<(Session, Vec<u8>), Refusal> {
    let mut state = party.builder()?.build_responder().map_err(|_| Refusal::Garbled("a key"))?;
    receive(&mut wire, &mut state)?.map_err(|_| Refusal::Garbled("a handshake"))?;
    send(&mut wire, &mut state, &[])?;
    // The secret enters with the third message.
    let Ok(text) = receive(&mut wire, &mut state)? else {
        state.get_remote_static().and_then(|key| key.try_into().ok()).map(suspect);
        return Err(Refusal::Secret);
    };
    Ok((Session::new(state, RECORDS_PER_KEY)?, text))
}

fn send(wire: &mut impl Write, state: &mut HandshakeState, text: &[u8]) -> Result<(), Refusal> {
    let mut message = [0; MOST_BYTES];
    let bytes = state.write_message(text, &mut message).map_err(|_| Refusal::Garbled("a handshake"))?;
    greeting::write(wire, Kind::Step, &message[..bytes])
}

fn receive(
    wire: &mut impl Read,
    state: &mut HandshakeState,
) -> Result<Result<Vec<u8>, snow::Error>, Refusal> {
    let message = greeting::read(wire, Kind::Step, MOST_BYTES)?;
    let mut text = vec![0; MOST_BYTES];
    Ok(state.read_message(&message, &mut text).map(|bytes| {
        text.truncate(bytes);
        text
    }))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Both ends of a connection whose keys change after so many records.
    pub(crate) fn session_pair(per_key: u64) -> [Session; 2] {
        let secret = Secret::new("a secret of sixteen").unwrap();
        let [a, b] = [(); 2].map(|()| Identity::open(None).unwrap());
        let party = |identity| Party {
            secret: &secret,
            identity,
            prologue: preamble::encode(preamble::Purpose::Sealed),
        };
        let (ours, theirs) = (party(&a), party(&b));
        let mut call = ours.builder().unwrap().build_initiator().unwrap();
        let mut answer = theirs.builder().unwrap().build_responder().unwrap();
        for step in 0..3 {
            let (from, to) = if step == 1 { (&mut answer, &mut call) } else { (&mut call, &mut answer) };
            let (mut message, mut text) = ([0; MOST_BYTES], [0; MOST_BYTES]);
            let bytes = from.write_message(&[], &mut message).unwrap();
            to.read_message(&message[..bytes], &mut text).unwrap();
        }
        [call, answer].map(|state| Session::new(state, per_key).unwrap())
    }
}
