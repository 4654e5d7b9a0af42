//! Pieces of a byte stream, each sealed: two bytes of length, then what Noise makes of up to 65519 bytes.
//!
//! Each piece has the next number of its direction in it, so that none can be left out, moved or said again. No key seals
//! more than [`RECORDS_PER_KEY`] pieces: both sides count, and take the next key at the same piece (Noise's rekey, which
//! also keeps the past sealed from who learns a later key).

use std::io;
use std::sync::{Arc, PoisonError, RwLock};

use snow::StatelessTransportState;

const TAG_BYTES: usize = 16;
const HEAD_BYTES: usize = 2;
/// What Noise allows, less the tag.
pub(super) const MOST_PLAIN: usize = 65535 - TAG_BYTES;
/// The longest record as it is on the wire.
pub(crate) const MOST_RECORD: usize = HEAD_BYTES + 65535;

/// As for packets (`ltp::seal`): half of what RFC 9001 (6.6, appendix B) allows for pieces of up to 64 KiB.
pub(super) const RECORDS_PER_KEY: u64 = 1 << 22;

/// The keys of both directions. Each is changed by the side of the connection that uses it, between two of its records.
pub(super) type Keys = Arc<RwLock<StatelessTransportState>>;

/// Seals the records of one direction.
pub(crate) struct Sealer {
    keys: Keys,
    number: u64,
    per_key: u64,
}

impl Sealer {
    pub(super) fn new(keys: Keys, per_key: u64) -> Sealer {
        Sealer { keys, number: 0, per_key }
    }

    /// Appends `plain`, at most `MOST_PLAIN` bytes of it, as one record. Returns how many it took.
    pub(crate) fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> usize {
        let plain = &plain[..plain.len().min(MOST_PLAIN)];
        out.extend_from_slice(&((plain.len() + TAG_BYTES) as u16).to_be_bytes());
        self.seal_bare(plain, out);
        plain.len()
    }

    /// Without the length before it.
    pub(super) fn seal_bare(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        let at = out.len();
        out.resize(at + plain.len() + TAG_BYTES, 0);
        if begins_key(self.number, self.per_key) {
            self.keys.write().unwrap_or_else(PoisonError::into_inner).rekey_outgoing();
        }
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.write_message(self.number, plain, &mut out[at..])
            .expect("the record has room for the tag, and nobody lives to see 2^64 records");
        self.number += 1;
    }
}

/// Opens the records of the other direction.
pub(crate) struct Opener {
    keys: Keys,
    number: u64,
    per_key: u64,
    /// The key for this record has been taken: one that does not open ends the connection, and takes no key twice.
    ready: u64,
}

impl Opener {
    pub(super) fn new(keys: Keys, per_key: u64) -> Opener {
        Opener { keys, number: 0, per_key, ready: 0 }
    }

    /// Opens what a record holds; `into` should be as long as it, or a copy is made.
    pub(crate) fn open(&mut self, sealed: &[u8], into: &mut [u8]) -> io::Result<usize> {
        let broken =
            "a record that its peer has not sealed came in: bytes were changed, left out or repeated";
        if begins_key(self.number, self.per_key) && self.ready < self.number {
            self.ready = self.number;
            self.keys.write().unwrap_or_else(PoisonError::into_inner).rekey_incoming();
        }
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let bytes = keys
            .read_message(self.number, sealed, into)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, broken))?;
        self.number += 1;
        Ok(bytes)
    }
}

/// The record of that number is the first under a key that is not the handshake's.
fn begins_key(number: u64, per_key: u64) -> bool {
    number > 0 && number.is_multiple_of(per_key)
}

/// Where the first record in `bytes` ends; `None` if it is not all there yet.
pub(crate) fn split_record(bytes: &[u8]) -> io::Result<Option<usize>> {
    let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes(*head));
    if length <= TAG_BYTES {
        let text = format!("a record of {length} bytes, too short to be sealed");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(Some(HEAD_BYTES + length).filter(|&end| end <= bytes.len()))
}

/// The sealed part of a whole record.
pub(crate) fn inside(record: &[u8]) -> &[u8] {
    &record[HEAD_BYTES..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secure::handshake::tests::session_pair;

    fn pass(sealer: &mut Sealer, opener: &mut Opener, text: &[u8]) -> io::Result<Vec<u8>> {
        let (mut sealed, mut plain) = (Vec::new(), vec![0; text.len() + TAG_BYTES]);
        sealer.seal(text, &mut sealed);
        let bytes = opener.open(inside(&sealed), &mut plain)?;
        plain.truncate(bytes);
        Ok(plain)
    }

    #[test]
    fn both_sides_change_keys_at_the_same_record_in_both_directions() {
        let [mut a, mut b] = session_pair(3);
        for number in 0..20u8 {
            assert_eq!(pass(&mut a.sealer, &mut b.opener, &[number; 9]).unwrap(), [number; 9]);
            if number % 2 == 0 {
                // The other direction counts for itself.
                assert_eq!(pass(&mut b.sealer, &mut a.opener, &[number]).unwrap(), [number]);
            }
        }
    }

    #[test]
    fn the_keys_do_change() {
        let [mut a, mut b] = session_pair(3);
        b.opener.per_key = RECORDS_PER_KEY;
        let opened: Vec<bool> = (0..5).map(|_| pass(&mut a.sealer, &mut b.opener, b"text").is_ok()).collect();
        assert_eq!(opened, [true, true, true, false, false]);
    }

    #[test]
    fn a_record_that_does_not_open_takes_no_key() {
        let [mut a, mut b] = session_pair(1);
        pass(&mut a.sealer, &mut b.opener, b"first").unwrap();
        assert!(b.opener.open(&[0; 40], &mut [0; 64]).is_err());
        assert!(b.opener.open(&[0; 40], &mut [0; 64]).is_err());
        assert_eq!(pass(&mut a.sealer, &mut b.opener, b"second").unwrap(), b"second");
    }
}
