//! A digest that is the same on every machine (FNV-1a, 64 bits).

use crate::record::{Draft, Send};

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// Over all that a schedule does: not its name, not the topology it was checked against.
pub(crate) fn digest(draft: &Draft) -> u64 {
    let mut hash = Fnv(OFFSET);
    hash.bytes(draft.collective.name().as_bytes());
    for number in [draft.root, draft.ranks, draft.chunks] {
        hash.number(number);
    }
    draft.sends.iter().for_each(|send| hash.send(send));
    hash.0
}

struct Fnv(u64);

impl Fnv {
    fn send(&mut self, send: &Send) {
        for number in [send.step, send.src, send.dst, send.chunk, u32::from(send.reduce)] {
            self.number(number);
        }
        self.list(&send.route);
        self.list(&send.after);
    }

    // The length goes first, so that two lists cannot be read as one.
    fn list(&mut self, numbers: &[u32]) {
        self.number(numbers.len() as u32);
        numbers.iter().for_each(|&number| self.number(number));
    }

    fn number(&mut self, number: u32) {
        self.bytes(&number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(PRIME);
        }
    }
}
