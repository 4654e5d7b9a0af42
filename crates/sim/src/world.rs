//! [`run`]: the loop over events.

use std::collections::BTreeMap;
use std::time::Duration;

use tweed_proto::{Action, Arrival, Notice, Program, Ready, Signal};
use tweed_schedule::{Rank, Schedule};

use crate::clock::{time, Queue, Time};
use crate::network::{stretch, Message, Network, Transit};
use crate::rank::{Ground, SimRank};
use crate::{Crossing, End, Outcome, Setup, SimError};
use tweed_rng::Rng;

/// What happens at a moment.
#[derive(Debug)]
enum Event {
    Start(Rank),
    /// The first byte of a message reaches its next channel; the first one when its sender has prepared it.
    Reaches(Box<Message>),
    /// The last byte of a message reaches its receiver.
    Arrives(Box<Message>),
    /// The receiver has taken a message in.
    Taken(Box<Message>),
    /// The last byte of a message has left its sender.
    Left(Rank, Action),
    /// Arithmetic is done; the value it made.
    Done(Rank, Action, u64),
    /// A signal reaches its receiver; the value that it points to.
    Signalled(Signal, u64),
    Dies(Rank),
    /// Everybody learns of a death.
    Learnt(Rank),
}

/// Runs `schedule` once.
///
/// # Errors
/// A setup that cannot be run, links that are missing, and ranks that would wait for ever.
///
/// # Cost
/// Three to five events per message, `O(log(events under way))` each: about a million a second.
pub fn run(schedule: &Schedule, setup: &Setup) -> Result<Outcome, SimError> {
    setup.check(schedule)?;
    let mut world = World::new(schedule, setup)?;
    world.announce();
    while let Some((now, event)) = world.queue.pop() {
        world.now = now;
        world.events += 1;
        world.handle(event)?;
    }
    world.outcome()
}

struct World<'a> {
    schedule: &'a Schedule,
    setup: &'a Setup,
    ground: Ground,
    now: Time,
    queue: Queue<Event>,
    network: Network,
    ranks: Vec<SimRank>,
    rng: Rng,
    /// Bytes that have arrived of each send.
    arrived: Vec<u64>,
    log: Vec<Crossing>,
    events: u64,
}

impl<'a> World<'a> {
    fn new(schedule: &'a Schedule, setup: &'a Setup) -> Result<World<'a>, SimError> {
        let ground = Ground::new(schedule, setup);
        let programs = Program::compile_all(schedule).into_iter();
        let ranks = programs.map(|p| SimRank::new(schedule, p, setup, &ground)).collect();
        Ok(World {
            schedule,
            setup,
            ground,
            now: 0,
            queue: Queue::new(),
            network: Network::of_sends(schedule, setup)?,
            ranks,
            rng: Rng::new(setup.seed),
            arrived: vec![0; schedule.sends().len()],
            log: Vec::new(),
            events: 0,
        })
    }

    fn announce(&mut self) {
        for rank in 0..self.schedule.ranks() {
            let drawn = self.rng.below(time(self.setup.late));
            let given = self.setup.delays.get(&rank).copied().unwrap_or_default();
            self.queue.push(drawn.saturating_add(time(given)), Event::Start(rank));
        }
        for (&rank, &at) in &self.setup.deaths {
            self.queue.push(time(at), Event::Dies(rank));
        }
    }

    fn handle(&mut self, event: Event) -> Result<(), SimError> {
        match event {
            Event::Start(rank) => {
                self.rank(rank).has_started = true;
                return self.drive(rank);
            }
            Event::Reaches(message) => self.forward(message),
            Event::Arrives(message) => return self.arrive(message),
            Event::Taken(message) => return self.take(&message),
            Event::Left(rank, action) => return self.finish(rank, &action, 0),
            Event::Done(rank, action, value) => return self.finish(rank, &action, value),
            Event::Signalled(signal, value) => return self.receive(signal, value),
            Event::Dies(rank) => self.die(rank),
            Event::Learnt(peer) => self.learn(peer),
        }
        Ok(())
    }

    /// Carries out all that a rank asks for now.
    fn drive(&mut self, rank: Rank) -> Result<(), SimError> {
        if !self.rank(rank).has_started || !self.rank(rank).is_active() {
            return Ok(());
        }
        while let Some(action) = self.rank(rank).executor.poll() {
            match action {
                Action::Signal(signal) => self.signal(rank, signal),
                Action::Transmit { .. } => self.transmit(rank, &action),
                Action::Combine(_) | Action::Stage { .. } => self.compute(rank, action),
            }
        }
        self.note_end(rank)
    }

    fn note_end(&mut self, rank: Rank) -> Result<(), SimError> {
        let now = Duration::from_nanos(self.now);
        let state = &mut self.ranks[rank as usize];
        if state.end.is_some() || !state.executor.is_finished() {
            return Ok(());
        }
        state.end = Some(End::Finished(now));
        match state.wrong_chunk(self.schedule, &self.ground) {
            Some(chunk) => Err(SimError::Wrong { rank, chunk }),
            None => Ok(()),
        }
    }

    fn signal(&mut self, from: Rank, signal: Signal) {
        let latency = match self.setup.is_local(from, signal.to) {
            true => time(self.setup.local_latency),
            false => self.network.latency(signal.send),
        };
        let value = match signal.what {
            Notice::Readable { output, .. } => self.rank(from).staged(output, signal.slice),
            Notice::Placed | Notice::Read => 0,
        };
        let at = self.now.saturating_add(latency);
        self.queue.push(at, Event::Signalled(signal, value));
    }

    fn compute(&mut self, rank: Rank, action: Action) {
        let (bytes, value) = self.ranks[rank as usize].compute(&action, &self.ground);
        let nanos = |speed| u128::from(bytes) * 1_000_000_000 / u128::from(speed);
        let work = self.setup.compute.map_or(0, |speed| nanos(speed).try_into().unwrap_or(Time::MAX));
        let done = self.occupy(rank, work);
        self.queue.push(done, Event::Done(rank, action, value));
    }

    /// Gives a rank's processor work for so long; returns when it will be done.
    fn occupy(&mut self, rank: Rank, work: Time) -> Time {
        let slow = self.setup.slow.get(&rank).copied().unwrap_or(1.0);
        let state = &mut self.ranks[rank as usize];
        state.busy_until = state.busy_until.max(self.now).saturating_add(stretch(work, slow));
        state.busy_until
    }

    fn transmit(&mut self, rank: Rank, action: &Action) {
        let &Action::Transmit { send, to, output, slice } = action else { return };
        let (value, bytes) = self.ranks[rank as usize].leaving(output, slice, &self.ground);
        let transit = Transit::new(send, rank, bytes);
        let message = Box::new(Message { transit, output, slice, dst: to, value, left: (0, 0) });
        match time(self.setup.message) {
            0 => self.forward(message),
            work => {
                let prepared = self.occupy(rank, work);
                self.queue.push(prepared, Event::Reaches(message));
            }
        }
    }

    /// Takes a message through its next channel.
    fn forward(&mut self, mut message: Box<Message>) {
        let is_first = message.transit.hops == 0;
        let passage = self.network.pass(self.now, &mut message.transit);
        let left = is_first.then(|| {
            message.left = passage.enters;
            let &Message { transit: Transit { path: send, src, .. }, output, slice, dst, .. } = &*message;
            Event::Left(src, Action::Transmit { send, to: dst, output, slice })
        });
        let (head, tail) = passage.leaves;
        if self.network.is_through(&message.transit) {
            let late = self.rng.below(time(self.setup.jitter));
            self.queue.push(tail.saturating_add(late), Event::Arrives(message));
        } else {
            self.queue.push(head, Event::Reaches(message));
        }
        if let Some(left) = left {
            self.queue.push(passage.enters.1, left);
        }
    }

    fn arrive(&mut self, message: Box<Message>) -> Result<(), SimError> {
        let &Message { transit: Transit { path: send, src, bytes, .. }, slice, dst, left, .. } = &*message;
        // Of what a rank was still sending when it died, the rest never came.
        let cut_off = self.rank(src).died.is_some_and(|died| died < left.1);
        if cut_off || !self.rank(dst).is_active() {
            return Ok(());
        }
        self.arrived[send as usize] += bytes;
        if self.setup.log {
            let (left, arrived) = (Duration::from_nanos(left.0), Duration::from_nanos(self.now));
            self.log.push(Crossing { send, slice, src, dst, bytes, left, arrived });
        }
        match time(self.setup.message) {
            0 => self.take(&message),
            work => {
                let taken = self.occupy(dst, work);
                self.queue.push(taken, Event::Taken(message));
                Ok(())
            }
        }
    }

    fn take(&mut self, message: &Message) -> Result<(), SimError> {
        match self.rank(message.dst).is_active() {
            true => self.ready(message.dst, message.slice, message.transit.path, message.value),
            false => Ok(()),
        }
    }

    fn receive(&mut self, signal: Signal, value: u64) -> Result<(), SimError> {
        let Signal { to, send, slice, what } = signal;
        if !self.rank(to).is_active() {
            return Ok(());
        }
        if what != Notice::Read {
            return self.ready(to, slice, send, value);
        }
        let taken = self.rank(to).executor.handle_read(slice, send);
        taken.map_err(|reason| SimError::Refused { rank: to, send, reason })?;
        self.drive(to)
    }

    fn ready(&mut self, rank: Rank, slice: u32, send: u32, value: u64) -> Result<(), SimError> {
        // The executor only hands the number back, so it can be the value itself.
        let ready = Ready::Readable(Arrival { at: value, writable: false });
        let taken = self.rank(rank).executor.handle_ready(slice, send, ready);
        taken.map_err(|reason| SimError::Refused { rank, send, reason })?;
        self.drive(rank)
    }

    fn finish(&mut self, rank: Rank, action: &Action, value: u64) -> Result<(), SimError> {
        let state = &mut self.ranks[rank as usize];
        if !state.is_active() {
            return Ok(());
        }
        state.store(action, value, &self.ground);
        state.executor.finished(action);
        self.drive(rank)
    }

    fn die(&mut self, rank: Rank) {
        let now = self.now;
        let state = self.rank(rank);
        state.died = Some(now);
        if state.end.is_none() {
            state.end = Some(End::Died(Duration::from_nanos(now)));
            let learnt = now.saturating_add(time(self.setup.detection));
            self.queue.push(learnt, Event::Learnt(rank));
        }
    }

    fn learn(&mut self, peer: Rank) {
        let at = Duration::from_nanos(self.now);
        for state in self.ranks.iter_mut().filter(|s| s.end.is_none()) {
            state.end = Some(End::PeerLost { peer, at });
        }
    }

    fn rank(&mut self, rank: Rank) -> &mut SimRank {
        &mut self.ranks[rank as usize]
    }

    fn outcome(self) -> Result<Outcome, SimError> {
        let mut ends = Vec::with_capacity(self.ranks.len());
        let mut trace = None;
        for (rank, state) in (0..).zip(&self.ranks) {
            let stalled = || SimError::Stalled { rank, waits_for: state.executor.waits_for() };
            ends.push(state.end.ok_or_else(stalled)?);
            trace = trace.or_else(|| state.executor.trace().cloned());
        }
        Ok(Outcome { ends, link_bytes: self.link_bytes(), log: self.log, trace, events: self.events })
    }

    fn link_bytes(&self) -> BTreeMap<(u32, u32), u64> {
        let mut found = BTreeMap::new();
        let sends = self.schedule.sends().iter().zip(&self.arrived);
        for (send, &bytes) in sends.filter(|(s, _)| !self.setup.is_local(s.src, s.dst)) {
            for link in send.hops() {
                *found.entry(link).or_default() += bytes;
            }
        }
        found
    }
}
