//! What is said on a connection before both ends know each other, byte by byte.
//!
//! First each side sends a `preamble`, the same both ways: it is tweed, of that version, and wants the link sealed or not.
//! Then come frames (`greeting`), each of a kind that the reader expects: steps of the handshake, greetings, challenges. Who is
//! turned away gets one frame with a byte that says why, and the connection ends.
//!
//! All here reads what a stranger may have sent. So a reader states which kind it wants and how long that may be before it
//! takes memory, anything else is a `Refusal`, and no error tells the stranger more than `Refusal::code`. Nothing here locks,
//! keeps anything, or knows a clock: whoever reads brings a stream that ends in time (`connect::admission::deadline_stream`).

pub(crate) mod greeting;
pub(crate) mod preamble;
mod refusal;

pub(crate) use greeting::MAX_GREETING;
pub(crate) use refusal::Refusal;

/// Changes whenever two versions could not talk to each other.
pub(crate) const PROTOCOL: u32 = 8;
