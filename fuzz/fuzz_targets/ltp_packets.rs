//! Gives any bytes to a link as packets of a peer that breaks the protocol.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/proto/tests/support/pair.rs"]
mod pair;
#[path = "../../crates/proto/tests/support/play.rs"]
mod play;

fuzz_target!(|bytes: &[u8]| play::hostile(bytes));
