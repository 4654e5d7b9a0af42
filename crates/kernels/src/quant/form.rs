//! How numbers are written.

use thiserror::Error;

/// What the scale of a block is, and what codes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// One bit: the sign. The scale is the mean magnitude.
    Sign,
    /// Steps up to the largest magnitude.
    Uniform,
    /// Steps up to the l2 norm.
    Levels,
}

/// There is no such form.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("there is no form of {scheme:?} with {bits} bits, blocks of {block} and {levels} levels")]
pub struct NoSuchForm {
    scheme: Scheme,
    bits: u32,
    block: usize,
    levels: u32,
}

/// How numbers are written: scheme, bits per number, numbers per scale, and steps from zero to the scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    pub(super) scheme: Scheme,
    pub(super) bits: u32,
    pub(super) block: usize,
    pub(super) levels: u32,
}

impl Form {
    /// One bit per number for [`Scheme::Sign`], which has one level; else 2 to 8, into which `2 * levels + 1` codes fit.
    pub fn new(scheme: Scheme, bits: u32, block: usize, levels: u32) -> Result<Self, NoSuchForm> {
        let fits = match scheme {
            Scheme::Sign => bits == 1 && levels == 1,
            _ => (2..=8).contains(&bits) && levels >= 1 && levels < 1 << (bits - 1),
        };
        if fits && block > 0 {
            Ok(Self { scheme, bits, block, levels })
        } else {
            Err(NoSuchForm { scheme, bits, block, levels })
        }
    }

    /// Bytes of the codes of `numel` numbers.
    pub fn code_bytes(&self, numel: usize) -> usize {
        (numel * self.bits as usize).div_ceil(8)
    }

    /// Scales of `numel` numbers of which the first is at place `first` of its block.
    pub fn scale_count(&self, numel: usize, first: usize) -> usize {
        if numel == 0 {
            0
        } else {
            (first + numel).div_ceil(self.block)
        }
    }
}
