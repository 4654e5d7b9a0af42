//! Pieces of a byte stream, each sealed: two bytes of length, then what Noise makes of up to 65519 bytes.
//!
//! Each piece has the next number of its direction in it, so that none can be left out, moved or said again.

use std::io;
use std::sync::Arc;

use snow::StatelessTransportState;

const TAG_BYTES: usize = 16;
const HEAD_BYTES: usize = 2;
/// What Noise allows, less the tag.
pub(super) const MOST_PLAIN: usize = 65535 - TAG_BYTES;
/// The longest record as it is on the wire.
pub(super) const MOST_RECORD: usize = HEAD_BYTES + 65535;

/// Seals one direction.
pub(crate) struct Sealer {
    state: Arc<StatelessTransportState>,
    number: u64,
}

impl Sealer {
    pub(super) fn new(state: Arc<StatelessTransportState>) -> Sealer {
        Sealer { state, number: 0 }
    }

    /// Appends `plain`, at most `MOST_PLAIN` bytes of it, as one record. Returns how many it took.
    pub(super) fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> usize {
        let plain = &plain[..plain.len().min(MOST_PLAIN)];
        out.extend_from_slice(&((plain.len() + TAG_BYTES) as u16).to_be_bytes());
        self.seal_bare(plain, out);
        plain.len()
    }

    /// Without the length before it.
    pub(super) fn seal_bare(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        let at = out.len();
        out.resize(at + plain.len() + TAG_BYTES, 0);
        self.state
            .write_message(self.number, plain, &mut out[at..])
            .expect("the record has room for the tag, and nobody lives to see 2^64 records");
        self.number += 1;
    }
}

/// Opens the other.
pub(crate) struct Opener {
    state: Arc<StatelessTransportState>,
    number: u64,
}

impl Opener {
    pub(super) fn new(state: Arc<StatelessTransportState>) -> Opener {
        Opener { state, number: 0 }
    }

    /// Opens what a record holds; `into` should be as long as it, or a copy is made.
    pub(super) fn open(&mut self, sealed: &[u8], into: &mut [u8]) -> io::Result<usize> {
        let broken =
            "a record that its peer has not sealed came in: bytes were changed, left out or repeated";
        let bytes = self
            .state
            .read_message(self.number, sealed, into)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, broken))?;
        self.number += 1;
        Ok(bytes)
    }
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
pub(super) fn inside(record: &[u8]) -> &[u8] {
    &record[HEAD_BYTES..]
}
