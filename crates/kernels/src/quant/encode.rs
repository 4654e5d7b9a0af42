//! Numbers to codes.

use super::draw::Key;
use super::form::{Form, Scheme};
use super::lanes::{Lanes, Work, LANES};
use super::scale::Block;
use super::stream::{Writer, CHUNK};

/// Blocks up to so many numbers stay in the cache, and the next one is fetched meanwhile.
const CACHED: usize = 1 << 14;

/// See [`encode`](super::encode); slices fit the form.
pub(super) struct Encode<'a> {
    pub(super) x: &'a [f32],
    pub(super) error: Option<&'a mut [f32]>,
    pub(super) form: &'a Form,
    pub(super) key: Option<u64>,
    pub(super) scales: &'a mut [f32],
    pub(super) codes: &'a mut [u8],
}

impl Work for Encode<'_> {
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        // SAFETY: by contract.
        unsafe {
            if self.error.is_some() {
                self.by_scheme::<L, true>();
            } else {
                self.by_scheme::<L, false>();
            }
        }
    }
}

impl Encode<'_> {
    /// Safety: as [`Lanes`]; `FED` tells whether there is an error.
    #[inline(always)]
    unsafe fn by_scheme<L: Lanes, const FED: bool>(mut self) {
        let (codes, form) = (std::mem::take(&mut self.codes), self.form);
        // SAFETY: by contract.
        unsafe {
            match (form.scheme, self.key) {
                (Scheme::Sign, _) => self.blocks::<L, Signs, FED>(Signs { codes, word: 0, count: 0 }),
                (_, Some(key)) => self.blocks::<L, _, FED>(Grid::new(codes, form, Key::new(key))),
                (_, None) => self.blocks::<L, _, FED>(Grid::new(codes, form, Nearest)),
            }
        }
    }

    /// Safety: as `by_scheme`.
    #[inline(always)]
    unsafe fn blocks<L: Lanes, C: Codes, const FED: bool>(mut self, mut codes: C) {
        let (x, block) = (self.x.as_ptr(), self.form.block);
        let error = self.error.as_mut().map_or(std::ptr::null_mut(), |error| error.as_mut_ptr());
        let ahead = if block <= CACHED { block } else { 0 };
        for (number, scale) in self.scales.iter_mut().enumerate() {
            let start = number * block;
            let numel = block.min(self.x.len() - start);
            // SAFETY: the block lies within `x`, and within `error` where that is read.
            unsafe {
                let here = Block { x: x.add(start), error: error.wrapping_add(start), numel };
                *scale = here.scale::<L, FED>(self.form.scheme);
                codes.write::<L, FED>(&Part { here, start, ahead, scale: *scale });
            }
        }
        // SAFETY: by contract.
        unsafe { codes.finish::<L>() };
    }
}

/// A block whose scale is known. With `FED`, `error` holds the numbers that are written, and then what is left.
struct Part {
    here: Block,
    /// The first number's place in the whole.
    start: usize,
    /// How far ahead memory is asked for.
    ahead: usize,
    scale: f32,
}

impl Part {
    /// Calls `on` for each row between two places: with the numbers, where they are, and how many count. It gives
    /// what their codes stand for.
    ///
    /// Safety: as [`Lanes`]; the places lie in the block.
    #[inline(always)]
    unsafe fn rows<L: Lanes, const FED: bool>(
        &self,
        from: usize,
        to: usize,
        mut on: impl FnMut(L::F, usize, usize) -> L::F,
    ) {
        let mut at = from;
        // SAFETY: by contract.
        unsafe {
            while at + 2 * LANES <= to {
                self.row::<L, FED>(at, &mut on);
                self.row::<L, FED>(at + LANES, &mut on);
                at += 2 * LANES;
            }
            if at + LANES <= to {
                self.row::<L, FED>(at, &mut on);
                at += LANES;
            }
            if at < to {
                let mut pad = [0.0; LANES];
                pad.as_mut_ptr().copy_from_nonoverlapping(self.numbers::<FED>().add(at), to - at);
                let v = L::load(pad.as_ptr());
                let meant = on(v, at, to - at);
                if FED {
                    L::store(pad.as_mut_ptr(), L::sub(v, meant));
                    self.here.error.add(at).copy_from_nonoverlapping(pad.as_ptr(), to - at);
                }
            }
        }
    }

    /// Safety: as `rows`; a whole row lies at `at`.
    #[inline(always)]
    unsafe fn row<L: Lanes, const FED: bool>(
        &self,
        at: usize,
        on: &mut impl FnMut(L::F, usize, usize) -> L::F,
    ) {
        // SAFETY: by contract; addresses ahead are not touched.
        unsafe {
            let v = L::load(self.numbers::<FED>().add(at));
            let meant = on(v, at, LANES);
            if FED {
                L::store(self.here.error.add(at), L::sub(v, meant));
                L::prefetch(self.here.error.wrapping_add(at + self.ahead));
            }
            L::prefetch(self.here.x.wrapping_add(at + self.ahead));
        }
    }

    fn numbers<const FED: bool>(&self) -> *const f32 {
        if FED {
            self.here.error
        } else {
            self.here.x
        }
    }
}

/// Writes the codes of one block after the other.
trait Codes {
    /// Safety: as [`Lanes`]; the part's block is valid.
    unsafe fn write<L: Lanes, const FED: bool>(&mut self, part: &Part);

    /// Safety: as [`Lanes`].
    unsafe fn finish<L: Lanes>(self);
}

/// A bit per number. Bits that fill no word wait for more.
struct Signs<'a> {
    codes: &'a mut [u8],
    word: u64,
    count: usize,
}

impl Signs<'_> {
    /// Takes up to 64 bits; those above `count` are zero.
    #[inline(always)]
    fn push(&mut self, bits: u64, count: usize) {
        self.word |= bits << self.count;
        if self.count + count >= 64 {
            let (now, later) = std::mem::take(&mut self.codes).split_at_mut(8);
            now.copy_from_slice(&self.word.to_le_bytes());
            self.codes = later;
            self.word = bits >> 1 >> (63 - self.count);
        }
        self.count = (self.count + count) % 64;
    }
}

impl Codes for Signs<'_> {
    #[inline(always)]
    unsafe fn write<L: Lanes, const FED: bool>(&mut self, part: &Part) {
        const WORD: usize = 64;
        // SAFETY: by contract.
        unsafe {
            let scale = L::splat(part.scale);
            for from in (0..part.here.numel).step_by(WORD) {
                let to = (from + WORD).min(part.here.numel);
                let mut word = 0;
                part.rows::<L, FED>(
                    from,
                    to,
                    #[inline(always)]
                    |v, at, count| {
                        let bits = L::signs(v);
                        word |= u64::from(bits & (u32::MAX >> (32 - count))) << (at - from);
                        L::turn(scale, bits)
                    },
                );
                self.push(word, to - from);
            }
        }
    }

    #[inline(always)]
    unsafe fn finish<L: Lanes>(self) {
        let last = self.word.to_le_bytes();
        self.codes.copy_from_slice(&last[..self.codes.len()]);
    }
}

/// Several bits per number.
struct Grid<'a, R> {
    codes: Writer<'a>,
    levels: u32,
    rounding: R,
}

impl<'a, R> Grid<'a, R> {
    fn new(codes: &'a mut [u8], form: &Form, rounding: R) -> Self {
        Self { codes: Writer::new(codes, form.bits), levels: form.levels, rounding }
    }
}

impl<R: Rounding> Codes for Grid<'_, R> {
    #[inline(always)]
    unsafe fn write<L: Lanes, const FED: bool>(&mut self, part: &Part) {
        let levels = self.levels as f32;
        let inverse = if part.scale > 0.0 { levels / part.scale } else { 0.0 };
        // SAFETY: by contract; a chunk has room for its codes and a row more.
        unsafe {
            let [most, least] = [L::splat(levels), L::splat(-levels)];
            let [inverse, step] = [L::splat(inverse), L::splat(part.scale / levels)];
            let (middle, rounding) = (L::splat_integer(self.levels), self.rounding);
            for from in (0..part.here.numel).step_by(CHUNK) {
                let to = (from + CHUNK).min(part.here.numel);
                let room = self.codes.room();
                part.rows::<L, FED>(
                    from,
                    to,
                    #[inline(always)]
                    |v, at, _| {
                        let place = (part.start + at) as u32;
                        let moved = rounding.moved::<L>(L::mul(v, inverse), place);
                        let q = R::integer::<L>(L::min(L::max(moved, least), most));
                        L::store_bytes(room.add(at - from), L::add_integers(q, middle));
                        L::mul(L::float(q), step)
                    },
                );
                self.codes.took::<L>(to - from);
            }
        }
    }

    #[inline(always)]
    unsafe fn finish<L: Lanes>(self) {
        // SAFETY: by contract.
        unsafe { self.codes.finish::<L>() }
    }
}

/// Which of the two nearest integers stands for a number.
trait Rounding: Copy {
    /// For numbers from `place` on, before they are limited.
    ///
    /// Safety: as [`Lanes`].
    unsafe fn moved<L: Lanes>(self, t: L::F, place: u32) -> L::F;

    /// Safety: as [`Lanes`].
    unsafe fn integer<L: Lanes>(t: L::F) -> L::I;
}

/// Rounds to nearest, ties to even.
#[derive(Clone, Copy)]
struct Nearest;

impl Rounding for Nearest {
    #[inline(always)]
    unsafe fn moved<L: Lanes>(self, t: L::F, _place: u32) -> L::F {
        t
    }

    #[inline(always)]
    unsafe fn integer<L: Lanes>(t: L::F) -> L::I {
        // SAFETY: by contract.
        unsafe { L::nearest(t) }
    }
}

/// Up by a number of [0, 1), then down to an integer.
impl Rounding for Key {
    #[inline(always)]
    unsafe fn moved<L: Lanes>(self, t: L::F, place: u32) -> L::F {
        // SAFETY: by contract.
        unsafe { L::add(t, L::mul(self.draw::<L>(place), L::splat(1.0 / 16_777_216.0))) }
    }

    #[inline(always)]
    unsafe fn integer<L: Lanes>(t: L::F) -> L::I {
        // SAFETY: by contract.
        unsafe { L::floor(t) }
    }
}
