//! Everything that reads what a stranger may have written, for `tests/hostile.rs` and `fuzz/` alone.
//!
//! Each takes any bytes and says whether they were accepted. None may panic, or take memory that the bytes ask for.

use std::io::{self, Read, Write};
use std::sync::OnceLock;

use crate::connect::descriptor::PeerDescriptor;
use crate::connect::local_handshake::Greeting;
use crate::framing::greeting::{self, Kind};
use crate::framing::preamble::{self, Purpose};
use crate::framing::MAX_GREETING;
use crate::ltp;
use crate::secure::{answer, call, split_record, Identity, Party, Secret};
use tweed_proto::engine::message::{Message, MESSAGE_BYTES};
use tweed_proto::hub::Assembly;
use tweed_proto::members;
use tweed_proto::objects::Frame;

/// A parser, which says whether it takes the bytes.
pub type Parser = fn(&[u8]) -> bool;

/// All of them, by name.
pub const PARSERS: [(&str, Parser); 13] = [
    ("preamble", |bytes| preamble::exchange(Script(bytes), Purpose::Sealed).is_ok()),
    ("frame", |bytes| greeting::read(bytes, Kind::Greeting, MAX_GREETING).is_ok()),
    ("greeting", |bytes| Greeting::decode(bytes).is_ok()),
    ("descriptor", |bytes| PeerDescriptor::decode(0, bytes).is_ok()),
    ("record", |bytes| split_record(bytes).is_ok_and(|end| end.is_some_and(|end| end <= bytes.len()))),
    ("message", |bytes| bytes.first_chunk::<MESSAGE_BYTES>().is_some_and(|b| Message::decode(b).is_some())),
    ("invitation", ltp::is_invitation),
    ("call", |bytes| party(|party| call(Script(bytes), party, b"hello").is_ok())),
    ("answer", |bytes| party(|party| answer(Script(bytes), party, |_| {}).is_ok())),
    ("hub messages", |bytes| {
        let mut whole = 0;
        Assembly::new(1 << 16).take(bytes, |_| whole += 1).is_ok() && whole > 0
    }),
    ("member messages", |bytes| members::Message::decode(bytes).is_some()),
    ("witness record", |bytes| members::Record::decode(bytes).is_some()),
    ("objects", |bytes| Frame::decode(bytes).is_ok()),
];

/// Says what it was given, whatever it hears.
struct Script<'a>(&'a [u8]);

impl Read for Script<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Script<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn party(meet: impl FnOnce(&Party<'_>) -> bool) -> bool {
    static KEYS: OnceLock<(Secret, Identity)> = OnceLock::new();
    let (secret, identity) = KEYS.get_or_init(|| {
        let secret = Secret::new("nobody guesses this one").expect("it is long enough");
        (secret, Identity::open(None).expect("a key can be made"))
    });
    meet(&Party { secret, identity, prologue: preamble::encode(Purpose::Sealed) })
}
