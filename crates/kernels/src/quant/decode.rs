//! Codes to numbers.

use super::form::{Form, Scheme};
use super::lanes::{Lanes, Work, LANES};
use super::stream::{unpack, CHUNK};

/// See [`decode_add`](super::decode_add); slices fit the form.
pub(super) struct DecodeAdd<'a> {
    pub(super) out: &'a mut [f32],
    pub(super) scales: &'a [f32],
    pub(super) codes: &'a [u8],
    pub(super) form: &'a Form,
    pub(super) first: usize,
}

impl Work for DecodeAdd<'_> {
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        // SAFETY: by contract.
        unsafe {
            match self.form.scheme {
                Scheme::Sign => self.chunks::<L, Signs>(),
                _ => self.chunks::<L, Grid>(),
            }
        }
    }
}

impl DecodeAdd<'_> {
    /// Safety: as [`Lanes`].
    #[inline(always)]
    unsafe fn chunks<L: Lanes, C: Codes>(self) {
        let (bits, block) = (self.form.bits, self.form.block);
        let mut codes = C::new();
        let mut at = 0;
        for chunk in self.out.chunks_mut(CHUNK) {
            // SAFETY: by contract; the codes of a chunk begin at its byte.
            unsafe { codes.read::<L>(&self.codes[at * bits as usize / 8..], bits, chunk.len()) };
            let mut from = 0;
            while from < chunk.len() {
                let (number, place) = ((self.first + at + from) / block, (self.first + at + from) % block);
                let to = chunk.len().min(from + block - place);
                // SAFETY: by contract; these codes have been read.
                unsafe { add::<L, C>(&mut chunk[from..to], &codes, from, self.scales[number], self.form) };
                from = to;
            }
            at += chunk.len();
        }
    }
}

/// Adds numbers of one block; `from` is the place of the first one's code in the chunk.
///
/// Safety: as [`Lanes`]; the codes have been read.
#[inline(always)]
unsafe fn add<L: Lanes, C: Codes>(out: &mut [f32], codes: &C, from: usize, scale: f32, form: &Form) {
    let levels = form.levels;
    let (rows, rest) = out.as_chunks_mut::<LANES>();
    // SAFETY: by contract.
    unsafe {
        let (step, middle) = (L::splat(scale / levels as f32), L::splat_integer(levels.wrapping_neg()));
        let mut at = from;
        for row in rows {
            let meant = codes.numbers::<L>(at, step, middle);
            L::store(row.as_mut_ptr(), L::add(L::load(row.as_ptr()), meant));
            at += LANES;
        }
        if !rest.is_empty() {
            let mut pad = [0.0; LANES];
            pad[..rest.len()].copy_from_slice(rest);
            let meant = codes.numbers::<L>(at, step, middle);
            L::store(pad.as_mut_ptr(), L::add(L::load(pad.as_ptr()), meant));
            rest.copy_from_slice(&pad[..rest.len()]);
        }
    }
}

/// The codes of a chunk, where sixteen can be had from any place on.
trait Codes {
    fn new() -> Self;

    /// Safety: as [`Lanes`]; `codes` begins with `count` codes of `bits`, a chunk at most.
    unsafe fn read<L: Lanes>(&mut self, codes: &[u8], bits: u32, count: usize);

    /// What the codes from `at` on stand for; `step` belongs to one, `middle` is added to each.
    ///
    /// Safety: as [`Lanes`]; `at < CHUNK`.
    unsafe fn numbers<L: Lanes>(&self, at: usize, step: L::F, middle: L::I) -> L::F;
}

/// A bit per number, and room for reading four bytes anywhere.
struct Signs([u8; CHUNK / 8 + 4]);

impl Codes for Signs {
    fn new() -> Self {
        Self([0; CHUNK / 8 + 4])
    }

    #[inline(always)]
    unsafe fn read<L: Lanes>(&mut self, codes: &[u8], _bits: u32, count: usize) {
        let bytes = count.div_ceil(8);
        self.0[..bytes].copy_from_slice(&codes[..bytes]);
    }

    #[inline(always)]
    unsafe fn numbers<L: Lanes>(&self, at: usize, step: L::F, _middle: L::I) -> L::F {
        // SAFETY: by contract.
        unsafe {
            let bits = self.0.as_ptr().add(at / 8).cast::<u32>().read_unaligned();
            L::turn(step, u32::from_le(bits) >> (at % 8))
        }
    }
}

/// A byte per number.
struct Grid([u8; CHUNK + LANES]);

impl Codes for Grid {
    fn new() -> Self {
        Self([0; CHUNK + LANES])
    }

    #[inline(always)]
    unsafe fn read<L: Lanes>(&mut self, codes: &[u8], bits: u32, count: usize) {
        // SAFETY: by contract.
        unsafe { unpack::<L>(codes, bits, &mut self.0, count) }
    }

    #[inline(always)]
    unsafe fn numbers<L: Lanes>(&self, at: usize, step: L::F, middle: L::I) -> L::F {
        // SAFETY: by contract.
        unsafe {
            let q = L::add_integers(L::load_bytes(self.0.as_ptr().add(at)), middle);
            L::mul(L::float(q), step)
        }
    }
}
