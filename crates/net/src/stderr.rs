//! The one place that prints. What cannot be printed is no reason to end: a job's stderr may be a pipe that nobody reads
//! any more, where `eprintln!` panics.

use std::io::Write;

/// Prints one line on stderr, if anybody takes it. Not to be called with a lock held: a full pipe blocks.
pub(crate) fn print_line(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
