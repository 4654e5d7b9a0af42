//! What goes between processes: small things that take the latency, and blocks that pass the network, also where a link breaks.

use tweed_proto::objects::{Buffer, Sink, Stream};
use tweed_schedule::Rank;

use super::super::pairs::Pair;
use super::{Block, Event, World};
use crate::clock::{time, Time};
use crate::network::Transit;
use crate::SimError;

impl World<'_> {
    /// Something small goes to another process; what goes between a pair arrives in order.
    pub(super) fn post(
        &mut self,
        at: Rank,
        to: Rank,
        event: impl FnOnce(Rank, Rank) -> Event,
    ) -> Result<(), SimError> {
        let latency = self.pair(at, to)?.latency;
        let late = self.rng.below(time(self.setup.jitter));
        let leaves = if at == to { self.now } else { self.occupy(at, time(self.setup.message)) };
        let arrives = leaves.saturating_add(latency).saturating_add(late);
        let (leaves_at_last, arrives) = self.cuts.delay(at, to, (leaves, arrives), latency);
        if leaves_at_last > leaves && self.dies_before(at, leaves_at_last) {
            self.outcome.unheard.insert(at);
            return Ok(());
        }
        let last = &mut self.pair(at, to)?.last;
        *last = arrives.max(*last);
        let arrives = *last;
        self.queue.push(arrives, event(at, to));
        Ok(())
    }

    /// What a process had kept for another is lost with it.
    fn dies_before(&self, rank: Rank, at: Time) -> bool {
        self.setup.deaths.get(&rank).is_some_and(|&dies| time(dies) < at)
    }

    fn pair(&mut self, src: Rank, dst: Rank) -> Result<&mut Pair, SimError> {
        self.pairs.get(&mut self.network, src, dst)
    }

    /// So many blocks fit on the way from one to another and back, and two.
    pub(super) fn window(&mut self, at: Rank, to: Rank, block: u64) -> Result<u32, SimError> {
        let &mut Pair { path, latency, .. } = self.pair(at, to)?;
        let on_path = u128::from(latency) * u128::from(self.network.rate(path)) / 500_000_000;
        Ok(2 + on_path.div_ceil(block.into()).min(1 << 20) as u32)
    }

    /// Gives a process work for so long; returns when it will be done.
    pub(super) fn occupy(&mut self, at: Rank, work: Time) -> Time {
        let now = self.now;
        let process = self.process(at);
        if work > 0 {
            process.busy_until = process.busy_until.max(now).saturating_add(work);
            return process.busy_until;
        }
        now
    }

    /// Sends the blocks of a pull that may leave.
    pub(super) fn pump(&mut self, at: Rank, to: (Rank, Stream)) -> Result<(), SimError> {
        while let Some(block) = self.process(at).next_block(to) {
            self.send_block(at, to, Some(block))?;
        }
        Ok(())
    }

    /// Sends a block of a pull, or after the last one the word that no more comes.
    pub(super) fn send_block(
        &mut self,
        at: Rank,
        (dst, stream): (Rank, Stream),
        block: Option<(u64, Vec<(u64, u64)>)>,
    ) -> Result<(), SimError> {
        let pair = self.pair(at, dst)?;
        let (path, latency, number) = (pair.path, pair.latency, pair.order.number());
        let stops = block.is_none();
        let (begin, pieces) = block.unwrap_or_default();
        let end = pieces.last().map_or(begin, |piece| piece.0);
        let transit = Transit::new(path, at, end - begin);
        let leaves = self.occupy(at, time(self.setup.message));
        // While a link is broken, and the two have not met again, blocks wait.
        let broken = self.cuts.catches(at, dst, (self.now.saturating_sub(latency), self.now));
        let entered = broken.map_or(self.now, |(_, ends)| ends.saturating_add(latency));
        let leaves = leaves.max(entered);
        let block = Block { transit, dst, stream, begin, pieces, stops, number, entered, left: 0 };
        self.queue.push(leaves, Event::Reaches(Box::new(block)));
        Ok(())
    }

    /// Takes a block through its next channel.
    pub(super) fn forward(&mut self, mut block: Box<Block>) -> Result<(), SimError> {
        let src = block.transit.src;
        if block.transit.hops == 0 && self.processes[src as usize].died.is_some() {
            return Ok(());
        }
        if self.network.is_through(&block.transit) {
            block.left = self.now;
            self.queue.push(self.now, Event::Arrives(block));
            return Ok(());
        }
        let is_first = block.transit.hops == 0;
        let passage = self.network.pass(self.now, &mut block.transit);
        if is_first {
            block.left = passage.enters.1;
        }
        let (head, tail) = passage.leaves;
        match self.network.is_through(&block.transit) {
            true => {
                let late = self.rng.below(time(self.setup.jitter));
                let last = &mut self.pair(src, block.dst)?.last;
                *last = tail.saturating_add(late).max(*last);
                let arrives = *last;
                match self.cuts.catches(src, block.dst, (block.entered, arrives)) {
                    Some(cut) => self.send_again(block, cut, (head, tail)),
                    None => self.queue.push(arrives, Event::Arrives(block)),
                }
            }
            false => self.queue.push(head, Event::Reaches(block)),
        }
        Ok(())
    }

    /// A block was on its way when a link broke, `through` being when its first and last byte would have come.
    fn send_again(&mut self, mut block: Box<Block>, cut: (Time, Time), through: (Time, Time)) {
        let Transit { path, src, bytes, .. } = block.transit;
        let came = cut.0.clamp(through.0, through.1) - through.0;
        self.outcome.taken_twice += bytes * came / (through.1 - through.0).max(1);
        block.transit = Transit::new(path, src, bytes);
        let leaves = cut.1.saturating_add(self.network.latency(path));
        block.entered = leaves;
        self.queue.push(leaves, Event::Reaches(block));
    }

    pub(super) fn arrive(&mut self, block: Box<Block>) -> Result<(), SimError> {
        let Block { ref transit, dst, left, .. } = *block;
        let src = transit.src;
        // Of what a process was still sending when it died, the rest never came.
        if self.process(src).died.is_some_and(|died| died < left) || self.process(dst).died.is_some() {
            return Ok(());
        }
        let mut ready = self.pair(src, dst)?.order.arrive(block.number, block);
        while let Some(block) = ready {
            self.take_in(src, block)?;
            ready = self.pair(src, dst)?.order.follow();
        }
        Ok(())
    }

    fn take_in(&mut self, src: Rank, block: Box<Block>) -> Result<(), SimError> {
        let Block { dst, stream, .. } = *block;
        // As in the simulator of schedules, an acknowledgement takes the latency only.
        let latency = self.pair(dst, src)?.latency;
        let way = (self.now, self.now.saturating_add(latency));
        let (_, granted) = self.cuts.delay(src, dst, way, latency);
        self.queue.push(granted, Event::Granted(src, (dst, stream)));
        let work = if src == dst { 0 } else { time(self.setup.message) };
        let taken = self.occupy(dst, work);
        self.queue.push(taken, Event::BlockTaken(block));
        Ok(())
    }

    pub(super) fn take(&mut self, block: &Block) -> Result<(), SimError> {
        let &Block { ref transit, dst, stream, begin, ref pieces, .. } = block;
        let src = transit.src;
        if block.stops {
            self.process(dst).member.handle_stopped(stream);
            return Ok(());
        }
        let Some(&sink) = self.process(dst).open.get(&stream) else {
            self.outcome.taken_twice += transit.bytes; // whoever closed it asks another
            return Ok(());
        };
        if src != dst {
            self.pair(src, dst)?.bytes += transit.bytes;
        }
        let process = self.process(dst);
        if let (Sink::Copy(object), true) = (sink, src != dst) {
            *process.taken.entry(object).or_default() += transit.bytes;
        }
        process.store(stream, begin, pieces);
        process.member.handle_block(stream, begin + transit.bytes);
        Ok(())
    }

    /// How many others a copy feeds.
    pub(super) fn note_fed(&mut self, at: Rank, buffer: Buffer) {
        let fed = self.process(at).serves.values().filter(|serve| serve.pull.buffer == buffer).count() as u32;
        self.outcome.most_fed = self.outcome.most_fed.max(fed);
    }
}
