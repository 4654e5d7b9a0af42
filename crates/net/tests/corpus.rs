//! What `make fuzz` has found worth keeping, once more: each input of the parsers' corpus.

use tweed_net::parsers::PARSERS;

include!("../../../fuzz/corpus.rs");

#[test]
fn no_parser_panics_on_what_fuzzing_has_found() {
    let mut accepted = [0; PARSERS.len()];
    let found = seeds(include_str!("../../../fuzz/corpus/parsers.hex"));
    for seed in found.chain(seeds(include_str!("../../../fuzz/corpus/parsers-by-hand.hex"))) {
        let Some((which, rest)) = seed.split_first() else { continue };
        let which = usize::from(*which) % PARSERS.len();
        accepted[which] += u32::from(PARSERS[which].1(rest));
    }
    // Else the corpus would be one of noise. The others ask for a version, which may change, or for a secret.
    for ((name, _), times) in PARSERS.iter().zip(accepted) {
        assert!(
            times > 0
                || !matches!(
                    *name,
                    "frame" | "record" | "message" | "member messages" | "witness record" | "objects"
                ),
            "{name} accepts nothing"
        );
    }
}
