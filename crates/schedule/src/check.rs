//! The checker: follows every chunk through the steps and proves the promise.
//!
//! A value is the set of ranks whose contributions it sums. Values are sets and not multisets because
//! a second copy of a contribution is refused where it would arise. Chunks never mix, so they are
//! followed one by one, which keeps the state at `ranks * ranks` bits.

use crate::record::{Draft, Promise, Rank, Send};
use crate::{Hop, Ranks, ScheduleError};

/// The checker holds one bit per pair of ranks: 128 MiB for this many.
const MOST_RANKS: u32 = 1 << 15;

/// Proves that the draft, its sends ordered by step, does what it promises.
///
/// `contributors` are those of each chunk; none: all whom the collective names.
pub(crate) fn check(draft: &Draft, contributors: Option<&[Vec<Rank>]>) -> Result<(), ScheduleError> {
    check_numbers(draft)?;
    contributors.map_or(Ok(()), |lists| check_contributors(draft, lists))?;
    draft.sends.iter().try_for_each(|send| check_send(draft, send))?;
    let mut order: Vec<&Send> = draft.sends.iter().collect();
    order.sort_by_key(|send| send.chunk);
    let mut values = Values::new(draft, contributors);
    let mut rest = &order[..];
    for chunk in 0..draft.chunks {
        let (sends, later) = rest.split_at(rest.partition_point(|send| send.chunk == chunk));
        values.check_chunk(chunk, sends)?;
        rest = later;
    }
    Ok(())
}

fn check_numbers(draft: &Draft) -> Result<(), ScheduleError> {
    let &Draft { collective, root, ranks, chunks, .. } = draft;
    let unit = collective.chunk_unit(ranks);
    let name = collective.name();
    if ranks > MOST_RANKS {
        return Err(ScheduleError::TooManyRanks { ranks, most: MOST_RANKS });
    }
    if ranks == 0 || chunks == 0 || u64::from(chunks) % unit != 0 {
        return Err(ScheduleError::Chunks { collective: name, ranks, chunks, unit });
    }
    if root >= ranks || (root != 0 && !collective.is_rooted()) {
        return Err(ScheduleError::Root { collective: name, root, ranks });
    }
    Ok(())
}

fn check_contributors(draft: &Draft, lists: &[Vec<Rank>]) -> Result<(), ScheduleError> {
    let &Draft { ranks, chunks, .. } = draft;
    let fits =
        |list: &Vec<Rank>| list.is_sorted_by(|a, b| a < b) && list.last().is_some_and(|&last| last < ranks);
    let wrong = lists.iter().position(|list| !fits(list)).map(|chunk| chunk as u32);
    match wrong.or((lists.len() != chunks as usize).then_some(chunks)) {
        Some(chunk) => Err(ScheduleError::Contributors { chunk, ranks, chunks }),
        None => Ok(()),
    }
}

fn check_send(draft: &Draft, send: &Send) -> Result<(), ScheduleError> {
    let at = Hop::of(send);
    let &Draft { ranks, chunks, .. } = draft;
    if let Some(rank) = [send.src, send.dst].into_iter().find(|&rank| rank >= ranks) {
        return Err(ScheduleError::RankOutOfRange { at, rank, ranks });
    }
    if send.chunk >= chunks {
        return Err(ScheduleError::ChunkOutOfRange { at, chunks });
    }
    if send.src == send.dst {
        return Err(ScheduleError::SendToSelf { at });
    }
    let is_real = |&(from, to): &(u32, u32)| match &draft.topology {
        Some(topology) => topology.has_link(from, to),
        None => from != to && from < ranks && to < ranks,
    };
    match send.hops().find(|hop| !is_real(hop)) {
        Some((from, to)) => Err(ScheduleError::NoSuchLink { at, from, to }),
        None => Ok(()),
    }
}

/// What every rank holds of one chunk: a bit per contributor.
struct Values<'a> {
    promise: Promise,
    contributors: Option<&'a [Vec<Rank>]>,
    words: usize,
    bits: Vec<u64>,
    /// The last send that reached each rank.
    last: Vec<Option<&'a Send>>,
    /// Ranks that may hold something; only these are cleared for the next chunk.
    touched: Vec<Rank>,
    /// What the sends of the current step carry.
    carried: Vec<u64>,
}

impl<'a> Values<'a> {
    fn new(draft: &Draft, contributors: Option<&'a [Vec<Rank>]>) -> Self {
        let &Draft { collective, root, ranks, chunks, .. } = draft;
        let words = (ranks as usize).div_ceil(64);
        Values {
            promise: Promise { collective, root, ranks, chunks },
            contributors,
            words,
            bits: vec![0; ranks as usize * words],
            last: vec![None; ranks as usize],
            touched: Vec::new(),
            carried: Vec::new(),
        }
    }

    fn check_chunk(&mut self, chunk: u32, sends: &[&'a Send]) -> Result<(), ScheduleError> {
        self.start(chunk);
        for step in sends.chunk_by(|a, b| a.step == b.step) {
            self.carry(step)?;
            for (at, send) in step.iter().enumerate() {
                self.arrive(send, at)?;
            }
        }
        self.finish(chunk)
    }

    fn start(&mut self, chunk: u32) {
        for rank in std::mem::take(&mut self.touched) {
            self.value_mut(rank).fill(0);
            self.last[rank as usize] = None;
        }
        let origin = match self.contributors {
            Some(lists) => lists[chunk as usize].clone(),
            None => self.ranks_of(self.promise.origin(chunk)).collect(),
        };
        for rank in origin {
            self.value_mut(rank)[rank as usize / 64] |= 1 << (rank % 64);
            self.touched.push(rank);
        }
    }

    /// Reads what the sends of one step carry, before any of them takes effect.
    fn carry(&mut self, step: &[&Send]) -> Result<(), ScheduleError> {
        self.carried.clear();
        for send in step {
            if !self.holds(send.src) {
                return Err(ScheduleError::NotHeld { at: Hop::of(send) });
            }
            let from = send.src as usize * self.words;
            self.carried.extend_from_slice(&self.bits[from..from + self.words]);
        }
        Ok(())
    }

    fn arrive(&mut self, send: &'a Send, at: usize) -> Result<(), ScheduleError> {
        let hop = Hop::of(send);
        if let Some(other) = self.last[send.dst as usize].replace(send) {
            if other.step == send.step && !(other.reduce && send.reduce) {
                return Err(ScheduleError::Collision { at: hop, other: other.src });
            }
        }
        self.touched.push(send.dst);
        if send.reduce && !self.holds(send.dst) {
            return Err(ScheduleError::NothingToAddTo { at: hop });
        }
        let to = send.dst as usize * self.words;
        let value = &mut self.bits[to..to + self.words];
        let carried = &self.carried[at * self.words..][..self.words];
        if !send.reduce {
            value.copy_from_slice(carried);
            return Ok(());
        }
        if let Some(contributor) = first_bit(value.iter().zip(carried).map(|(a, b)| a & b)) {
            return Err(ScheduleError::Twice { at: hop, contributor });
        }
        value.iter_mut().zip(carried).for_each(|(a, b)| *a |= b);
        Ok(())
    }

    fn finish(&self, chunk: u32) -> Result<(), ScheduleError> {
        let wanted: Vec<u64> = (0..self.words).map(|word| self.wanted(chunk, word)).collect();
        for rank in self.ranks_of(self.promise.destination(chunk)) {
            let value = &self.bits[rank as usize * self.words..][..self.words];
            let missing = value.iter().enumerate().map(|(word, held)| wanted[word] & !held);
            if let Some(contributor) = first_bit(missing) {
                let last = self.last[rank as usize].map(Hop::of);
                return Err(ScheduleError::Missing { rank, chunk, contributor, last });
            }
        }
        Ok(())
    }

    /// One word of the set of contributors that a result must have.
    fn wanted(&self, chunk: u32, word: usize) -> u64 {
        if let Some(lists) = self.contributors {
            let here = lists[chunk as usize].iter().filter(|&&rank| rank as usize / 64 == word);
            return here.fold(0, |bits, rank| bits | 1 << (rank % 64));
        }
        match self.promise.origin(chunk) {
            Ranks::One(rank) if rank as usize / 64 == word => 1 << (rank % 64),
            Ranks::One(_) => 0,
            Ranks::All if self.promise.ranks as usize >= (word + 1) * 64 => u64::MAX,
            Ranks::All => (1 << (self.promise.ranks % 64)) - 1,
        }
    }

    fn ranks_of(&self, ranks: Ranks) -> std::ops::Range<Rank> {
        match ranks {
            Ranks::All => 0..self.promise.ranks,
            Ranks::One(rank) => rank..rank + 1,
        }
    }

    fn holds(&self, rank: Rank) -> bool {
        self.bits[rank as usize * self.words..][..self.words].iter().any(|&word| word != 0)
    }

    fn value_mut(&mut self, rank: Rank) -> &mut [u64] {
        &mut self.bits[rank as usize * self.words..][..self.words]
    }
}

fn first_bit(words: impl Iterator<Item = u64>) -> Option<Rank> {
    words
        .enumerate()
        .find(|&(_, word)| word != 0)
        .map(|(index, word)| index as u32 * 64 + word.trailing_zeros())
}
