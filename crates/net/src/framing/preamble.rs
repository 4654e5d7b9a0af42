//! The first bytes of a TCP link, in the clear, the same both ways: it is tweed, of that version, and for what.

use std::io::{Read, Write};

use super::{Refusal, PROTOCOL};

/// No text begins like this, and a proxy that mends line ends is noticed.
const MAGIC: [u8; 8] = *b"\x89tweed\r\n";
/// The magic, two bytes of version, two of the purpose.
pub(crate) const BYTES: usize = 12;

/// What a link is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Ranks of a group, in the clear.
    Open,
    /// Ranks of a group, sealed.
    Sealed,
    /// A hub and a member, sealed.
    Hub,
}

impl Purpose {
    /// The purpose of a connection between ranks.
    pub(crate) fn ranks(sealed: bool) -> Purpose {
        if sealed {
            Purpose::Sealed
        } else {
            Purpose::Open
        }
    }

    fn bytes(self) -> [u8; 2] {
        match self {
            Purpose::Open => [0, 0],
            Purpose::Sealed => [1, 0],
            Purpose::Hub => [1, 1],
        }
    }
}

/// The preamble that this process sends.
pub(crate) fn encode(purpose: Purpose) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&(PROTOCOL as u16).to_be_bytes());
    bytes[10..].copy_from_slice(&purpose.bytes());
    bytes
}

/// Whether theirs fits ours.
pub(crate) fn judge(theirs: &[u8; BYTES], ours: Purpose) -> Result<(), Refusal> {
    if theirs[..8] != MAGIC {
        return Err(Refusal::NotTweed);
    }
    let version = u16::from_be_bytes([theirs[8], theirs[9]]);
    if u32::from(version) != PROTOCOL {
        return Err(Refusal::Version(version));
    }
    let all = [Purpose::Open, Purpose::Sealed, Purpose::Hub];
    match all.into_iter().find(|purpose| purpose.bytes() == theirs[10..]) {
        Some(theirs) if theirs == ours => Ok(()),
        Some(theirs) if theirs == Purpose::Hub || ours == Purpose::Hub => Err(Refusal::Purpose),
        Some(Purpose::Open) => Err(Refusal::Open),
        Some(_) => Err(Refusal::Closed),
        None => Err(Refusal::Garbled("a preamble")),
    }
}

/// Sends ours and reads theirs.
pub(crate) fn exchange(mut wire: impl Read + Write, purpose: Purpose) -> Result<(), Refusal> {
    wire.write_all(&encode(purpose))?;
    let mut theirs = [0; BYTES];
    wire.read_exact(&mut theirs[..MAGIC.len()])?;
    if theirs[..MAGIC.len()] != MAGIC {
        return Err(Refusal::NotTweed);
    }
    wire.read_exact(&mut theirs[MAGIC.len()..])?;
    judge(&theirs, purpose)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mismatch_has_its_own_words() {
        let (open, sealed, hub) = (Purpose::Open, Purpose::Sealed, Purpose::Hub);
        assert_eq!(judge(&encode(sealed), sealed), Ok(()));
        assert_eq!(judge(&encode(sealed), open), Err(Refusal::Closed));
        assert_eq!(judge(&encode(open), sealed), Err(Refusal::Open));
        assert_eq!(judge(&encode(hub), hub), Ok(()));
        assert_eq!(judge(&encode(hub), sealed), Err(Refusal::Purpose));
        assert_eq!(judge(&encode(open), hub), Err(Refusal::Purpose));
        let mut older = encode(sealed);
        older[9] = 0;
        assert_eq!(judge(&older, sealed), Err(Refusal::Version(0)));
        assert_eq!(judge(b"GET / HTTP/1", sealed), Err(Refusal::NotTweed));
        let mut later = encode(sealed);
        later[11] = 7;
        assert_eq!(judge(&later, sealed), Err(Refusal::Garbled("a preamble")));
    }
}
