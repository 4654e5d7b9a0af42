//! What became of contributions that may lose parts.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use tweed_schedule::Rank;

use super::host::Address;

/// So many records are kept until somebody takes them, and so many bytes of lost values; then the oldest go.
const MOST_RECORDS: usize = 4096;
const MOST_LOST_BYTES: usize = 256 << 20;

/// How one operation went, as far as this rank contributed to it in packets, or took in what came in packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// Its number within the group.
    pub operation: u64,
    /// Bytes that this rank contributed.
    pub sent: Share,
    /// Bytes contributed between this rank and each other one, both ways together.
    pub by_rank: BTreeMap<Rank, Share>,
    /// What of this rank's contributions was lost: address, and values as they were sent. Empty unless asked for.
    pub lost: Vec<(usize, Vec<u8>)>,
    /// What of others' contributions did not arrive, in an all-to-all of them: address, and bytes, which are zero.
    pub missing: Vec<(usize, u64)>,
}

/// A number of bytes, and how many of them were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// How many bytes there were.
    pub bytes: u64,
    /// How many bytes did not arrive.
    pub lost: u64,
}

impl Share {
    /// `bytes` bytes, without those that are missing.
    pub(crate) fn new(bytes: u64, missing: &[Range<u32>]) -> Share {
        Share { bytes, lost: missing.iter().map(|range| u64::from(range.end - range.start)).sum() }
    }

    fn add(&mut self, other: Share) {
        self.bytes += other.bytes;
        self.lost += other.lost;
    }
}

impl Delivery {
    /// A contribution to `rank` is through.
    pub(crate) fn note_sent(&mut self, rank: Rank, share: Share) {
        self.sent.add(share);
        self.note_received(rank, share);
    }

    /// A contribution from `rank` is through.
    pub(crate) fn note_received(&mut self, rank: Rank, share: Share) {
        self.by_rank.entry(rank).or_default().add(share);
    }

    /// Keeps what was lost of the values at `data`, as `read` finds them.
    pub(crate) fn keep_lost(
        &mut self,
        data: Address,
        missing: &[Range<u32>],
        read: impl Fn(Address, u64) -> Vec<u8>,
    ) {
        for range in missing {
            let at = data.plus(u64::from(range.start));
            self.lost.push((at.0 as usize, read(at, u64::from(range.end - range.start))));
        }
    }

    fn lost_bytes(&self) -> usize {
        self.lost.iter().map(|(_, values)| values.len()).sum()
    }
}

/// Records that nobody has taken yet, oldest first.
#[derive(Default)]
pub(crate) struct Deliveries {
    records: VecDeque<Delivery>,
    lost_bytes: usize,
}

impl Deliveries {
    /// Keeps a record, if it says anything.
    pub(crate) fn keep(&mut self, record: Delivery) {
        if record.by_rank.is_empty() {
            return;
        }
        self.lost_bytes += record.lost_bytes();
        self.records.push_back(record);
        while self.records.len() > MOST_RECORDS || self.lost_bytes > MOST_LOST_BYTES {
            let Some(oldest) = self.records.pop_front() else { return };
            self.lost_bytes -= oldest.lost_bytes();
        }
    }

    /// Hands the deliveries over, which are forgotten here.
    pub(crate) fn take(&mut self) -> Vec<Delivery> {
        self.lost_bytes = 0;
        std::mem::take(&mut self.records).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(operation: u64, lost_bytes: usize) -> Delivery {
        let mut record = Delivery { operation, ..Delivery::default() };
        record.note_sent(1, Share::new(100, &[0..4, 8..16]));
        record.lost = vec![(0, vec![0; lost_bytes])];
        record
    }

    #[test]
    fn bytes_count_once_for_the_rank_and_once_for_the_peer() {
        let mut record = record(0, 0);
        record.note_received(1, Share { bytes: 50, lost: 50 });
        record.note_received(2, Share::new(50, &[]));
        assert_eq!(record.sent, Share { bytes: 100, lost: 12 });
        assert_eq!(record.by_rank[&1], Share { bytes: 150, lost: 62 });
        assert_eq!(record.by_rank[&2], Share { bytes: 50, lost: 0 });
    }

    #[test]
    fn lost_values_are_copied_from_where_they_were() {
        let mut record = Delivery::default();
        record.keep_lost(Address(100), &[4..8, 16..32], |at, bytes| vec![at.0 as u8; bytes as usize]);
        assert_eq!(record.lost, [(104, vec![104; 4]), (116, vec![116; 16])]);
    }

    #[test]
    fn the_oldest_records_go_first() {
        let mut kept = Deliveries::default();
        (0..MOST_RECORDS as u64 + 3).for_each(|operation| kept.keep(record(operation, 0)));
        assert_eq!(kept.take().first().map(|r| r.operation), Some(3));
        (0..3).for_each(|operation| kept.keep(record(operation, MOST_LOST_BYTES / 2)));
        assert_eq!(kept.take().iter().map(|r| r.operation).collect::<Vec<_>>(), [1, 2]);
        assert!(kept.take().is_empty());
    }

    #[test]
    fn what_says_nothing_is_not_kept() {
        let mut kept = Deliveries::default();
        kept.keep(Delivery::default());
        assert!(kept.take().is_empty());
    }
}
