//! Choosing numbers of a buffer.
//!
//! Magnitudes are compared as integers, which have the order of `|x|`: denormal numbers count, both zeros are equal,
//! infinity comes next and NaN last.

mod choose;
mod finite;
mod lanes;
mod select;
mod sieve;
mod taken;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use choose::{kth_magnitude, nonzero, threshold, top_k};
pub use finite::all_finite;
pub use taken::Taken;
