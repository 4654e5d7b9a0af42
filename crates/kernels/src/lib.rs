//! Arithmetic over raw memory: the reductions that collectives are made of, and what compression is made of.
//!
//! The engine sums straight from the shared memory of other processes, so everything here takes raw
//! pointers. Two operations are enough:
//!
//! * [`fold`] reduces any number of sources, element by element, into any number of targets, reading and
//!   writing each byte once;
//! * [`copy`] does the same with one source of opaque bytes.
//!
//! `PREMUL_SUM` needs nothing of its own: multiplying a contribution beforehand is a [`fold`] of that one
//! source with a `scale`.
//!
//! [`columns`] judges numbers that may be hostile, [`products`] compares vectors as wholes, [`sparse`] chooses among them, [`quant`] writes them in a few bits.
//!
//! **Results repeat.** An element's value depends only on its inputs, their order and the scale: not on the
//! instruction set found at run time, and not on how a buffer is cut into calls. (Only the payload and sign
//! of a NaN are left open.) This holds by construction: all instruction sets run the same loop with
//! the same operations per element, and the ends of a buffer go through that loop too, in a padded block.
//!
//! The crate is pure: no threads, no clock, no I/O, no other tweed crate.

mod body;
pub mod columns;
mod dtype;
mod fold;
mod isa;
mod ops;
pub mod products;
pub mod quant;
mod scalar;
pub mod sparse;
mod stream;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use dtype::{DType, ReduceOp, UnknownNumber, Unsupported};
pub use fold::{copy, fold, Target};
pub use isa::InstructionSet;

#[cfg(test)]
mod tests;
