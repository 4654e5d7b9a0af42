//! How a buffer is cut, and how the peers are reached.

/// How a peer gets at what this rank sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It reads this rank's memory.
    Shared,
    /// The bytes are carried to it.
    Wire,
    /// A third process hands on what is carried to it: over streams alone, as it hands on no datagrams.
    Relayed,
}

/// The sizes of one operation. All ranks must hold the same `piece` and `window`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of each chunk; 0 also where this rank never touches it.
    pub chunk_bytes: Vec<u64>,
    /// Chunks are cut into pieces of this many bytes; slice `k` is the `k`-th piece of every chunk.
    pub piece: u64,
    /// At most this many slices are under way at once.
    pub window: u32,
    /// Peers read this rank's buffer itself, not a staged copy. Only where
    /// [`Program::allows_in_place`](crate::Program::allows_in_place).
    pub in_place: bool,
    /// How each rank is reached.
    pub reach: Vec<Reach>,
}

impl Layout {
    /// How many slices chunk `chunk` has; an empty chunk has one, empty.
    pub fn slices(&self, chunk: u32) -> u32 {
        let bytes = self.chunk_bytes[chunk as usize];
        bytes.div_ceil(self.piece).max(1) as u32
    }

    /// Offset and length in bytes of piece `slice` of `chunk`, within the chunk.
    pub fn piece_of(&self, chunk: u32, slice: u32) -> (u64, u64) {
        let bytes = self.chunk_bytes[chunk as usize];
        let start = (u64::from(slice) * self.piece).min(bytes);
        (start, self.piece.min(bytes - start))
    }
}
