//! What follows the preamble until the link stands, and how long it may be: frames of a kind, two bytes of length, and
//! the rest.

use std::io::{Read, Write};

use super::Refusal;

/// The longest greeting, and the longest step of a handshake, that is read: so much memory can a peer that has proven
/// nothing yet have taken.
pub(crate) const MAX_GREETING: usize = 4096;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A message of the handshake.
    Step = 1,
    /// One byte: why the caller is turned away.
    Refused = 2,
    /// A greeting, sealed if the link is.
    Greeting = 3,
    /// What a caller that has no secret must sign, with its greeting (`connect::proof`).
    Challenge = 4,
    /// Nothing: from now on a relay hands on what comes from the other end.
    Joined = 5,
}

/// Sends a greeting of this kind.
pub(crate) fn write(mut to: impl Write, kind: Kind, bytes: &[u8]) -> Result<(), Refusal> {
    let mut frame = vec![kind as u8];
    frame.extend((bytes.len() as u16).to_be_bytes());
    frame.extend(bytes);
    Ok(to.write_all(&frame)?)
}

/// Reads one, which must be of that kind and no longer than `most` bytes.
pub(crate) fn read(mut from: impl Read, kind: Kind, most: usize) -> Result<Vec<u8>, Refusal> {
    let mut head = [0; 3];
    from.read_exact(&mut head)?;
    let length = usize::from(u16::from_be_bytes([head[1], head[2]]));
    let refused = head[0] == Kind::Refused as u8 && length == 1;
    if !refused && (head[0] != kind as u8 || length > most) {
        return Err(Refusal::Garbled("an introduction"));
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    if refused {
        return Err(Refusal::received(bytes.first()));
    }
    Ok(bytes)
}
