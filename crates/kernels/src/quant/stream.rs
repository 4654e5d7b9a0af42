//! Codes as a stream of bits, by way of a byte each.

use super::lanes::{Lanes, LANES};

/// Codes that are written or read at a time. Eight of them end with a byte.
pub(super) const CHUNK: usize = 1024;
/// Codes of eight bits or fewer that share whole bytes.
const EIGHT: usize = 8;

/// Calls `$call` with the number of bits as a constant.
macro_rules! with_bits {
    ($bits:expr, $method:ident::<$lanes:ty>($($arg:expr),*)) => {
        match $bits {
            2 => $method::<$lanes, 2>($($arg),*),
            3 => $method::<$lanes, 3>($($arg),*),
            4 => $method::<$lanes, 4>($($arg),*),
            5 => $method::<$lanes, 5>($($arg),*),
            6 => $method::<$lanes, 6>($($arg),*),
            7 => $method::<$lanes, 7>($($arg),*),
            _ => $method::<$lanes, 8>($($arg),*),
        }
    };
}

/// Takes codes as bytes and writes the stream.
pub(super) struct Writer<'a> {
    codes: &'a mut [u8],
    bits: u32,
    held: [u8; CHUNK + EIGHT + LANES],
    count: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn new(codes: &'a mut [u8], bits: u32) -> Self {
        Self { codes, bits, held: [0; CHUNK + EIGHT + LANES], count: 0 }
    }

    /// Where the next codes go: up to `CHUNK`, and as many as a row more that do not count.
    pub(super) fn room(&mut self) -> *mut u8 {
        self.held[self.count..].as_mut_ptr()
    }

    /// `count` codes, at most `CHUNK`, are there.
    ///
    /// Safety: as [`Lanes`].
    #[inline(always)]
    pub(super) unsafe fn took<L: Lanes>(&mut self, count: usize) {
        self.count += count;
        let whole = self.count / EIGHT * EIGHT;
        let codes = std::mem::take(&mut self.codes);
        let (now, later) = codes.split_at_mut(whole * self.bits as usize / 8);
        // SAFETY: by contract; there are as many bytes as eights of codes need.
        unsafe { with_bits!(self.bits, pack::<L>(&self.held[..whole], now)) };
        self.codes = later;
        self.held.copy_within(whole..self.count, 0);
        self.count -= whole;
    }

    /// Writes the last codes, fewer than eight.
    ///
    /// Safety: as [`Lanes`].
    #[inline(always)]
    pub(super) unsafe fn finish<L: Lanes>(mut self) {
        self.held[self.count..EIGHT].fill(0);
        let mut last = [0; EIGHT];
        // SAFETY: by contract.
        unsafe { with_bits!(self.bits, pack::<L>(&self.held[..EIGHT], &mut last[..self.bits as usize])) };
        self.codes.copy_from_slice(&last[..self.codes.len()]);
    }
}

/// Safety: as [`Lanes`]; `codes` holds `BITS` bytes for each eight of `bytes`.
#[inline(always)]
unsafe fn pack<L: Lanes, const BITS: u32>(bytes: &[u8], codes: &mut [u8]) {
    if BITS == 8 {
        return codes.copy_from_slice(bytes);
    }
    let width = BITS as usize;
    let (eights, _) = bytes.as_chunks::<EIGHT>();
    // Words are stored whole and the next one covers what is too much of it; behind the last ones there is no room.
    let (roomy, last) = eights.split_at(eights.len().saturating_sub(EIGHT.div_ceil(width)));
    // SAFETY: by contract; at least a word lies behind the start of each roomy one.
    unsafe {
        for (place, &eight) in roomy.iter().enumerate() {
            let word = L::squeeze::<BITS>(u64::from_le_bytes(eight));
            codes.as_mut_ptr().add(place * width).cast::<u64>().write_unaligned(word.to_le());
        }
        for (&eight, to) in last.iter().zip(codes[roomy.len() * width..].chunks_exact_mut(width)) {
            let word = L::squeeze::<BITS>(u64::from_le_bytes(eight)).to_le_bytes();
            to.copy_from_slice(&word[..width]);
        }
    }
}

/// Puts the first `count` codes of a stream into `bytes`, one each, and up to seven that do not count.
///
/// Safety: as [`Lanes`]; `codes` begins with them.
#[inline(always)]
pub(super) unsafe fn unpack<L: Lanes>(
    codes: &[u8],
    bits: u32,
    bytes: &mut [u8; CHUNK + LANES],
    count: usize,
) {
    // SAFETY: by contract.
    unsafe { with_bits!(bits, unpack_of::<L>(codes, bytes, count)) }
}

/// Safety: as [`unpack`].
#[inline(always)]
unsafe fn unpack_of<L: Lanes, const BITS: u32>(codes: &[u8], bytes: &mut [u8; CHUNK + LANES], count: usize) {
    if BITS == 8 {
        return bytes[..count].copy_from_slice(&codes[..count]);
    }
    let (eights, _) = bytes.as_chunks_mut::<EIGHT>();
    for (place, eight) in eights[..count.div_ceil(EIGHT)].iter_mut().enumerate() {
        let from = &codes[place * BITS as usize..];
        let mut word = [0; EIGHT];
        if let Some(whole) = from.first_chunk::<EIGHT>() {
            word = *whole;
        } else {
            word[..from.len()].copy_from_slice(from);
        }
        // SAFETY: by contract.
        *eight = unsafe { L::spread::<BITS>(u64::from_le_bytes(word)) }.to_le_bytes();
    }
}
