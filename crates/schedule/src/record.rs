//! The records: [`Send`], [`Draft`], [`Schedule`].

use std::collections::BTreeMap;
use std::sync::Arc;

use thin_vec::ThinVec;

use crate::check::check;
use crate::cycle::check_waits;
use crate::digest::digest;
use crate::{Collective, Hop, Ranks, ScheduleError, Topology};

/// A rank's number within its group.
pub type Rank = u32;

/// Bytes before the items of a [`ThinVec`]: its length and its capacity.
const LIST_HEADER: usize = 2 * size_of::<usize>();

/// One transfer of one chunk.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Send {
    /// Logical time; see the crate's documentation for what it means.
    pub step: u32,
    /// The rank that sends.
    pub src: Rank,
    /// The rank that receives.
    pub dst: Rank,
    /// Which chunk of the buffer.
    pub chunk: u32,
    /// Added to the value at `dst` (`true`) or put in its place (`false`).
    pub reduce: bool,
    /// Nodes between `src` and `dst`, in order; empty for a direct link.
    pub route: ThinVec<u32>,
    /// Indices of sends that this one waits for, beyond what the steps imply. Each must start or end at `src`.
    pub after: ThinVec<u32>,
}

impl Send {
    /// A direct send that waits for nothing beyond what the steps imply.
    pub fn new(step: u32, src: Rank, dst: Rank, chunk: u32, reduce: bool) -> Send {
        let (route, after) = (ThinVec::new(), ThinVec::new());
        Send { step, src, dst, chunk, reduce, route, after }
    }

    /// The links it crosses, in order.
    pub fn hops(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let from = std::iter::once(self.src).chain(self.route.iter().copied());
        from.zip(self.route.iter().copied().chain(std::iter::once(self.dst)))
    }
}

/// A schedule that nobody has checked yet: all that [`Schedule::new`] needs.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The builder's name, for people.
    pub name: String,
    /// What the schedule promises to do.
    pub collective: Collective,
    /// The root of rooted collectives; 0 elsewhere.
    pub root: Rank,
    /// How many ranks take part.
    pub ranks: u32,
    /// Into how many chunks the buffer is cut; a multiple of [`Collective::chunk_unit`].
    pub chunks: u32,
    /// The transfers, in any order; `after` counts in this order.
    pub sends: Vec<Send>,
    /// The links there are; none: each rank has a direct link to each other.
    pub topology: Option<Arc<Topology>>,
}

impl Draft {
    /// Every send waits until the one before it, by step, has gone onto the first link of its way. So a rank sends
    /// in the order of the steps over each link, where it would else send what is ready first. That goes for links
    /// side by side as well: the one before must have begun, and need not have ended.
    ///
    /// The sends must be in the order of their steps, or in any order as long as no two of one link share a step.
    pub fn pinned(mut self) -> Draft {
        self.sends.sort_by_key(|send| send.step);
        let mut last: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        for (index, send) in (0..).zip(&mut self.sends) {
            let link = (send.src, send.route.first().copied().unwrap_or(send.dst));
            if let Some(before) = last.insert(link, index) {
                send.after.reserve_exact(1);
                send.after.push(before);
            }
        }
        self
    }
}

/// A frozen, proven collective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    pub(crate) name: String,
    pub(crate) collective: Collective,
    pub(crate) root: Rank,
    pub(crate) ranks: u32,
    pub(crate) chunks: u32,
    pub(crate) sends: Arc<[Send]>,
    pub(crate) topology: Option<Arc<Topology>>,
    pub(crate) contributors: Option<Arc<[Vec<Rank>]>>,
    pub(crate) digest: u64,
}

impl Schedule {
    /// Proves a draft and freezes it; the sends are ordered by step, those of one step as they came.
    ///
    /// # Errors
    /// What the draft does wrong first, by step, link, rank and chunk.
    ///
    /// # Cost
    /// `O(sends * ranks / 64)`: 0.1 s for a ring of 512 ranks (523,264 sends).
    pub fn new(draft: Draft) -> Result<Schedule, ScheduleError> {
        Schedule::prove(draft, None)
    }

    /// As [`Schedule::new`], for a sum of some: each chunk ends as the sum of exactly its `contributors`, ascending, whatever
    /// ranks it passes. So a collective that forms while it runs proves afterwards what it summed.
    ///
    /// # Errors
    /// As for [`Schedule::new`]; a list for each chunk is needed, of one rank at least.
    pub fn of_contributors(draft: Draft, contributors: Vec<Vec<Rank>>) -> Result<Schedule, ScheduleError> {
        Schedule::prove(draft, Some(contributors))
    }

    fn prove(mut draft: Draft, contributors: Option<Vec<Vec<Rank>>>) -> Result<Schedule, ScheduleError> {
        draft.sends = by_step(draft.sends)?;
        check(&draft, contributors.as_deref())?;
        check_waits(&draft.sends)?;
        let digest = digest(&draft, contributors.as_deref());
        let Draft { name, collective, root, ranks, chunks, sends, topology } = draft;
        let contributors = contributors.map(Arc::from);
        Ok(Schedule {
            name,
            collective,
            root,
            ranks,
            chunks,
            sends: sends.into(),
            topology,
            contributors,
            digest,
        })
    }

    /// The builder's name, for people.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// What the schedule promises to do.
    pub fn collective(&self) -> Collective {
        self.collective
    }
    /// The root of rooted collectives; 0 elsewhere.
    pub fn root(&self) -> Rank {
        self.root
    }
    /// How many ranks take part.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }
    /// Into how many chunks the buffer is cut.
    pub fn chunks(&self) -> u32 {
        self.chunks
    }
    /// The transfers, ordered by step.
    pub fn sends(&self) -> &[Send] {
        &self.sends
    }
    /// Whose contributions the result of each chunk sums, where it is not all of [`Schedule::origin`].
    pub fn contributors(&self) -> Option<&[Vec<Rank>]> {
        self.contributors.as_deref()
    }
    /// The links it was checked against; none: each rank has a direct link to each other.
    pub fn topology(&self) -> Option<&Arc<Topology>> {
        self.topology.as_ref()
    }
    /// Equal on every machine for schedules that do the same; covers all but name and topology.
    pub fn digest(&self) -> u64 {
        self.digest
    }
    /// Bytes of memory that the sends take, with their lists; the topology is shared and not counted.
    pub fn nbytes(&self) -> usize {
        let list = |list: &ThinVec<u32>| match list.capacity() {
            0 => 0,
            room => LIST_HEADER + room * size_of::<u32>(),
        };
        let lists = self.sends.iter().map(|send| list(&send.route) + list(&send.after));
        self.sends.len() * size_of::<Send>() + lists.sum::<usize>()
    }
    /// Whose part `chunk` belongs to, where the buffer has one part per rank; else none.
    pub fn owner(&self, chunk: u32) -> Option<Rank> {
        self.collective.owner(chunk, self.ranks, self.chunks)
    }
    /// `(source, destination)` of `chunk` in an all-to-all; else none.
    pub fn pair(&self, chunk: u32) -> Option<(Rank, Rank)> {
        self.collective.pair(chunk, self.ranks, self.chunks)
    }
    /// Who holds `chunk` at the start, and so whose contributions make its result.
    pub fn origin(&self, chunk: u32) -> Ranks {
        self.promise().origin(chunk)
    }
    /// Who holds the result of `chunk` at the end.
    pub fn destination(&self, chunk: u32) -> Ranks {
        self.promise().destination(chunk)
    }

    /// Does every send leave a rank that held the chunk from the start? An all-to-all of parts of different
    /// sizes must be so: a rank in the middle would not know how large what it hands on is.
    pub fn is_direct(&self) -> bool {
        self.sends.iter().all(|send| self.origin(send.chunk).contains(send.src))
    }

    fn promise(&self) -> Promise {
        Promise { collective: self.collective, root: self.root, ranks: self.ranks, chunks: self.chunks }
    }
}

/// Where each chunk starts and must end. Its numbers have been checked.
#[derive(Clone, Copy)]
pub(crate) struct Promise {
    pub(crate) collective: Collective,
    pub(crate) root: Rank,
    pub(crate) ranks: u32,
    pub(crate) chunks: u32,
}

impl Promise {
    pub(crate) fn origin(self, chunk: u32) -> Ranks {
        use Collective::{AllGather, AllReduce, AllToAll, Broadcast, Gather, Reduce, ReduceScatter, Scatter};
        match self.collective {
            AllReduce | ReduceScatter | Reduce => Ranks::All,
            Broadcast | Scatter => Ranks::One(self.root),
            AllGather | Gather | AllToAll => Ranks::One(self.part(chunk).0),
        }
    }

    pub(crate) fn destination(self, chunk: u32) -> Ranks {
        use Collective::{AllGather, AllReduce, AllToAll, Broadcast, Gather, Reduce, ReduceScatter, Scatter};
        match self.collective {
            AllReduce | AllGather | Broadcast => Ranks::All,
            Reduce | Gather => Ranks::One(self.root),
            ReduceScatter | Scatter | AllToAll => Ranks::One(self.part(chunk).1),
        }
    }

    /// Source and destination of a chunk that belongs to a pair; both are its owner if it belongs to a rank.
    fn part(self, chunk: u32) -> (Rank, Rank) {
        match self.collective.pair(chunk, self.ranks, self.chunks) {
            Some(pair) => pair,
            None => {
                let owner = chunk / (self.chunks / self.ranks);
                (owner, owner)
            }
        }
    }
}

/// Sorts by step and renumbers `after` to match.
fn by_step(mut sends: Vec<Send>) -> Result<Vec<Send>, ScheduleError> {
    for send in &sends {
        if let Some(&index) = send.after.iter().find(|&&index| index as usize >= sends.len()) {
            return Err(ScheduleError::AfterOutOfRange { at: Hop::of(send), index, sends: sends.len() });
        }
    }
    if sends.windows(2).all(|pair| pair[0].step <= pair[1].step) {
        return Ok(sends);
    }
    let mut order: Vec<usize> = (0..sends.len()).collect();
    order.sort_by_key(|&old| sends[old].step);
    let mut place = vec![0u32; sends.len()];
    for (new, &old) in order.iter().enumerate() {
        place[old] = new as u32;
    }
    for send in &mut sends {
        send.after.iter_mut().for_each(|index| *index = place[*index as usize]);
    }
    sends.sort_by_key(|send| send.step);
    Ok(sends)
}
