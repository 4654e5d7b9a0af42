//! Plays any bytes as operations, deliveries, losses and timeouts on two links.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/proto/tests/support/pair.rs"]
mod pair;
#[path = "../../crates/proto/tests/support/play.rs"]
mod play;

fuzz_target!(|bytes: &[u8]| play::play(bytes));
