//! Sealed links: who knows the secret may talk, and nobody else can read it, change it or say it again.
//!
//! `secret` admits, `identity` names a member, `handshake` makes a session of both (Noise, pattern XXpsk3), `record`
//! seals and opens pieces of a byte stream, and `sealed` is a socket that does so.

mod file;
mod handshake;
mod identity;
mod record;
mod sealed;
mod secret;

pub(crate) use handshake::{answer, call, Party, Session};
pub(crate) use identity::{Identity, Key};
pub(crate) use record::split_record;
pub(crate) use sealed::Sealed;
pub use secret::Secret;

/// How every primitive is called in Noise's own way of naming. Picked by measurement: docs/decisions/0008.
const PATTERN: &str = "Noise_XXpsk3_25519_AESGCM_SHA256";

/// The primitives: *ring* where it has them, for its speed; the curve from *curve25519-dalek*.
fn resolver() -> snow::resolvers::BoxedCryptoResolver {
    use snow::resolvers::{DefaultResolver, FallbackResolver, RingResolver};
    Box::new(FallbackResolver::new(Box::new(RingResolver), Box::new(DefaultResolver)))
}

/// Bytes as text.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The inverse of `hex`, for a key.
pub(crate) fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(bytes)
}
