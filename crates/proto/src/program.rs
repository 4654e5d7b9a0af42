//! A schedule seen by one rank: what leaves it, what arrives, and what each of them waits for.

mod summation_order;

use std::collections::{BTreeMap, BTreeSet};

use tweed_schedule::{Collective, Rank, Schedule};

use summation_order::collect_inputs;

/// All sends of one value of one chunk. Peers on this host read it from one place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// The number of the chunk.
    pub chunk: u32,
    /// How many arrivals this rank has taken in before: 0 is the value it started with.
    pub version: u32,
    /// `(index of the send in the schedule, receiver)`.
    pub sends: Vec<(u32, Rank)>,
    /// The input that makes this value; `None` for the one the rank started with.
    pub made_by: Option<u32>,
    /// The input that overwrites this value in the rank's buffer.
    pub overwritten_by: Option<u32>,
    /// This value goes to one rank only, and that rank alone sends what replaces it: it may write the answer in place.
    pub answered_in_place: bool,
    /// Inputs and outputs that the schedule's explicit `after` adds.
    pub after: Vec<Wait>,
    /// Outputs whose `after` names this one.
    pub awaited_by: Vec<u32>,
}

/// All arrivals of one chunk in one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// The number of the chunk.
    pub chunk: u32,
    /// The value's version once this is taken in; at least 1.
    pub version: u32,
    /// Summed (`true`) or copied.
    pub reduce: bool,
    /// The rank's own value is one of the summands.
    pub own: bool,
    /// Every rank's contribution is in: what an average divides.
    pub complete: bool,
    /// `(index of the send in the schedule, sender)`, in rank order.
    pub sends: Vec<(u32, Rank)>,
    /// The input before this one on the same chunk.
    pub previous: Option<u32>,
    /// The input after this one on the same chunk.
    pub next: Option<u32>,
    /// Outputs of the value made here.
    pub feeds: Vec<u32>,
    /// Outputs that read the value overwritten here.
    pub overwrites: Vec<u32>,
    /// Outputs whose `after` names this one.
    pub awaited_by: Vec<u32>,
}

/// Something an output waits for beyond its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// This input has been taken in.
    Input(u32),
    /// This output has been exposed.
    Output(u32),
}

/// One rank's part of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The rank whose part it is.
    pub rank: Rank,
    /// How many take part.
    pub ranks: u32,
    /// Into how many chunks the buffer is cut.
    pub chunks: u32,
    /// So many bytes of each chunk are under way at once, at most; `None`: as many as the group lets.
    pub in_flight_bytes: Option<u64>,
    /// Pieces have so many bytes at most; `None`: as many as the group lets.
    pub piece_bytes: Option<u64>,
    /// What leaves, ordered by the step in which it first does.
    pub outputs: Vec<Output>,
    /// What arrives, ordered by step.
    pub inputs: Vec<Input>,
    in_place: bool,
    /// Sends from or to this rank that put one rank's contribution, and nothing else, into a sum; ascending.
    alone: Vec<u32>,
    /// Send index to `(input, position in its sends)`, ordered by send.
    arrivals: Vec<(u32, u32, u32)>,
    /// Send index to `(output, position in its sends)`, ordered by send.
    departures: Vec<(u32, u32, u32)>,
}

impl Program {
    /// The part of `rank` in `schedule`. Cost: linear in the sends of the schedule.
    pub fn compile(schedule: &Schedule, rank: Rank) -> Program {
        let mut parts = collect_parts(schedule, |other| other == rank);
        Program::link(schedule, rank, parts.swap_remove(rank as usize))
    }

    /// The parts of all ranks, in order. Cost: linear in the sends of the schedule, too.
    pub fn compile_all(schedule: &Schedule) -> Vec<Program> {
        let parts = collect_parts(schedule, |_| true);
        let ranks = (0..).zip(parts);
        ranks.map(|(rank, part)| Program::link(schedule, rank, part)).collect()
    }

    fn link(schedule: &Schedule, rank: Rank, part: Part) -> Program {
        let mut program = Program {
            rank,
            ranks: schedule.ranks(),
            chunks: schedule.chunks(),
            in_flight_bytes: None,
            piece_bytes: None,
            outputs: Vec::new(),
            inputs: collect_inputs(schedule, rank, &part),
            in_place: part.in_order,
            alone: part.alone.clone(),
            arrivals: Vec::new(),
            departures: Vec::new(),
        };
        program.link_inputs();
        program.collect_outputs(schedule, &part.outgoing);
        program.link_outputs();
        program.index();
        program.collect_afters(schedule);
        program
    }

    /// Where send number `send` arrives: `(input, position)`. `None` if it does not end here.
    pub fn arrival(&self, send: u32) -> Option<(u32, usize)> {
        let at = self.arrivals.binary_search_by_key(&send, |a| a.0).ok()?;
        Some((self.arrivals[at].1, self.arrivals[at].2 as usize))
    }

    /// Send number `send`, from or to this rank, puts the sender's own contribution into a sum, and nothing of others.
    pub fn is_alone(&self, send: u32) -> bool {
        self.alone.binary_search(&send).is_ok()
    }

    /// The output that send number `send` belongs to. `None` if it does not start here.
    pub fn departure(&self, send: u32) -> Option<u32> {
        self.place_of(send).map(|(output, _)| output)
    }

    /// Where send number `send` starts: `(output, position)`.
    pub(crate) fn place_of(&self, send: u32) -> Option<(u32, usize)> {
        let at = self.departures.binary_search_by_key(&send, |d| d.0).ok()?;
        Some((self.departures[at].1, self.departures[at].2 as usize))
    }

    /// Peers may read this rank's buffer itself ([`Layout::in_place`](crate::Layout::in_place)).
    ///
    /// Not so where the rank sends a value in the very step in which it is overwritten. Two ranks that exchange
    /// the same chunk do that: each would have to read the other's value before it may change its own.
    /// Elsewhere an input waits only for reads of earlier steps, so no wait can be cyclic.
    pub fn allows_in_place(&self) -> bool {
        self.in_place
    }

    fn link_inputs(&mut self) {
        let mut last: BTreeMap<u32, u32> = BTreeMap::new();
        for index in 0..self.inputs.len() {
            let previous = last.insert(self.inputs[index].chunk, index as u32);
            self.inputs[index].previous = previous;
            if let Some(p) = previous {
                self.inputs[p as usize].next = Some(index as u32);
            }
        }
    }

    fn collect_outputs(&mut self, schedule: &Schedule, outgoing: &[u32]) {
        let steps = self.arrival_steps(schedule);
        let mut places: BTreeMap<(u32, u32, &[u32]), usize> = BTreeMap::new();
        for &index in outgoing {
            let send = &schedule.sends()[index as usize];
            let arrived = steps.get(&send.chunk).map_or(0, |s| s.partition_point(|&at| at < send.step));
            let version = arrived as u32;
            let overwritten = steps.get(&send.chunk).and_then(|s| s.get(arrived));
            self.in_place &= overwritten != Some(&send.step);
            // Sends of one value that wait for different things cannot leave together.
            let key = (send.chunk, version, send.after.as_slice());
            let place = *places.entry(key).or_insert(self.outputs.len());
            if place == self.outputs.len() {
                self.outputs.push(Output { chunk: send.chunk, version, ..Output::default() });
            }
            self.outputs[place].sends.push((index, send.dst));
        }
    }

    /// Per chunk, the steps in which something arrives, ascending.
    fn arrival_steps(&self, schedule: &Schedule) -> BTreeMap<u32, Vec<u32>> {
        let mut steps: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for input in &self.inputs {
            let step = schedule.sends()[input.sends[0].0 as usize].step;
            steps.entry(input.chunk).or_default().push(step);
        }
        steps
    }

    fn link_outputs(&mut self) {
        let makers = (0..).zip(&self.inputs).map(|(i, x)| ((x.chunk, x.version), i));
        let makers: BTreeMap<(u32, u32), u32> = makers.collect();
        let mut readers: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        for output in &self.outputs {
            *readers.entry((output.chunk, output.version)).or_default() += 1;
        }
        for (index, output) in self.outputs.iter_mut().enumerate() {
            let key = (output.chunk, output.version);
            output.made_by = makers.get(&key).copied();
            output.overwritten_by = makers.get(&(output.chunk, output.version + 1)).copied();
            if let Some(input) = output.made_by {
                self.inputs[input as usize].feeds.push(index as u32);
            }
            if let Some(input) = output.overwritten_by {
                let input = &mut self.inputs[input as usize];
                input.overwrites.push(index as u32);
                let alone = output.sends.len() == 1 && readers[&key] == 1;
                let replaced = !input.reduce && input.sends.len() == 1;
                let answered = replaced && input.sends[0].1 == output.sends[0].1;
                output.answered_in_place = alone && answered;
            }
        }
    }

    fn index(&mut self) {
        for (i, input) in self.inputs.iter().enumerate() {
            for (position, &(send, _)) in input.sends.iter().enumerate() {
                self.arrivals.push((send, i as u32, position as u32));
            }
        }
        for (o, output) in self.outputs.iter().enumerate() {
            for (position, &(send, _)) in output.sends.iter().enumerate() {
                self.departures.push((send, o as u32, position as u32));
            }
        }
        self.arrivals.sort_unstable();
        self.departures.sort_unstable();
    }

    fn collect_afters(&mut self, schedule: &Schedule) {
        for o in 0..self.outputs.len() {
            let first = self.outputs[o].sends[0].0 as usize;
            let after = &schedule.sends()[first].after;
            let waits: Vec<Wait> = after.iter().filter_map(|&send| self.wait_for(send)).collect();
            for &wait in &waits {
                match wait {
                    Wait::Input(i) => self.inputs[i as usize].awaited_by.push(o as u32),
                    Wait::Output(i) => self.outputs[i as usize].awaited_by.push(o as u32),
                }
            }
            self.outputs[o].after = waits;
        }
    }

    /// How this rank sees send number `send`.
    fn wait_for(&self, send: u32) -> Option<Wait> {
        let input = self.arrival(send).map(|(input, _)| Wait::Input(input));
        input.or_else(|| self.departure(send).map(Wait::Output))
    }
}

/// What of a schedule concerns one rank.
#[derive(Clone, Default)]
struct Part {
    /// Sends that end here, by index.
    incoming: Vec<u32>,
    /// Sends that start here, by index.
    outgoing: Vec<u32>,
    /// `(chunk, version)` of values that hold every rank's contribution.
    complete: BTreeSet<(u32, u32)>,
    /// Sends that put one rank's contribution into a sum, by index.
    alone: Vec<u32>,
    /// No send of the schedule waits for a later step.
    in_order: bool,
}

/// The parts of all ranks; those of ranks that are not wanted stay empty.
fn collect_parts(schedule: &Schedule, wanted: impl Fn(Rank) -> bool) -> Vec<Part> {
    let step = |&other: &u32| schedule.sends()[other as usize].step;
    let in_order = schedule.sends().iter().all(|s| s.after.iter().all(|other| step(other) <= s.step));
    let part = Part { in_order, ..Part::default() };
    let mut parts = vec![part; schedule.ranks() as usize];
    for (index, send) in (0..).zip(schedule.sends()) {
        if wanted(send.dst) {
            parts[send.dst as usize].incoming.push(index);
        }
        if wanted(send.src) {
            parts[send.src as usize].outgoing.push(index);
        }
    }
    use Collective::{AllReduce, Reduce, ReduceScatter};
    if matches!(schedule.collective(), AllReduce | ReduceScatter | Reduce) {
        for (rank, value) in find_complete(schedule).into_iter().filter(|(rank, _)| wanted(*rank)) {
            parts[rank as usize].complete.insert(value);
        }
        for index in find_alone(schedule) {
            let send = &schedule.sends()[index as usize];
            for rank in [send.src, send.dst].into_iter().filter(|&rank| wanted(rank)) {
                parts[rank as usize].alone.push(index);
            }
        }
    }
    parts
}

/// Every sum is formed from what the ranks contribute, and from nothing that was summed before.
pub fn sums_directly(schedule: &Schedule) -> bool {
    schedule.sends().iter().filter(|s| s.reduce).count() == find_alone(schedule).len()
}

/// The sends that put a value into a sum which its sender has held from the start, ascending.
fn find_alone(schedule: &Schedule) -> Vec<u32> {
    let width = schedule.chunks() as usize;
    let place = |rank: Rank, chunk: u32| rank as usize * width + chunk as usize;
    let mut touched = vec![false; schedule.ranks() as usize * width];
    let (mut alone, mut index) = (Vec::new(), 0);
    for step in schedule.sends().chunk_by(|a, b| a.step == b.step) {
        let first = (index..).zip(step).filter(|(_, s)| s.reduce && !touched[place(s.src, s.chunk)]);
        alone.extend(first.map(|(at, _)| at));
        step.iter().for_each(|s| touched[place(s.dst, s.chunk)] = true);
        index += step.len() as u32;
    }
    alone
}

/// `(rank, (chunk, version))` of each value that holds every rank's contribution; counts in lockstep.
fn find_complete(schedule: &Schedule) -> Vec<(Rank, (u32, u32))> {
    let mut found = Vec::new();
    let width = schedule.chunks() as usize;
    let cells = schedule.ranks() as usize * width;
    let place = |rank: Rank, chunk: u32| rank as usize * width + chunk as usize;
    // Per rank and chunk: contributions held, arrivals so far, and the step of the last one.
    let (mut count, mut version, mut seen) = (vec![1u32; cells], vec![0u32; cells], vec![None; cells]);
    for step in schedule.sends().chunk_by(|a, b| a.step == b.step) {
        let carried: Vec<u32> = step.iter().map(|s| count[place(s.src, s.chunk)]).collect();
        for (send, value) in step.iter().zip(carried) {
            let slot = &mut count[place(send.dst, send.chunk)];
            *slot = if send.reduce { *slot + value } else { value };
        }
        for send in step {
            let at = place(send.dst, send.chunk);
            if seen[at].replace(send.step) == Some(send.step) {
                continue;
            }
            version[at] += 1;
            if count[at] == schedule.ranks() {
                found.push((send.dst, (send.chunk, version[at])));
            }
        }
    }
    found
}
