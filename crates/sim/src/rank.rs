//! One simulated rank: its executor, and what its memory holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use tweed_proto::{Action, Combine, Executor, Program, Recorder};
use tweed_schedule::Schedule;

use crate::clock::Time;
use crate::{End, Setup};
use tweed_rng::Rng;

/// What the ranks agree on: where each piece lies among a rank's values, and what they must hold at the end.
#[derive(Debug)]
pub(crate) struct Ground {
    /// The first piece of each chunk, and the number of all pieces.
    first: Vec<usize>,
    /// The result of each chunk.
    results: Vec<u64>,
}

impl Ground {
    pub(crate) fn new(schedule: &Schedule, setup: &Setup) -> Ground {
        let layout = setup.layout(schedule, 0);
        let mut first = vec![0];
        for chunk in 0..schedule.chunks() {
            let slices = layout.slices(chunk) as usize;
            first.push(first[chunk as usize] + slices);
        }
        let result = |chunk| {
            let origin = schedule.origin(chunk);
            let ranks = (0..schedule.ranks()).filter(|&r| origin.contains(r));
            ranks.fold(0, |sum: u64, rank| sum.wrapping_add(contribution(rank, chunk)))
        };
        Ground { first, results: (0..schedule.chunks()).map(result).collect() }
    }

    fn piece(&self, chunk: u32, slice: u32) -> usize {
        self.first[chunk as usize] + slice as usize
    }
}

/// Stands for a rank's numbers in a chunk. Sums of different contributions differ, but for a chance of 2^-64.
fn contribution(rank: u32, chunk: u32) -> u64 {
    Rng::new(u64::from(rank) << 32 | u64::from(chunk)).draw()
}

#[derive(Debug)]
pub(crate) struct SimRank {
    pub(crate) executor: Recorder,
    pub(crate) has_started: bool,
    pub(crate) end: Option<End>,
    pub(crate) died: Option<Time>,
    /// When the arithmetic that was asked for will be done.
    pub(crate) busy_until: Time,
    values: Vec<u64>,
    /// The values staged, by output and place in the window.
    staged: BTreeMap<(u32, u32), u64>,
}

impl SimRank {
    pub(crate) fn new(schedule: &Schedule, program: Program, setup: &Setup, ground: &Ground) -> SimRank {
        let rank = program.rank;
        let executor = Executor::new(Arc::new(program), setup.layout(schedule, rank));
        let mut values = vec![0; *ground.first.last().unwrap_or(&0)];
        for chunk in (0..schedule.chunks()).filter(|&c| schedule.origin(c).contains(rank)) {
            let pieces = ground.first[chunk as usize]..ground.first[chunk as usize + 1];
            values[pieces].fill(contribution(rank, chunk));
        }
        SimRank {
            executor: match setup.record == Some(rank) {
                true => Recorder::recording(executor, schedule),
                false => Recorder::from(executor),
            },
            has_started: false,
            end: None,
            died: None,
            busy_until: 0,
            values,
            staged: BTreeMap::new(),
        }
    }

    /// It takes part: neither dead nor given up.
    pub(crate) fn is_active(&self) -> bool {
        self.died.is_none() && matches!(self.end, None | Some(End::Finished(_)))
    }

    /// What leaves over a wire.
    pub(crate) fn leaving(&self, output: u32, slice: u32, ground: &Ground) -> (u64, u64) {
        let chunk = self.executor.program().outputs[output as usize].chunk;
        let (_, bytes) = self.executor.layout().piece_of(chunk, slice);
        (self.values[ground.piece(chunk, slice)], bytes)
    }

    /// What peers on this host read.
    pub(crate) fn staged(&self, output: u32, slice: u32) -> u64 {
        let cell = self.cell(output, slice);
        self.staged.get(&cell).copied().unwrap_or(0)
    }

    fn cell(&self, output: u32, slice: u32) -> (u32, u32) {
        (output, slice % self.executor.layout().window)
    }

    /// How many bytes an action reads, and the value that it makes.
    pub(crate) fn compute(&self, action: &Action, ground: &Ground) -> (u64, u64) {
        match action {
            Action::Combine(combine) => {
                let input = &self.executor.program().inputs[combine.input as usize];
                let (_, bytes) = self.executor.layout().piece_of(input.chunk, combine.slice);
                let own = input.own.then(|| self.values[ground.piece(input.chunk, combine.slice)]);
                let arrived = self.executor.arrivals(combine.slice, combine.input).iter().flatten();
                let summands = own.into_iter().chain(arrived.map(|a| a.at));
                let (count, sum) = summands.fold((0, 0u64), |(n, sum), v| (n + 1, sum.wrapping_add(v)));
                (bytes * count, sum)
            }
            Action::Stage { output, slice } => {
                let (value, bytes) = self.leaving(*output, *slice, ground);
                (bytes, value)
            }
            Action::Signal(_) | Action::Transmit { .. } => (0, 0),
        }
    }

    /// Writes what an action made.
    pub(crate) fn store(&mut self, action: &Action, value: u64, ground: &Ground) {
        match action {
            Action::Combine(Combine { input, slice, stage, .. }) => {
                let chunk = self.executor.program().inputs[*input as usize].chunk;
                self.values[ground.piece(chunk, *slice)] = value;
                self.staged.extend(stage.map(|output| ((output, *slice), value)));
            }
            Action::Stage { output, slice } => {
                self.staged.insert(self.cell(*output, *slice), value);
            }
            Action::Signal(_) | Action::Transmit { .. } => {}
        }
    }

    /// The first chunk whose result is wrong.
    pub(crate) fn wrong_chunk(&self, schedule: &Schedule, ground: &Ground) -> Option<u32> {
        let rank = self.executor.program().rank;
        let mut kept = (0..schedule.chunks()).filter(|&c| schedule.destination(c).contains(rank));
        kept.find(|&c| {
            let pieces = &self.values[ground.first[c as usize]..ground.first[c as usize + 1]];
            pieces.iter().any(|&value| value != ground.results[c as usize])
        })
    }
}
