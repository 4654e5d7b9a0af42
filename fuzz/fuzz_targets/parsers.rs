//! Gives any bytes to one of the parsers that read what strangers may have written; the first byte says which.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tweed_net::parsers::PARSERS;

fuzz_target!(|bytes: &[u8]| {
    if let Some((which, rest)) = bytes.split_first() {
        let (_, parse) = PARSERS[usize::from(*which) % PARSERS.len()];
        parse(rest);
    }
});
