//! Sealed links: who knows the secret may talk, and nobody else can read it, change it or say it again.
//!
//! `secret` admits, `identity` names a member, `handshake` makes a session of both, `record` seals and opens pieces of a
//! byte stream, and `sealed` is a socket that does so. `file` reads and writes what only its owner may see.
//!
//! # Theory of operation
//!
//! A link begins with a handshake (Noise, pattern XXpsk3) on the thread that makes the link, over a stream that ends in
//! time:
//!
//! 1. caller -> called: an ephemeral key;
//! 2. called -> caller: one of its own, and its identity;
//! 3. caller -> called: its identity, and a text. The secret enters here: who has another cannot open it.
//!
//! After step 3 the called side knows that the caller has the secret. The caller knows it of the called one when it has
//! opened the greeting that follows. Each side knows the other's public key; `connect` compares it with the descriptor.
//!
//! A [`Session`] is then two directions, each with a count of records. A record carries no number: both sides count, so
//! one that was left out, repeated, moved or changed does not open. That ends the connection. Every `RECORDS_PER_KEY`
//! records a direction takes its next key, at the same record on both sides.
//!
//! A [`Sealed`] socket never blocks. Sending: small pieces are *gathered* into one record, and what is sealed is
//! *pending* until the kernel takes it; no more is taken while `PENDING_BYTES` are pending. Receiving: a *raw* record
//! becomes *plain* once it is whole.
//!
//! Locks: `outgoing` and `incoming`, one per direction, never both; under either, `Keys`, which both directions share, to
//! read for a record, to write for a new key. Nothing else is locked under them.
//!
//! What cannot happen: two records under one key and number; plain bytes of a record that did not open whole; a record
//! that does not open takes a key; memory in proportion to what a peer claims.

mod file;
mod handshake;
mod identity;
mod record;
mod sealed;
mod secret;

pub(crate) use handshake::{answer, call, Party, Session};
pub(crate) use identity::{Held, Identity, Key};
pub(crate) use record::{inside, split_record, Opener, Sealer, MOST_RECORD};
pub(crate) use sealed::Sealed;
pub use secret::Secret;

/// How every primitive is called in Noise's own way of naming. Picked by measurement: docs/decisions/0008.
const PATTERN: &str = "Noise_XXpsk3_25519_AESGCM_SHA256";

/// The primitives: *ring* where it has them, for its speed; the curve from *curve25519-dalek*.
fn resolver() -> snow::resolvers::BoxedCryptoResolver {
    use snow::resolvers::{DefaultResolver, FallbackResolver, RingResolver};
    Box::new(FallbackResolver::new(Box::new(RingResolver), Box::new(DefaultResolver)))
}

/// The bytes as hexadecimal text.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The inverse of `hex`, for a key.
pub fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(bytes)
}
