//! [`Waits`]: what each send and each arrival really waits for.

use std::ops::Range;

use crate::record::{Rank, Send};

/// All that reaches one chunk of one rank in one step; it takes effect together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The rank that it reaches.
    pub rank: Rank,
    /// The chunk that it changes.
    pub chunk: u32,
    /// When, in logical time.
    pub step: u32,
    /// The arrival whose value this one adds to or replaces; none: the value of the start.
    pub previous: Option<usize>,
    members: Range<usize>,
    readers: Range<usize>,
}

/// The waits that follow from the steps of a schedule, derived once for checker and executor.
///
/// A send waits for the arrival whose value it carries ([`Waits::carries`]), and for what its `after`
/// names. An arrival takes effect after its members ([`Waits::members`]), after the arrival before it
/// ([`Arrival::previous`]), and after the sends that still carry the value it changes
/// ([`Waits::readers`]). The size is `O(sends)`; building it takes `O(sends * log(sends))`.
#[derive(Clone, Debug)]
pub struct Waits {
    arrivals: Vec<Arrival>,
    members: Vec<u32>,
    readers: Vec<u32>,
    part_of: Vec<u32>,
    carries: Vec<Option<u32>>,
}

impl Waits {
    /// Derives the waits of sends that are ordered by step.
    pub fn new(sends: &[Send]) -> Waits {
        let members = sorted(sends, |send| (send.dst, send.chunk, send.step, send.src));
        let readers = sorted(sends, |send| (send.src, send.chunk, send.step, send.dst));
        let mut waits = Waits {
            arrivals: Vec::new(),
            members,
            readers,
            part_of: vec![0; sends.len()],
            carries: vec![None; sends.len()],
        };
        waits.collect_arrivals(sends);
        waits.collect_readers(sends);
        waits
    }

    /// Every arrival, ordered by rank, chunk and step.
    pub fn arrivals(&self) -> &[Arrival] {
        &self.arrivals
    }

    /// The sends that make up an arrival, in the order of their sources.
    pub fn members(&self, arrival: usize) -> &[u32] {
        &self.members[self.arrivals[arrival].members.clone()]
    }

    /// The sends that carry the value which an arrival adds to or replaces.
    pub fn readers(&self, arrival: usize) -> &[u32] {
        &self.readers[self.arrivals[arrival].readers.clone()]
    }

    /// The arrival that a send is part of.
    pub fn part_of(&self, send: usize) -> usize {
        self.part_of[send] as usize
    }

    /// The arrival whose value a send carries; none: the value of the start.
    pub fn carries(&self, send: usize) -> Option<usize> {
        self.carries[send].map(|arrival| arrival as usize)
    }

    /// The sends that must have arrived before this one starts, as the steps imply; `after` is not in it.
    pub fn before(&self, send: usize) -> &[u32] {
        self.carries(send).map_or(&[], |arrival| self.members(arrival))
    }

    fn collect_arrivals(&mut self, sends: &[Send]) {
        let mut start = 0;
        let place = |index: u32| (sends[index as usize].dst, sends[index as usize].chunk);
        let step = |index: u32| sends[index as usize].step;
        let together = |&a: &u32, &b: &u32| place(a) == place(b) && step(a) == step(b);
        for group in self.members.chunk_by(together) {
            let (rank, chunk) = place(group[0]);
            let previous = self.arrivals.len().checked_sub(1);
            let previous = previous
                .filter(|&last| (self.arrivals[last].rank, self.arrivals[last].chunk) == (rank, chunk));
            group.iter().for_each(|&send| self.part_of[send as usize] = self.arrivals.len() as u32);
            let members = start..start + group.len();
            start = members.end;
            self.arrivals.push(Arrival {
                rank,
                chunk,
                step: step(group[0]),
                previous,
                members,
                readers: 0..0,
            });
        }
    }

    fn collect_readers(&mut self, sends: &[Send]) {
        let arrivals = &mut self.arrivals;
        for (carried, send) in self.carries.iter_mut().zip(sends) {
            let place = (send.src, send.chunk);
            let later =
                arrivals.partition_point(|a| (a.rank, a.chunk, a.step) < (place.0, place.1, send.step));
            let last =
                later.checked_sub(1).filter(|&last| (arrivals[last].rank, arrivals[last].chunk) == place);
            *carried = last.map(|last| last as u32);
        }
        let readers = &self.readers;
        let up_to = |rank: Rank, chunk: u32, step: u32| {
            readers.partition_point(|&reader| {
                let send = &sends[reader as usize];
                (send.src, send.chunk, send.step) <= (rank, chunk, step)
            })
        };
        for index in 0..arrivals.len() {
            let Arrival { rank, chunk, step, previous, .. } = arrivals[index].clone();
            let start = match previous {
                Some(previous) => up_to(rank, chunk, arrivals[previous].step),
                None => readers.partition_point(|&reader| {
                    (sends[reader as usize].src, sends[reader as usize].chunk) < (rank, chunk)
                }),
            };
            arrivals[index].readers = start..up_to(rank, chunk, step);
        }
    }
}

fn sorted<K: Ord>(sends: &[Send], key: impl Fn(&Send) -> K) -> Vec<u32> {
    let mut order: Vec<u32> = (0..sends.len() as u32).collect();
    order.sort_by_key(|&send| key(&sends[send as usize]));
    order
}
