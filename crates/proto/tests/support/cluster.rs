//! Ranks in one process: a queue per directed link, memory under watch, and an order of events drawn from a seed.

use std::collections::BTreeSet;
use std::sync::Arc;

use tweed_proto::{Action, Arrival, Combine, Executor, Layout, Notice, Program, Ready, Recorder, Signal};
use tweed_schedule::{Rank, Schedule};

use super::memory::{Memory, Place, Stamp};
use super::reference::{self, Values};
use tweed_rng::Rng;

/// What travels on a link.
#[derive(Clone, Copy, Debug)]
enum Message {
    Ready { slice: u32, send: u32, ready: Ready },
    Read { slice: u32, send: u32 },
}

/// What the number in an [`Arrival`] means.
#[derive(Clone, Debug)]
enum Source {
    Peer(Rank, Place, Stamp),
    Bytes(Vec<f32>),
}

/// An action under way.
struct Running {
    action: Action,
    /// Places that must stay as they are until it ends.
    reads: Vec<(Rank, Place, Stamp)>,
    writes: Vec<(Rank, Place, Stamp)>,
    result: Vec<f32>,
    /// What goes over a wire has been put on its link.
    left: bool,
}

struct Node {
    executor: Recorder,
    running: Vec<Running>,
    may_poll: bool,
    /// `ready` signals that must still come before anything can happen, as the executor said.
    missing: u32,
    taken: Option<Vec<Vec<f32>>>,
    /// `(send, slice)` that this rank has taken in, or that have left it.
    seen: BTreeSet<(u32, u32)>,
}

#[derive(Clone, Copy)]
enum Choice {
    Poll(usize),
    Finish(usize, usize),
    Deliver(usize),
}

pub struct Cluster {
    schedule: Schedule,
    nodes: Vec<Node>,
    memories: Vec<Memory>,
    links: Vec<Vec<Message>>,
    sources: Vec<Source>,
    rng: Rng,
    /// Messages of one link arrive in the order in which they left.
    in_order: bool,
    expected: Values,
}

impl Cluster {
    /// All ranks at the start of `schedule`, each with its own layout; the seed draws the order of events.
    pub fn new(schedule: &Schedule, layouts: &[Layout], seed: u64) -> Cluster {
        let lengths: Vec<usize> = layouts[0].chunk_bytes.iter().map(|&b| b as usize).collect();
        let start = reference::start(schedule, &lengths);
        let memories = (0..).zip(layouts).zip(&start);
        let memories = memories.map(|((rank, layout), values)| Memory::new(schedule, rank, layout, values));
        let nodes = (0..).zip(layouts).map(|(rank, layout)| {
            let program = Arc::new(Program::compile(schedule, rank));
            let executor = Executor::new(program, layout.clone());
            let executor = Recorder::recording(executor, schedule);
            Node {
                executor,
                running: Vec::new(),
                may_poll: true,
                missing: 0,
                taken: None,
                seen: BTreeSet::new(),
            }
        });
        let mut rng = Rng::new(seed);
        Cluster {
            schedule: schedule.clone(),
            memories: memories.collect(),
            nodes: nodes.collect(),
            links: vec![Vec::new(); layouts.len() * layouts.len()],
            sources: Vec::new(),
            in_order: rng.bernoulli(0.5),
            rng,
            expected: reference::run(schedule, &lengths),
        }
    }

    /// Runs to the end. Panics on a livelock, a deadlock, a wrong read or a wrong result.
    pub fn drive(mut self) {
        let sends = self.schedule.sends().len() + self.nodes.len();
        let slices = self.nodes.iter().map(Node::slices).max().unwrap_or(1);
        for _ in 0..100 * sends * slices {
            let choices = self.choices();
            if choices.is_empty() {
                return self.check_end();
            }
            let choice = choices[self.rng.index(choices.len())];
            self.step(choice);
        }
        panic!("no end in sight");
    }

    fn choices(&self) -> Vec<Choice> {
        let nodes = self.nodes.iter().enumerate();
        let polls = nodes.clone().filter(|(_, n)| n.may_poll).map(|(rank, _)| Choice::Poll(rank));
        let ends = nodes.flat_map(|(rank, n)| (0..n.running.len()).map(move |i| Choice::Finish(rank, i)));
        let links = self.links.iter().enumerate();
        let messages = links.filter(|(_, l)| !l.is_empty()).map(|(link, _)| Choice::Deliver(link));
        polls.chain(ends).chain(messages).collect()
    }

    fn step(&mut self, choice: Choice) {
        let rank = match choice {
            Choice::Poll(rank) => return self.poll(rank),
            Choice::Finish(rank, index) => self.finish(rank, index),
            Choice::Deliver(link) => self.deliver(link),
        };
        let node = &mut self.nodes[rank];
        node.may_poll = true;
        if node.executor.is_finished() && node.taken.is_none() {
            node.taken = Some(self.memories[rank].take_back(self.schedule.chunks()));
        }
    }

    fn poll(&mut self, rank: usize) {
        let node = &mut self.nodes[rank];
        let Some(action) = node.executor.poll() else {
            node.may_poll = false;
            node.missing = if node.running.is_empty() { node.executor.missing().unwrap_or(0) } else { 0 };
            return;
        };
        assert_eq!(node.missing, 0, "{action:?} came too early");
        let running = match &action {
            Action::Signal(signal) => return self.signal(rank, *signal),
            Action::Combine(combine) => self.begin_combine(rank, combine),
            Action::Stage { output, slice } => self.begin_stage(rank, *output, *slice),
            Action::Transmit { output, slice, .. } => self.begin_transmit(rank, *output, *slice),
        };
        if let Action::Stage { output, slice } | Action::Transmit { output, slice, .. } = &action {
            self.nodes[rank].leaves(&self.schedule, *output, *slice);
        }
        for &(owner, place, _) in &running.writes {
            self.memories[owner as usize].begin_write(place);
        }
        let early = self.rng.bernoulli(0.5);
        let mut running = Running { action, ..running };
        if early {
            self.leave(rank, &mut running);
        }
        self.nodes[rank].running.push(running);
    }

    fn signal(&mut self, from: usize, signal: Signal) {
        let Signal { to, send, slice, what } = signal;
        let message = match what {
            Notice::Read => Message::Read { slice, send },
            Notice::Placed => Message::Ready { slice, send, ready: Ready::Placed },
            Notice::Readable { output, writable } => {
                let place = self.memories[from].exposed(&self.nodes[from].executor, output, slice);
                let stamp = (self.output(from, output).1, slice);
                let at = self.source(Source::Peer(from as u32, place, stamp));
                self.nodes[from].seen.insert((send, slice));
                let ready = Ready::Readable(Arrival { at, writable });
                Message::Ready { slice, send, ready }
            }
        };
        self.push(from, to, message);
    }

    fn begin_combine(&mut self, rank: usize, combine: &Combine) -> Running {
        let program = self.nodes[rank].executor.program().clone();
        let input = &program.inputs[combine.input as usize];
        let slice = combine.slice;
        let mut parts = Vec::new();
        let mut reads = Vec::new();
        let home = |version| self.memories[rank].home(input.chunk, version, slice);
        let mut writes = vec![(rank as u32, home(input.version), (input.version, slice))];
        if input.own {
            let own = self.memories[rank].read(home(input.version - 1), (input.version - 1, slice));
            parts.push((rank as u32, own));
        }
        if let Some(output) = combine.stage {
            writes.push((rank as u32, self.memories[rank].cell(output, slice), (input.version, slice)));
        }
        let arrivals = self.nodes[rank].executor.arrivals(slice, combine.input);
        for (position, (&(_, src), arrival)) in input.sends.iter().zip(arrivals).enumerate() {
            let arrival = arrival.expect("all arrivals are there when an input is taken in");
            let put = combine.puts.iter().find(|p| p.0 as usize == position);
            match &self.sources[arrival.at as usize] {
                Source::Bytes(bytes) => parts.push((src, bytes.clone())),
                &Source::Peer(owner, place, stamp) => {
                    parts.push((src, self.memories[owner as usize].read(place, stamp)));
                    match put {
                        Some(&(_, answer)) => writes.push(self.put(src, place, answer, slice)),
                        None => reads.push((owner, place, stamp)),
                    }
                }
            }
        }
        Running { reads, writes, ..Running::new(reference::sum(parts)) }
    }

    /// Where an answer lands: over the value that the peer gave away, which is also where the peer will look for it.
    fn put(&self, peer: Rank, place: Place, answer: u32, slice: u32) -> (Rank, Place, Stamp) {
        let program = self.nodes[peer as usize].executor.program();
        let (input, _) = program.arrival(answer).expect("an answer goes to the asker");
        let input = &program.inputs[input as usize];
        let home = self.memories[peer as usize].home(input.chunk, input.version, slice);
        assert_eq!(place, home, "an answer is written where nobody looks for it");
        (peer, place, (input.version, slice))
    }

    fn begin_stage(&mut self, rank: usize, output: u32, slice: u32) -> Running {
        let running = self.begin_transmit(rank, output, slice);
        let cell = self.memories[rank].cell(output, slice);
        let stamp = running.reads[0].2;
        Running { writes: vec![(rank as u32, cell, stamp)], ..running }
    }

    fn begin_transmit(&mut self, rank: usize, output: u32, slice: u32) -> Running {
        let (chunk, version) = self.output(rank, output);
        let home = self.memories[rank].home(chunk, version, slice);
        let stamp = (version, slice);
        let result = self.memories[rank].read(home, stamp);
        Running { reads: vec![(rank as u32, home, stamp)], ..Running::new(result) }
    }

    /// Puts a transmitted value on its link, once.
    fn leave(&mut self, rank: usize, running: &mut Running) {
        let Action::Transmit { send, to, slice, .. } = running.action else {
            return;
        };
        let bytes = std::mem::take(&mut running.result);
        let at = self.source(Source::Bytes(bytes));
        let ready = Ready::Readable(Arrival { at, writable: false });
        self.push(rank, to, Message::Ready { slice, send, ready });
        running.left = true;
    }

    fn finish(&mut self, rank: usize, index: usize) -> usize {
        let mut running = self.nodes[rank].running.swap_remove(index);
        for &(owner, place, stamp) in &running.reads {
            self.memories[owner as usize].read(place, stamp);
        }
        for &(owner, place, stamp) in &running.writes {
            self.memories[owner as usize].write(place, stamp, running.result.clone());
        }
        if !running.left {
            self.leave(rank, &mut running);
        }
        let node = &mut self.nodes[rank];
        if let Action::Combine(combine) = &running.action {
            node.arrives(combine.input, combine.slice);
            if let (Some(output), _) | (None, Some(output)) = (combine.stage, node.answered(combine)) {
                node.leaves(&self.schedule, output, combine.slice);
            }
        }
        node.executor.finished(&running.action);
        rank
    }

    fn deliver(&mut self, link: usize) -> usize {
        let queue = &mut self.links[link];
        let index = if self.in_order { 0 } else { self.rng.index(queue.len()) };
        let message = queue.remove(index);
        let rank = link % self.nodes.len();
        if let Message::Ready { slice, send, ready: Ready::Readable(arrival) } = message {
            self.land(rank, slice, send, arrival);
        }
        let node = &mut self.nodes[rank];
        let taken = match message {
            Message::Ready { slice, send, ready } => {
                node.missing = node.missing.saturating_sub(1);
                let input = node.executor.program().arrival(send);
                if let (Ready::Placed, Some((input, _))) = (ready, input) {
                    node.arrives(input, slice);
                }
                node.executor.handle_ready(slice, send, ready)
            }
            Message::Read { slice, send } => node.executor.handle_read(slice, send),
        };
        taken.unwrap_or_else(|error| panic!("rank {rank} refuses {message:?}: {error}"));
        rank
    }

    /// Writes what comes over a wire where it belongs before the executor hears of it, where that is allowed.
    fn land(&mut self, rank: usize, slice: u32, send: u32, arrival: Arrival) {
        let node = &self.nodes[rank];
        let (index, _) = node.executor.program().arrival(send).expect("the send ends here");
        let input = &node.executor.program().inputs[index as usize];
        let Source::Bytes(bytes) = &self.sources[arrival.at as usize] else { return };
        if input.own || input.sends.len() > 1 || !node.executor.may_land(slice, index) {
            return;
        }
        let home = self.memories[rank].home(input.chunk, input.version, slice);
        self.memories[rank].begin_write(home);
        self.memories[rank].write(home, (input.version, slice), bytes.clone());
    }

    fn push(&mut self, from: usize, to: Rank, message: Message) {
        self.links[from * self.nodes.len() + to as usize].push(message);
    }

    fn source(&mut self, source: Source) -> u64 {
        self.sources.push(source);
        self.sources.len() as u64 - 1
    }

    /// `(chunk, version)` of an output.
    fn output(&self, rank: usize, output: u32) -> (u32, u32) {
        let o = &self.nodes[rank].executor.program().outputs[output as usize];
        (o.chunk, o.version)
    }

    fn check_end(&mut self) {
        for (rank, node) in self.nodes.iter_mut().enumerate() {
            let waits = node.executor.waits_for();
            assert!(node.executor.is_finished(), "rank {rank} waits for {waits:?}");
            assert!(node.executor.is_closed(), "rank {rank} is not closed");
            assert!(waits.is_empty(), "rank {rank} still waits for {waits:?}");
            // What was recorded replays, and so does what is read back from its text.
            let trace = node.executor.trace().expect("every executor records");
            assert_eq!(trace.replay(), Ok(()));
            assert_eq!(trace.to_string().parse().as_ref(), Ok(trace));
            let memory = &mut self.memories[rank];
            let taken = node.taken.take().unwrap_or_else(|| memory.take_back(self.schedule.chunks()));
            for (chunk, elements) in taken.iter().enumerate() {
                let kept = self.schedule.destination(chunk as u32).contains(rank as u32);
                let expected = &self.expected[rank][chunk];
                if let (true, Some(expected)) = (kept, expected) {
                    assert_eq!(bits(elements), bits(expected), "rank {rank}, chunk {chunk}");
                }
            }
        }
    }
}

impl Node {
    /// An output leaves: all that its sends name in `after` must have been seen.
    fn leaves(&mut self, schedule: &Schedule, output: u32, slice: u32) {
        let output = &self.executor.program().outputs[output as usize];
        for &(send, _) in &output.sends {
            for &other in &schedule.sends()[send as usize].after {
                let chunk = schedule.sends()[other as usize].chunk;
                let exists = slice < self.executor.layout().slices(chunk);
                assert!(
                    !exists || self.seen.contains(&(other, slice)),
                    "send {send} did not wait for {other}"
                );
            }
        }
        self.seen.extend(output.sends.iter().map(|&(send, _)| (send, slice)));
    }

    /// The output that a combination wrote into peers' memory.
    fn answered(&self, combine: &Combine) -> Option<u32> {
        let &(_, answer) = combine.puts.first()?;
        self.executor.program().departure(answer)
    }

    fn arrives(&mut self, input: u32, slice: u32) {
        let input = &self.executor.program().inputs[input as usize];
        self.seen.extend(input.sends.iter().map(|&(send, _)| (send, slice)));
    }

    fn slices(&self) -> usize {
        let layout = self.executor.layout();
        let chunks = 0..layout.chunk_bytes.len() as u32;
        chunks.map(|c| layout.slices(c) as usize).max().unwrap_or(1)
    }
}

impl Running {
    fn new(result: Vec<f32>) -> Running {
        let action = Action::Stage { output: 0, slice: 0 };
        Running { action, reads: Vec::new(), writes: Vec::new(), result, left: false }
    }
}

fn bits(elements: &[f32]) -> Vec<u32> {
    elements.iter().map(|e| e.to_bits()).collect()
}
