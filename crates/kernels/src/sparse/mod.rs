//! Choosing numbers of a buffer, and coding where they belong.
//!
//! Magnitudes are compared as integers, which have the order of `|x|`: denormal numbers count, both zeros are equal,
//! infinity comes next and NaN last.

mod bitmap;
mod choose;
mod finite;
mod gaps;
#[cfg(target_arch = "x86_64")]
mod gaps_x86;
mod lanes;
mod places;
mod select;
mod sieve;
mod taken;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use bitmap::{decode_bitmap, encode_bitmap};
pub use choose::{kth_magnitude, nonzero, threshold, top_k};
pub use finite::all_finite;
pub use gaps::{decode_gaps, encode_gaps, gaps_room, GAPS};
pub use places::{gather, scatter_add, Outside};
pub use taken::Taken;
