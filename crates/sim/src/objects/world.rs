//! [`run`]: the loop over events.

mod traffic;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use tweed_proto::objects::{
    Action, Buffer, Bytes, Costs, Fold, Format, Included, Member, Message, ObjectId, Pull, Request, Stream,
    SMALL_BYTES,
};
use tweed_rng::{mix, Rng};
use tweed_schedule::Rank;

use super::content::Content;
use super::cuts::Cuts;
use super::pairs::Pairs;
use super::process::{Serve, SimProcess};
use super::{Outcome, Setup, What};
use crate::clock::{time, Queue, Time};
use crate::network::{Network, Transit};
use crate::SimError;

/// What happens at a moment. The queue moves events about, so what is large lies elsewhere.
enum Event {
    Call(Rank, Box<What>),
    /// A message reaches its receiver, or has been taken in by it.
    Message(Rank, Rank, Box<Message>),
    Taken(Rank, Rank, Box<Message>),
    /// A pull reaches who is to serve it; it is not wanted any more.
    Pulled(Rank, Stream, Box<Pull>),
    Closed(Rank, Rank, Stream),
    /// No more of it is to leave.
    Stop(Rank, Rank, Stream),
    /// A process looks at a pull again.
    Timeout(Rank, Stream),
    /// The first byte of a block reaches its next channel; the last one its receiver, who takes it in.
    Reaches(Box<Block>),
    Arrives(Box<Block>),
    BlockTaken(Box<Block>),
    /// The sender of a block may send another.
    Granted(Rank, (Rank, Stream)),
    Folded(Rank, Box<(Fold, Vec<(u64, u64)>)>),
    Comes(Rank),
    /// A process says hello to one that was there before.
    Met(Rank, Rank),
    Dies(Rank),
    Learns(Rank, Rank),
}

pub(crate) struct Block {
    transit: Transit,
    dst: Rank,
    stream: Stream,
    begin: u64,
    pieces: Vec<(u64, u64)>,
    /// It brings nothing: no more comes of its stream.
    stops: bool,
    /// Counts the blocks of its pair.
    number: u64,
    /// When it was handed to the link, and when its last byte left its sender.
    entered: Time,
    left: Time,
}

/// Runs the setup once.
///
/// # Errors
/// A setup that cannot be run; a value that does not sum what is said to be in it, which is a defect of tweed.
///
/// # Cost
/// About five events per block, and some for each message: a few million a second.
pub fn run(setup: &Setup) -> Result<Outcome, SimError> {
    let (outcome, wrong) = run_unchecked(setup)?;
    wrong.map_or(Ok(outcome), Err)
}

/// What came of it, and what is wrong about that.
pub(crate) fn run_unchecked(setup: &Setup) -> Result<(Outcome, Option<SimError>), SimError> {
    let mut world = World::new(setup)?;
    while let Some((now, event)) = world.queue.pop() {
        world.now = now;
        world.outcome.events += 1;
        world.handle(event)?;
    }
    Ok(world.finish())
}

struct World<'a> {
    setup: &'a Setup,
    now: Time,
    queue: Queue<Event>,
    network: Network,
    cuts: Cuts,
    processes: Vec<SimProcess>,
    costs: Vec<Costs>,
    rng: Rng,
    pairs: Pairs,
    sizes: BTreeMap<ObjectId, u64>,
    waiting: BTreeSet<(Rank, ObjectId)>,
    outcome: Outcome,
}

impl<'a> World<'a> {
    fn new(setup: &'a Setup) -> Result<World<'a>, SimError> {
        let ranks = setup.topology.ranks();
        let mut network = Network::new(&setup.topology).with_headers(setup.header, None);
        let costs = measure(&mut network, ranks, setup.message)?;
        let member = |rank: u32| {
            let there = (0..ranks).filter(|other| !setup.joins.contains_key(other)).map(u64::from);
            let known = there.filter(|_| !setup.joins.contains_key(&rank));
            let mut member = Member::new(rank.into(), known, costs[rank as usize]);
            if setup.keep_logs {
                member.keep_logs();
            }
            SimProcess::new(member)
        };
        let mut world = World {
            setup,
            now: 0,
            queue: Queue::new(),
            network,
            cuts: Cuts::of(setup),
            processes: (0..ranks).map(member).collect(),
            costs: costs.clone(),
            rng: Rng::new(setup.seed),
            pairs: Pairs::new(ranks),
            sizes: BTreeMap::new(),
            waiting: BTreeSet::new(),
            outcome: Outcome::default(),
        };
        let outside =
            |rank: u32| SimError::Setup(format!("process {rank} is not one of the {ranks} of the topology"));
        for (&rank, &at) in &setup.joins {
            world.processes.get(rank as usize).ok_or_else(|| outside(rank))?;
            world.queue.push(time(at), Event::Comes(rank));
        }
        for call in &setup.calls {
            world.processes.get(call.process as usize).ok_or_else(|| outside(call.process))?;
            world.queue.push(time(call.at), Event::Call(call.process, call.what.clone().into()));
        }
        for (&rank, &at) in &setup.deaths {
            world.processes.get(rank as usize).ok_or_else(|| outside(rank))?;
            world.queue.push(time(at), Event::Dies(rank));
        }
        Ok(world)
    }

    fn handle(&mut self, event: Event) -> Result<(), SimError> {
        let at = match event {
            Event::Dies(rank) => return self.die(rank),
            Event::Comes(rank) => return self.come(rank),
            Event::Reaches(block) => return self.forward(block),
            Event::Arrives(block) => return self.arrive(block),
            Event::Call(at, _)
            | Event::Message(_, at, _)
            | Event::Taken(_, at, _)
            | Event::Closed(_, at, _)
            | Event::Stop(_, at, _)
            | Event::Timeout(at, _)
            | Event::Granted(at, _)
            | Event::Folded(at, ..)
            | Event::Met(at, _)
            | Event::Learns(at, _) => at,
            Event::Pulled(_, _, ref pull) => pull.from as Rank,
            Event::BlockTaken(ref block) => block.dst,
        };
        if self.process(at).died.is_some() {
            return Ok(());
        }
        if let Some(goes_on) = self.goes_on(at) {
            self.queue.push(goes_on, event);
            return Ok(());
        }
        self.handle_at(at, event)?;
        self.drive(at)
    }

    /// When a process goes on that stands still now.
    fn goes_on(&self, at: Rank) -> Option<Time> {
        let &(begins, lasts) = self.setup.pauses.get(&at)?;
        let ends = time(begins).saturating_add(time(lasts));
        (time(begins) <= self.now && self.now < ends).then_some(ends)
    }

    /// What happens at a process that lives.
    fn handle_at(&mut self, at: Rank, event: Event) -> Result<(), SimError> {
        let now = self.now;
        match event {
            Event::Call(_, what) => self.call(at, *what),
            Event::Message(from, _, message) => match time(self.setup.message) {
                0 => self.process(at).member.handle_message(from.into(), *message),
                work => {
                    let taken = self.occupy(at, work);
                    self.queue.push(taken, Event::Taken(from, at, message));
                }
            },
            Event::Taken(from, _, message) => self.process(at).member.handle_message(from.into(), *message),
            Event::Pulled(from, stream, pull) => {
                let window = self.window(at, from, pull.block)?;
                let serve = Serve { pull: *pull, window, cursor: pull.offset, under_way: 0 };
                self.process(at).serves.insert((from, stream), serve);
                self.note_fed(at, pull.buffer);
            }
            Event::Closed(from, _, stream) => drop(self.process(at).serves.remove(&(from, stream))),
            Event::Stop(from, _, stream) => {
                self.process(at).serves.remove(&(from, stream));
                self.send_block(at, (from, stream), None)?;
            }
            Event::Timeout(_, stream) => self.process(at).member.handle_timeout(stream),
            Event::BlockTaken(block) => self.take(&block)?,
            Event::Granted(_, to) => {
                if let Some(serve) = self.process(at).serves.get_mut(&to) {
                    serve.under_way -= 1;
                    serve.is_over().then(|| self.process(at).serves.remove(&to));
                }
            }
            Event::Folded(_, folded) => self.folded(at, &folded.0, &folded.1),
            Event::Met(_, newcomer) => self.process(at).member.handle_joined(newcomer.into()),
            Event::Learns(_, dead) => self.process(at).member.handle_lost(dead.into()),
            Event::Comes(_) | Event::Dies(_) | Event::Reaches(_) | Event::Arrives(_) => {
                debug_assert!(false, "{now}: not at a process")
            }
        }
        Ok(())
    }

    /// A call, by the costs that were measured at the process.
    fn call(&mut self, at: Rank, what: What) {
        let costs = self.costs[at as usize];
        match what {
            What::Put { object, size } => {
                self.sizes.insert(object, size);
                let value = value_of(object);
                let process = self.process(at);
                process.contents.insert(Buffer::Object(object), Content::uniform(size, value));
                let bytes = (size <= SMALL_BYTES).then(|| Bytes::from(value.to_le_bytes()));
                process.member.put(object, Format { size, kind: 0 }, size, bytes);
            }
            What::Get { object } => {
                self.waiting.insert((at, object));
                self.process(at).member.get(object);
            }
            What::Reduce { target, ids, count, mode, rule } => {
                self.waiting.insert((at, target));
                let request = Request { target, ids: ids.into(), count, op: 0, mode, rule, costs };
                self.process(at).member.reduce(request);
            }
            What::Delete { object } => self.process(at).member.delete(object),
        }
    }

    /// Carries out all that a process asks for now, and sends the blocks that may leave.
    fn drive(&mut self, at: Rank) -> Result<(), SimError> {
        while let Some(action) = self.process(at).member.poll() {
            self.act(at, action)?;
        }
        let mut next = self.process(at).serves.keys().next().copied();
        while let Some(to) = next {
            self.pump(at, to)?;
            let behind = (Bound::Excluded(to), Bound::Unbounded);
            next = self.process(at).serves.range(behind).next().map(|serve| *serve.0);
        }
        Ok(())
    }

    fn act(&mut self, at: Rank, action: Action) -> Result<(), SimError> {
        let now = Duration::from_nanos(self.now);
        if self.setup.trace {
            self.note(at, &action);
        }
        match action {
            Action::Send { to, message } => {
                self.outcome.messages += 1;
                self.post(at, to as Rank, |at, to| Event::Message(at, to, message.into()))?;
            }
            Action::Open { stream, pull, sink } => {
                self.outcome.pulls += 1;
                self.process(at).open.insert(stream, sink);
                self.process(at).sources.insert(stream, pull.from as Rank);
                self.post(at, pull.from as Rank, |at, _| Event::Pulled(at, stream, pull.into()))?;
            }
            Action::Close { stream } => {
                self.process(at).open.remove(&stream);
                if let Some(from) = self.process(at).sources.remove(&stream) {
                    self.post(at, from, |at, to| Event::Closed(at, to, stream))?;
                }
            }
            Action::Stop { stream } => {
                if let Some(&from) = self.process(at).sources.get(&stream) {
                    self.post(at, from, |at, to| Event::Stop(at, to, stream))?;
                }
            }
            Action::Timer { stream, after } => {
                self.queue.push(self.now.saturating_add(time(after)), Event::Timeout(at, stream));
            }
            Action::Fold(fold) => {
                let pieces = self.process(at).fold(&fold);
                self.queue.push(self.now, Event::Folded(at, (fold, pieces).into()));
            }
            Action::SumSmall { target, parts, .. } => {
                let sum = parts.iter().fold(0u64, |sum, part| sum.wrapping_add(small_value(part)));
                self.sizes.entry(target).or_default();
                self.process(at).member.handle_small_sum(target, Bytes::from(sum.to_le_bytes()));
            }
            Action::Got { object } => self.note_end(at, object, now),
            Action::Reduced { target, included } => {
                self.outcome.included.insert(target, included);
                self.note_end(at, target, now);
            }
            Action::Failed { object, why } => {
                self.waiting.remove(&(at, object));
                self.outcome.failed.push((at, object, why));
            }
            Action::Reset { .. } | Action::Release { .. } | Action::Over { .. } => {}
        }
        Ok(())
    }

    fn note(&mut self, at: Rank, action: &Action) {
        let now = Duration::from_nanos(self.now);
        match action {
            Action::Send { to, message } => {
                self.outcome.trace.push(format!("{now:?} {at} -> {to}: {message:?}"))
            }
            Action::Fold(_) => {}
            other => self.outcome.trace.push(format!("{now:?} {at}: {other:?}")),
        }
    }

    fn note_end(&mut self, at: Rank, object: ObjectId, now: Duration) {
        self.waiting.remove(&(at, object));
        self.outcome.got.entry((at, object)).or_insert(now);
    }

    fn folded(&mut self, at: Rank, fold: &Fold, pieces: &[(u64, u64)]) {
        let Fold { target, slot, generation, ref range, .. } = *fold;
        let process = self.process(at);
        if process.member.readable(fold.sum(), generation) == Some(range.start) {
            process.contents.entry(fold.sum()).or_default().write(range.start, pieces);
        }
        process.member.handle_folded(target, slot, generation, range.end);
    }

    /// A process knows all that are there when it comes, and says hello to each, before anything else.
    fn come(&mut self, rank: Rank) -> Result<(), SimError> {
        if self.process(rank).died.is_some() {
            return Ok(());
        }
        let here = |other: &Rank| {
            let has_come = self.setup.joins.get(other).is_none_or(|&at| time(at) <= self.now);
            *other != rank && has_come && self.processes[*other as usize].died.is_none()
        };
        let others: Vec<Rank> = (0..self.processes.len() as Rank).filter(here).collect();
        for &other in &others {
            self.post(rank, other, |newcomer, at| Event::Met(at, newcomer))?;
        }
        others.into_iter().for_each(|other| self.process(rank).member.handle_joined(other.into()));
        self.drive(rank)
    }

    fn die(&mut self, rank: Rank) -> Result<(), SimError> {
        let (now, detection) = (self.now, time(self.setup.detection));
        if self.process(rank).died.replace(now).is_some() {
            return Ok(());
        }
        for other in (0..self.processes.len() as Rank).filter(|&other| other != rank) {
            let learns = now.saturating_add(detection / 2).saturating_add(self.rng.below(detection));
            self.queue.push(learns, Event::Learns(other, rank));
            self.process(other).serves.retain(|to, _| to.0 != rank);
        }
        self.waiting.retain(|waits| waits.0 != rank);
        Ok(())
    }

    fn process(&mut self, rank: Rank) -> &mut SimProcess {
        &mut self.processes[rank as usize]
    }

    fn finish(mut self) -> (Outcome, Option<SimError>) {
        let wrong = self.outcome.got.keys().find_map(|&(process, object)| self.check(process, object).err());
        for (rank, process) in (0..).zip(&mut self.processes) {
            self.outcome.logs.extend(process.member.take_logs());
            self.outcome.taken.extend(process.taken.iter().map(|(&object, &bytes)| ((rank, object), bytes)));
        }
        self.outcome.pair_bytes = self.pairs.bytes();
        self.outcome.waiting = self.waiting.into_iter().collect();
        (self.outcome, wrong)
    }

    /// A copy must hold what it is said to.
    fn check(&self, rank: Rank, object: ObjectId) -> Result<(), SimError> {
        let process = &self.processes[rank as usize];
        let is_put = self.sizes.contains_key(&object) && !self.outcome.included.contains_key(&object);
        let expected: Included = match self.outcome.included.get(&object) {
            Some(included) => included.clone(),
            None if is_put => vec![(0..self.sizes[&object], vec![object])],
            None => return Ok(()), // of a sum whose caller died
        };
        let small = process.member.bytes(object).map(|bytes| small_value(bytes));
        let size = expected.last().map_or(0, |part| part.0.end);
        let content = match (small, process.contents.get(&Buffer::Object(object))) {
            (Some(value), _) => Content::uniform(size, value),
            (None, found) => found.cloned().unwrap_or_default(),
        };
        for (range, ids) in expected {
            let sum = ids.iter().fold(0u64, |sum, &id| sum.wrapping_add(value_of(id)));
            if content.read(range.clone()).iter().any(|piece| piece.1 != sum) || content.end() < range.end {
                return Err(SimError::WrongObject { process: rank, object: object.to_string(), range });
            }
        }
        Ok(())
    }
}

fn value_of(object: ObjectId) -> u64 {
    mix(object.0 as u64 ^ mix((object.0 >> 64) as u64))
}

fn small_value(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// What a process would measure towards the next few.
fn measure(network: &mut Network, ranks: u32, message: Duration) -> Result<Vec<Costs>, SimError> {
    let one = |rank: Rank| {
        let others = (1..ranks.min(5)).map(|step| (rank + step) % ranks);
        let mut measured = Vec::new();
        for to in others {
            let path = network.pair(rank, to).ok_or(SimError::NoPath { from: rank, to })?;
            measured.push((network.rate(path), network.latency(path)));
        }
        let rate = measured.iter().map(|one| one.0).max().unwrap_or(u64::MAX);
        let latency = Duration::from_nanos(measured.iter().map(|one| one.1).min().unwrap_or(0));
        Ok(Costs { latency, rate, message })
    };
    (0..ranks).map(one).collect()
}
