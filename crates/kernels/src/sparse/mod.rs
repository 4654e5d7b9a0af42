//! Selecting values of a buffer, and coding where they belong.
//!
//! Magnitudes are compared as integers, which have the order of `|x|`: denormal values count, both zeros are equal,
//! infinity comes next and NaN last.

mod bitmap;
mod filter;
mod finite;
mod gaps;
#[cfg(target_arch = "x86_64")]
mod gaps_x86;
mod kth_largest;
mod lanes;
mod places;
#[cfg(test)]
mod tests;
mod top_k;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use bitmap::{decode_bitmap, encode_bitmap};
pub use filter::Selection;
pub use finite::all_finite;
pub use gaps::{decode_gaps, encode_gaps, gaps_room, GAPS};
pub use places::{gather, scatter_add, Outside};
pub use top_k::{kth_magnitude, nonzero, threshold, top_k};
