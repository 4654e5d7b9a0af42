//! What lies in a buffer, without its bytes.

use std::ops::Range;

/// Values of a buffer from its first byte on: each piece up to its end. The value of an object is drawn from its id, that of a
/// sum is the sum (modulo 2^64) of what it is made of. So two buffers that are equal sum the same objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    start: u64,
    pieces: Vec<(u64, u64)>,
}

impl Content {
    /// One value in `0..size`.
    pub(crate) fn uniform(size: u64, value: u64) -> Content {
        Content { start: 0, pieces: vec![(size, value)] }
    }

    /// Up to here there is something.
    pub(crate) fn end(&self) -> u64 {
        self.pieces.last().map_or(self.start, |piece| piece.0)
    }

    /// Puts `pieces` in place of all from `at` on.
    pub(crate) fn write(&mut self, at: u64, pieces: &[(u64, u64)]) {
        while self.pieces.last().is_some_and(|piece| piece.0 > at) {
            let begin = self.pieces.len().checked_sub(2).map_or(self.start, |before| self.pieces[before].0);
            match begin >= at {
                true => drop(self.pieces.pop()),
                false => self.pieces.iter_mut().next_back().into_iter().for_each(|piece| piece.0 = at),
            }
        }
        if self.pieces.is_empty() {
            self.start = at;
        }
        for &piece in pieces {
            match self.pieces.last_mut().filter(|last| last.1 == piece.1) {
                Some(last) => last.0 = piece.0,
                None => self.pieces.push(piece),
            }
        }
    }

    /// The pieces of a range; those that are missing are left out.
    pub(crate) fn read(&self, range: Range<u64>) -> Vec<(u64, u64)> {
        let mut begin = self.start;
        let mut found = Vec::new();
        for &(end, value) in &self.pieces {
            if end > range.start && begin < range.end {
                found.push((end.min(range.end), value));
            }
            begin = end;
        }
        found
    }

    /// The sum over a range of all that is given, each of which must cover it.
    pub(crate) fn sum(range: Range<u64>, parts: &[Vec<(u64, u64)>]) -> Vec<(u64, u64)> {
        let mut edges: Vec<u64> = parts.iter().flatten().map(|piece| piece.0).chain([range.end]).collect();
        edges.sort_unstable();
        edges.dedup();
        let at = |part: &Vec<(u64, u64)>, edge: u64| {
            part.iter().find(|piece| piece.0 >= edge).map_or(0, |piece| piece.1)
        };
        edges
            .iter()
            .map(|&edge| (edge, parts.iter().fold(0u64, |sum, part| sum.wrapping_add(at(part, edge)))))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_before_the_first_begins_there() {
        let mut content = Content::default();
        content.write(10, &[(20, 1)]);
        content.write(0, &[(5, 2)]);
        assert_eq!(content.read(0..5), [(5, 2)]);
    }

    #[test]
    fn a_write_replaces_the_rest() {
        let mut content = Content::default();
        content.write(0, &[(10, 1)]);
        content.write(10, &[(20, 1)]);
        content.write(15, &[(18, 2), (30, 3)]);
        assert_eq!(content.read(0..30), [(15, 1), (18, 2), (30, 3)]);
        assert_eq!(content.read(16..20), [(18, 2), (20, 3)]);
        let sum = Content::sum(16..20, &[content.read(16..20), vec![(20, 10)]]);
        assert_eq!(sum, [(18, 12), (20, 13)]);
        content.write(0, &[(5, 9)]);
        assert_eq!((content.end(), content.read(0..40)), (5, vec![(5, 9)]));
    }
}
