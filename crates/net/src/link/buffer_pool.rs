//! Buffers to land values in, warm from their last use.

use crate::sync::{LockRank, Mutex};

/// So many buffers are kept, and so many bytes in all.
const MOST_BUFFERS: usize = 64;
const MOST_BYTES: usize = 1 << 30;

/// Any thread may use it.
pub(crate) struct BufferPool {
    buffers: Mutex<Vec<Vec<u8>>>,
}

impl Default for BufferPool {
    fn default() -> BufferPool {
        BufferPool { buffers: Mutex::new(LockRank::BufferPool, Vec::new()) }
    }
}

impl BufferPool {
    /// A buffer of `bytes` bytes; what it holds is of no account.
    pub(crate) fn take(&self, bytes: usize) -> Vec<u8> {
        let mut buffers = self.buffers.lock();
        let fits = |b: &(usize, &Vec<u8>)| b.1.capacity() >= bytes;
        let best = buffers.iter().enumerate().filter(fits).min_by_key(|(_, b)| b.capacity()).map(|(i, _)| i);
        let found = best.map(|index| buffers.swap_remove(index));
        drop(buffers);
        let Some(mut buffer) = found else { return vec![0; bytes] };
        buffer.resize(bytes, 0);
        buffer
    }

    /// Keeps a buffer for the next that needs one.
    pub(crate) fn give(&self, buffer: Vec<u8>) {
        let mut buffers = self.buffers.lock();
        let kept: usize = buffers.iter().map(Vec::capacity).sum();
        if buffers.len() == MOST_BUFFERS || kept + buffer.capacity() > MOST_BYTES {
            return;
        }
        buffers.push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_buffer_that_fits_is_taken() {
        let pool = BufferPool::default();
        [100, 10, 1000].into_iter().for_each(|bytes| pool.give(Vec::with_capacity(bytes)));
        assert_eq!(pool.take(50).capacity(), 100);
        assert_eq!(pool.take(50).capacity(), 1000);
        assert_eq!(pool.take(50), [0; 50]);
    }

    #[test]
    fn no_more_than_so_many_are_kept() {
        let pool = BufferPool::default();
        (0..MOST_BUFFERS + 5).for_each(|_| pool.give(vec![1; 8]));
        assert_eq!((0..MOST_BUFFERS + 5).filter(|_| pool.take(8) == [1; 8]).count(), MOST_BUFFERS);
    }
}
