//! The first bytes of a TCP link, in the clear, the same both ways: it is tweed, of that version, and sealed or not.

use std::io::{Read, Write};

use super::{Refusal, PROTOCOL};

/// No text begins like this, and a proxy that mends line ends is noticed.
const MAGIC: [u8; 8] = *b"\x89tweed\r\n";
/// The magic, two bytes of version, one that is 1 for a sealed link, one that is 0.
pub(crate) const BYTES: usize = 12;

/// Ours.
pub(crate) fn encode(sealed: bool) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&(PROTOCOL as u16).to_be_bytes());
    bytes[10] = u8::from(sealed);
    bytes
}

/// Whether theirs fits ours.
pub(crate) fn judge(theirs: &[u8; BYTES], sealed: bool) -> Result<(), Refusal> {
    if theirs[..8] != MAGIC {
        return Err(Refusal::NotTweed);
    }
    let version = u16::from_be_bytes([theirs[8], theirs[9]]);
    match theirs[10..] {
        _ if u32::from(version) != PROTOCOL => Err(Refusal::Version(version)),
        [0, 0] if sealed => Err(Refusal::Open),
        [1, 0] if !sealed => Err(Refusal::Closed),
        [0 | 1, 0] => Ok(()),
        _ => Err(Refusal::Garbled("a preamble")),
    }
}

/// Sends ours and reads theirs.
pub(crate) fn exchange(mut wire: impl Read + Write, sealed: bool) -> Result<(), Refusal> {
    wire.write_all(&encode(sealed))?;
    let mut theirs = [0; BYTES];
    wire.read_exact(&mut theirs[..MAGIC.len()])?;
    if theirs[..MAGIC.len()] != MAGIC {
        return Err(Refusal::NotTweed);
    }
    wire.read_exact(&mut theirs[MAGIC.len()..])?;
    judge(&theirs, sealed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mismatch_has_its_own_words() {
        assert_eq!(judge(&encode(true), true), Ok(()));
        assert_eq!(judge(&encode(true), false), Err(Refusal::Closed));
        assert_eq!(judge(&encode(false), true), Err(Refusal::Open));
        let mut older = encode(true);
        older[9] = 0;
        assert_eq!(judge(&older, true), Err(Refusal::Version(0)));
        assert_eq!(judge(b"GET / HTTP/1", true), Err(Refusal::NotTweed));
        let mut later = encode(true);
        later[11] = 1;
        assert_eq!(judge(&later, true), Err(Refusal::Garbled("a preamble")));
    }
}
