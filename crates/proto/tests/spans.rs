//! Spans of a buffer with equally many missing summands, against a count per byte.

use std::ops::Range;

use proptest::prelude::*;
use tweed_proto::spans;

const BYTES: u32 = 64;

/// Ranges of one summand: ascending and apart, as a receiver reports them.
fn ranges() -> impl Strategy<Value = Vec<Range<u32>>> {
    prop::collection::btree_set(0..=BYTES, 0..12).prop_map(|cuts| {
        let cuts: Vec<u32> = cuts.into_iter().collect();
        cuts.chunks_exact(2).map(|pair| pair[0]..pair[1]).collect()
    })
}

proptest! {
    #[test]
    fn every_byte_has_the_count_of_a_plain_look(missing in prop::collection::vec(ranges(), 0..9)) {
        let parts: Vec<&[Range<u32>]> = missing.iter().map(Vec::as_slice).collect();
        let found = spans(BYTES, &parts);
        prop_assert_eq!(found[0].range.start, 0);
        prop_assert_eq!(found[found.len() - 1].range.end, BYTES);
        prop_assert!(found.windows(2).all(|w| w[0].range.end == w[1].range.start && w[0].absent != w[1].absent));
        for span in found {
            for byte in span.range {
                let absent = missing.iter().filter(|ranges| ranges.iter().any(|r| r.contains(&byte))).count();
                prop_assert_eq!(span.absent as usize, absent);
            }
        }
    }
}

#[test]
fn an_empty_buffer_has_no_spans() {
    assert!(spans(0, &[&[], &[]]).is_empty());
}
