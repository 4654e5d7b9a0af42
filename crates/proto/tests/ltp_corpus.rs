//! What `make fuzz` has found worth keeping, once more: each input of the corpora of LTP.

mod support;

use support::play::{hostile, play};

include!("../../../fuzz/corpus.rs");

#[test]
fn links_hold_under_what_fuzzing_has_found() {
    seeds(include_str!("../../../fuzz/corpus/ltp_links.hex")).for_each(|seed| play(&seed));
}

#[test]
fn a_link_survives_the_packets_that_fuzzing_has_found() {
    seeds(include_str!("../../../fuzz/corpus/ltp_packets.hex")).for_each(|seed| hostile(&seed));
}
