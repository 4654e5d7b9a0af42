//! Memory at a chosen alignment, between guards; and values to fill it with.

use tweed_rng::Rng;

use crate::dtype::DType;

const GUARD: u8 = 0xa5;
const MARGIN: usize = 192;

/// `bytes` bytes whose address is `offset` beyond a multiple of 64.
#[derive(Clone)]
pub(super) struct Buffer {
    storage: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Buffer {
    pub(super) fn new(content: &[u8], offset: usize) -> Self {
        let mut storage = vec![GUARD; content.len() + 2 * MARGIN];
        let start = 64 + storage[64..].as_ptr().addr().wrapping_neg() % 64 + offset % 64;
        storage[start..start + content.len()].copy_from_slice(content);
        Self { storage, start, bytes: content.len() }
    }

    pub(super) fn ptr(&mut self) -> *mut u8 {
        self.storage[self.start..].as_mut_ptr()
    }

    pub(super) fn content(&self) -> &[u8] {
        let (before, rest) = self.storage.split_at(self.start);
        let (content, after) = rest.split_at(self.bytes);
        assert!(before.iter().chain(after).all(|&byte| byte == GUARD), "wrote outside of the buffer");
        content
    }
}

/// A repeatable source of awkward elements.
pub(crate) struct Values(Rng);

impl Values {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Rng::new(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.draw()
    }

    /// `numel` elements: random bits (hence all magnitudes), or near the ends and the middle of the range.
    pub(super) fn elements(&mut self, dtype: DType, numel: usize) -> Vec<u8> {
        (0..numel).flat_map(|_| self.element(dtype).into_iter().take(dtype.size())).collect()
    }

    fn element(&mut self, dtype: DType) -> [u8; 8] {
        let (bits, sign) = (self.next(), 1 << (dtype.size() * 8 - 1));
        let special = match dtype {
            DType::F16 => [0x8000, 0x7c00, 0xfc00, 0x7e00, 0x0001, 0x3c00, 0x3c01, 0x7bff],
            DType::BF16 => [0x8000, 0x7f80, 0xff80, 0x7fc0, 0x0001, 0x3f80, 0x3f81, 0x7f7f],
            DType::F32 => {
                [1 << 31, 0x7f80_0000, 0xff80_0000, 0x7fc0_0000, 1, 0x3f80_0000, 0x3f80_0001, 0x7f7f_ffff]
            }
            DType::F64 => [
                1 << 63,
                0x7ff << 52,
                0xfff << 52,
                0x7ff8 << 48,
                1,
                1023 << 52,
                (1023 << 52) + 1,
                u64::MAX >> 12,
            ],
            _ => [0, 1, 2, 7, u64::MAX, u64::MAX - 6, sign - 1, sign],
        };
        let value = if bits.is_multiple_of(4) { special[(bits >> 32) as usize % 8] } else { bits >> 2 };
        value.to_le_bytes()
    }
}
