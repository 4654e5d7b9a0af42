//! Repair: what is lost of a message follows from what has arrived and a few coded packets, without another round trip.
//!
//! A message is cut into *shards* of equal length, the last one filled up with zeros. A Reed-Solomon code makes *parity
//! shards* of them, each as long as a shard, and any so many shards of both kinds as the message has give all others.
//! First passes are cut at the same places, so that a packet lost is one shard. Which code it is matters to both ends:
//! that of the crate `reed-solomon-simd` (Leopard-RS, over GF(2^16)).

use std::collections::BTreeMap;
use std::ops::Range;

use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

use super::packet::{BadPacket, RepairHead};
use super::ranges::Ranges;

/// No message of more shards is coded: an engine's messages have some fifty, and coding takes time by their number.
pub const MOST_SHARDS: u32 = 255;

/// How one message is coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// Length of the message, in bytes.
    pub total: u32,
    /// Length of a shard, in bytes; even.
    pub shard: u16,
    /// How many parity shards there are; no more than the message has shards.
    pub parity: u8,
}

impl Code {
    /// How many shards the message has.
    pub fn shards(&self) -> u32 {
        self.total.div_ceil(u32::from(self.shard))
    }

    /// The parity shards of `message`. Cost: for 64 KiB, 10 microseconds for 5 of them and 16 for 20.
    ///
    /// # Panics
    /// If `message` is not `total` bytes, or there is no such code: [`RepairHead::decode`] refuses those.
    pub fn encode(&self, message: &[u8]) -> Vec<Vec<u8>> {
        assert_eq!(message.len(), self.total as usize);
        let sizes = (self.shards() as usize, usize::from(self.parity), usize::from(self.shard));
        let mut encoder = ReedSolomonEncoder::new(sizes.0, sizes.1, sizes.2).expect("there is such a code");
        for shard in message.chunks(sizes.2) {
            encoder.add_original_shard(filled(shard, sizes.2)).expect("shards are as long as was said");
        }
        let encoded = encoder.encode().expect("all shards were added");
        encoded.recovery_iter().map(<[u8]>::to_vec).collect()
    }

    fn range(&self, shard: u32) -> Range<u32> {
        let from = shard * u32::from(self.shard);
        from..(from + u32::from(self.shard)).min(self.total)
    }
}

/// A shard in its full length.
fn filled(shard: &[u8], len: usize) -> Vec<u8> {
    let mut whole = shard.to_vec();
    whole.resize(len, 0);
    whole
}

/// What has come of the parity shards of one message.
#[derive(Debug)]
pub(crate) struct Parity {
    code: Code,
    shards: BTreeMap<u8, Vec<u8>>,
}

impl Parity {
    pub(crate) fn new(code: Code) -> Parity {
        Parity { code, shards: BTreeMap::new() }
    }

    /// Keeps a parity shard. All of a message must be of one code, so they take no more memory than it.
    pub(crate) fn keep(&mut self, head: &RepairHead, shard: &[u8]) -> Result<(), BadPacket> {
        if head.code != self.code {
            return Err(BadPacket::Contradiction(head.message));
        }
        self.shards.entry(head.index).or_insert_with(|| shard.to_vec());
        Ok(())
    }

    /// What all of the message follows from, if it does and something of it is missing.
    pub(crate) fn suffices(&mut self, placed: &Ranges) -> Option<Repair> {
        let shard = u32::from(self.code.shard);
        let holes = placed.missing(self.code.total);
        let mut missing: Vec<u32> =
            holes.iter().flat_map(|hole| hole.start / shard..=(hole.end - 1) / shard).collect();
        missing.dedup();
        if missing.is_empty() || missing.len() > self.shards.len() {
            return None;
        }
        Some(Repair { code: self.code, missing, parity: std::mem::take(&mut self.shards) })
    }
}

/// What a message lacks, as it follows from the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    code: Code,
    /// Shards that have not arrived, ascending.
    missing: Vec<u32>,
    parity: BTreeMap<u8, Vec<u8>>,
}

impl Repair {
    /// Length of the message, in bytes.
    pub fn total(&self) -> u32 {
        self.code.total
    }

    /// Puts what is missing into the message's memory, which holds all else. Cost: as [`Code::encode`].
    ///
    /// # Panics
    /// If `memory` is not as long as the message.
    pub fn restore(&self, memory: &mut [u8]) {
        assert_eq!(memory.len(), self.code.total as usize);
        let (shards, shard) = (self.code.shards(), usize::from(self.code.shard));
        let mut decoder = ReedSolomonDecoder::new(shards as usize, usize::from(self.code.parity), shard)
            .expect("there is such a code");
        for index in (0..shards).filter(|index| self.missing.binary_search(index).is_err()) {
            let at = self.code.range(index);
            let there = filled(&memory[at.start as usize..at.end as usize], shard);
            decoder.add_original_shard(index as usize, there).expect("it is added once");
        }
        for (&index, parity) in &self.parity {
            decoder.add_recovery_shard(index.into(), parity).expect("it is added once");
        }
        let decoded = decoder.decode().expect("there are enough shards");
        for (index, restored) in decoded.restored_original_iter() {
            let at = self.code.range(index as u32);
            let at = at.start as usize..at.end as usize;
            memory[at.clone()].copy_from_slice(&restored[..at.len()]);
        }
    }
}
