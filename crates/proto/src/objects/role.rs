//! A slot of a reduce, at the process that holds it.
//!
//! **Theory of operation.** The holder *sums* block by block: the next block is folded once its own object and all feeds
//! that cover it have come so far. A feed is *open* (nobody has taken the slot), *pulled* (a stream brings it), *closed* (its
//! process died; what came stays) or complete. An order ([`Assign`]) replaces all feeds; one that has the same slot,
//! generation and beginning as before keeps what has come of it. A new generation of the sum throws the sum away, and no feed
//! but those that began behind the new beginning.
//!
//! What cannot happen: a block is folded twice into one generation of the sum, or while one of its feeds is open.

use super::message::{Assign, Feed, Fold, Pull, Stream};
use super::{Buffer, ObjectId, Process, Slot};

#[derive(Debug)]
pub(crate) struct Role {
    pub(crate) assign: Assign,
    /// The sum is valid up to here.
    pub(crate) mark: u64,
    inflows: Vec<Inflow>,
    is_folding: bool,
}

#[derive(Debug)]
struct Inflow {
    feed: Feed,
    /// What came before the first order is not there: a receiver that becomes the destination has the sum up to here.
    begins: u64,
    received: u64,
    stream: Option<Stream>,
    /// Its bytes lie where this stream put them.
    last: Option<Stream>,
    is_broken: bool,
}

/// What changes for the driver.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) close: Vec<Stream>,
    pub(crate) open: Vec<(Stream, Pull)>,
    pub(crate) begins_anew: bool,
}

impl Role {
    /// A slot is taken. `mark`: so much of the sum is there already, as at a receiver that becomes the destination.
    pub(crate) fn new(assign: Assign, mark: u64, next: &mut Stream) -> (Role, Changes) {
        let mark = mark.max(assign.from);
        let empty = Assign { feeds: Vec::new(), attempt: 0, version: 0, ..assign.clone() };
        let mut role = Role { assign: empty, mark, inflows: Vec::new(), is_folding: false };
        let changes = role.change(assign, next);
        (role, changes)
    }

    /// What this slot's sum lies in.
    pub(crate) fn buffer(&self) -> Buffer {
        Buffer::of_slot(self.assign.target, self.assign.slot)
    }

    /// Another shard orders to go on with this sum, and has not heard of the last order of the one before.
    pub(crate) fn is_ahead_of(&self, order: &Assign) -> bool {
        let is_other = self.assign.attempt < order.attempt && self.assign.generation == order.generation;
        is_other && self.assign.version >= order.version
    }

    /// Follows an order; an older one than the last changes nothing.
    pub(crate) fn change(&mut self, assign: Assign, next: &mut Stream) -> Changes {
        let mut changes = Changes::default();
        if (assign.attempt, assign.version) <= (self.assign.attempt, self.assign.version) {
            return changes;
        }
        if assign.generation != self.assign.generation {
            (self.mark, self.is_folding, changes.begins_anew) = (assign.from, false, true);
        }
        let mut before = std::mem::take(&mut self.inflows);
        for feed in &assign.feeds {
            let kept = before.iter().position(|inflow| {
                let was = &inflow.feed;
                (was.slot, was.generation, was.range.start) == (feed.slot, feed.generation, feed.range.start)
                    && was.source == feed.source
                    && inflow.begins <= feed.range.start.max(self.mark)
            });
            let mut inflow = match kept {
                Some(place) => before.swap_remove(place),
                None => Inflow::new(feed, self.mark),
            };
            inflow.feed.range.end = feed.range.end;
            inflow.open(assign.block, next, &mut changes);
            self.inflows.push(inflow);
        }
        changes.close.extend(before.iter().filter_map(|inflow| inflow.stream));
        self.assign = assign;
        changes
    }

    /// Bytes up to `end` have come over a stream.
    pub(crate) fn handle_block(&mut self, stream: Stream, end: u64) {
        for inflow in self.inflows.iter_mut().filter(|inflow| inflow.stream == Some(stream)) {
            inflow.received = end.min(inflow.feed.range.end);
            if inflow.received == inflow.feed.range.end {
                inflow.stream = None;
            }
        }
    }

    /// A process is dead: which feeds it has not completed, and how far they came.
    pub(crate) fn handle_lost(&mut self, process: Process) -> Vec<(Slot, u32, u64, Option<Stream>)> {
        let from = |inflow: &&mut Inflow| inflow.feed.source.is_some_and(|source| source.process == process);
        let broken = self.inflows.iter_mut().filter(from).filter(|inflow| !inflow.is_complete());
        broken
            .map(|inflow| {
                inflow.is_broken = true;
                (inflow.feed.slot, inflow.feed.generation, inflow.received, inflow.stream.take())
            })
            .collect()
    }

    /// The arithmetic that can be done next, of which there is one piece at a time. `own`: so much of its own object is there.
    pub(crate) fn poll_fold(&mut self, own: u64) -> Option<Fold> {
        let Assign { target, slot, generation, own: object, format, block, op, .. } = self.assign;
        if self.is_folding || self.mark >= format.size {
            return None;
        }
        let range = self.mark..format.size.min((self.mark / block + 1) * block);
        let covers = |inflow: &&Inflow| inflow.feed.range.contains(&range.start);
        let mut feeds = self.inflows.iter().filter(covers);
        let is_there = feeds.all(|inflow| inflow.received >= range.end);
        if !is_there || (object.is_some() && own < range.end) {
            return None;
        }
        self.is_folding = true;
        let streams = self.inflows.iter().filter(covers).filter_map(|inflow| inflow.last).collect();
        Some(Fold { target, slot, generation, range, own: object, streams, op })
    }

    /// The sum is valid up to `end`.
    pub(crate) fn handle_folded(&mut self, generation: u32, end: u64) -> bool {
        let is_current = self.is_folding && generation == self.assign.generation;
        if is_current {
            (self.mark, self.is_folding) = (end, false);
        }
        is_current
    }

    /// The streams that are under way.
    pub(crate) fn streams(&self) -> impl Iterator<Item = Stream> + '_ {
        self.inflows.iter().filter_map(|inflow| inflow.stream)
    }

    /// Which source's bytes a stream brings, for people and tests.
    pub(crate) fn own(&self) -> Option<ObjectId> {
        self.assign.own
    }
}

impl Inflow {
    fn new(feed: &Feed, mark: u64) -> Inflow {
        let received = feed.range.start.max(mark.min(feed.range.end));
        Inflow { feed: feed.clone(), begins: received, received, stream: None, last: None, is_broken: false }
    }

    fn is_complete(&self) -> bool {
        self.received >= self.feed.range.end
    }

    fn open(&mut self, block: u64, next: &mut Stream, changes: &mut Changes) {
        if self.is_complete() {
            changes.close.extend(self.stream.take());
            return;
        }
        let Some(source) = self.feed.source.filter(|_| self.stream.is_none() && !self.is_broken) else {
            return;
        };
        *next += 1;
        (self.stream, self.last) = (Some(*next), Some(*next));
        let generation = match source.buffer {
            Buffer::Object(_) => 0,
            Buffer::Partial { .. } => self.feed.generation,
        };
        let (offset, end) = (self.received, self.feed.range.end);
        changes.open.push((
            *next,
            Pull { from: source.process, buffer: source.buffer, generation, offset, end, block },
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::message::Source;
    use crate::objects::{Format, ROOT};

    const TARGET: ObjectId = ObjectId(9);

    fn order(version: u32, generation: u32) -> Assign {
        let source = Some(Source { process: 1, object: ObjectId(1), buffer: Buffer::Object(ObjectId(1)) });
        let feeds = vec![Feed { slot: 1, generation: 1, range: 0..100, source }];
        let format = Format { size: 100, kind: 0 };
        let (target, slot, own, block, from, op) = (TARGET, ROOT, None, 10, 0, 0);
        Assign { target, attempt: 0, version, slot, generation, own, format, block, from, feeds, op }
    }

    #[test]
    fn a_receiver_that_is_the_destination_now_and_begins_anew_asks_for_what_it_never_pulled() {
        let (mut role, changes) = Role::new(order(1, 0), 40, &mut 0);
        assert_eq!(changes.open[0].1.offset, 40);
        role.handle_block(1, 60);
        assert_eq!(role.poll_fold(0).map(|fold| fold.range), Some(40..50));
        let changes = role.change(order(2, 7), &mut 1);
        assert!(changes.begins_anew && changes.close == [1] && changes.open[0].1.offset == 0);
        assert_eq!(role.poll_fold(0), None, "of the first block nothing has come");
        role.handle_block(2, 20);
        assert_eq!(role.poll_fold(0).map(|fold| (fold.range, fold.streams)), Some((0..10, vec![2])));
        let changes = role.change(order(3, 8), &mut 2);
        assert!(changes.open.is_empty() && changes.close.is_empty(), "all that came is kept");
    }
}
