//! Bytes on their way: what this process pulls from others, and what others pull from it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{fence, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tweed_proto::objects::{
    lag, untold, window, Buffer, Failure, FileId, Fold, Frame, ObjectId, Process, Pull, Sink, Slot, Stream,
    SMALL_BYTES,
};

use super::memory::{Memory, Piece, Room, Taken};
use super::state::State;
use super::sums::Part;

/// A pull of this process.
pub(super) struct Inflow {
    from: Process,
    pull: Pull,
    sink: Sink,
    source: Source,
    /// Up to here it has come.
    cursor: u64,
    /// Where blocks began, and when they were asked for.
    began: (u64, Instant),
    /// Its feeder was asked to stop.
    stops: bool,
}

impl Inflow {
    /// Of which nothing has come.
    fn new(pull: Pull, sink: Sink, source: Source) -> Inflow {
        let (from, cursor, began) = (pull.from, pull.offset, (pull.offset, Instant::now()));
        Inflow { from, pull, sink, source, cursor, began, stops: false }
    }
}

/// From where bytes come.
enum Source {
    /// From its feeder as blocks, into memory whose first byte is byte `base` of the buffer.
    Blocks { memory: Arc<Memory>, base: u64 },
    /// A neighbour is asked for its file. There is room to map it.
    Asked { _room: Taken },
    /// They are in this file, which is mapped.
    Mapped(Arc<Memory>, FileId),
}

/// A pull of another process.
pub(super) struct Serve {
    pull: Pull,
    /// A neighbour maps what it pulls: it is told how far that is there.
    maps: bool,
    /// Up to here blocks have left, and so many have not been taken in yet.
    cursor: u64,
    under_way: u64,
    /// When it was asked for; none: since then it has waited for bytes, and says nothing of the link.
    since: Option<Instant>,
}

impl Serve {
    /// Up to which byte a neighbour is told next that the memory is there, if there is news.
    fn show(&mut self, file: Option<FileId>, readable: u64) -> Option<u64> {
        let Pull { end, block, .. } = self.pull;
        let whole = if readable >= end { end } else { readable / block * block };
        let end = file.map_or(self.cursor, |_| self.cursor.max(whole));
        let is_news = file.is_none() || end > self.cursor;
        self.cursor = end;
        is_news.then_some(end)
    }
}

/// What a stream into a slot has brought: it stays until the slot is over.
pub(super) struct Arrived {
    of: (ObjectId, Slot),
    memory: Arc<Memory>,
    base: u64,
}

/// All memory of objects.
pub(super) struct Store {
    pub(super) room: Arc<Room>,
    pub(super) buffers: BTreeMap<Buffer, Arc<Memory>>,
    pub(super) arrived: BTreeMap<Stream, Arrived>,
    pub(super) came: Came,
}

/// What has come over links, of which buffer and for what, so that what comes once more is known.
#[derive(Default)]
pub(super) struct Came {
    ranges: BTreeMap<(Sink, Buffer), Range<u64>>,
    /// The largest blocks that came have so many bytes.
    pub(super) block: u64,
}

impl Came {
    /// A range has come, beside or across what came before. Returns how many bytes of it had come.
    fn note(&mut self, what: (Sink, Buffer), range: Range<u64>, block: u64) -> u64 {
        self.block = self.block.max(block);
        let before = self.ranges.entry(what).or_insert(range.start..range.start);
        let twice = range.end.min(before.end).saturating_sub(range.start.max(before.start));
        *before = range.start.min(before.start)..range.end.max(before.end);
        twice
    }

    /// What came for that is not needed any more.
    pub(super) fn forget(&mut self, sink: Sink) {
        self.ranges.retain(|what, _| what.0 != sink);
    }
}

impl Store {
    pub(super) fn new(most: u64) -> Store {
        let (buffers, arrived, came) = (BTreeMap::new(), BTreeMap::new(), Came::default());
        Store { room: Room::new(most), buffers, arrived, came }
    }

    pub(super) fn end_slot(&mut self, of: (ObjectId, Slot)) {
        self.arrived.retain(|_, arrived| arrived.of != of);
        self.came.forget(Sink::Slot(of.0, of.1));
    }

    /// Where a buffer is written; one that begins at its first byte begins in memory that nobody else reads.
    fn place(&mut self, buffer: Buffer, size: u64, begin: u64) -> Option<Arc<Memory>> {
        let known = self.buffers.get(&buffer).filter(|_| begin > 0).cloned();
        let memory = known.or_else(|| Memory::new(size, &self.room))?;
        memory.own();
        self.buffers.insert(buffer, Arc::clone(&memory));
        Some(memory)
    }

    /// Where a range of a sum goes, and where its parts are. `None`: not all of them are here.
    pub(super) fn parts(&mut self, fold: &Fold, size: u64) -> Option<(Arc<Memory>, Vec<Part>)> {
        let own = fold.own.map(|object| self.buffers.get(&Buffer::Object(object)));
        let own = own.into_iter().map(|found| found.map(|memory| (Arc::clone(memory), 0)));
        let stream = |stream| self.arrived.get(stream).map(|a| (Arc::clone(&a.memory), a.base));
        let parts: Option<Vec<_>> = own.chain(fold.streams.iter().map(stream)).collect();
        let parts = parts?;
        Some((self.place(fold.sum(), size, fold.range.start)?, parts))
    }
}

/// What is at a receiver and waits until that has a processor is guessed by this at first.
const GUESSED_LAG: Duration = Duration::from_millis(5);

impl State {
    /// Asks for bytes: for a neighbour's memory, or for blocks. Later, if there is no room for the copy.
    pub(super) fn open(&mut self, stream: Stream, pull: Pull, sink: Sink) {
        let Pull { from, buffer, offset, end, .. } = pull;
        let is_copy = matches!(sink, Sink::Copy(_));
        let goes_on = is_copy && offset > 0 && self.store.buffers.contains_key(&buffer);
        let room = &self.store.room;
        if is_copy && !goes_on && end <= room.most && !room.has(end) {
            return self.parked.push((stream, pull, sink));
        }
        // What goes on does so in its own memory.
        if goes_on || end <= SMALL_BYTES || end > room.most || !self.is_neighbour(from) {
            return self.open_blocks(stream, pull, sink);
        }
        let source = Source::Asked { _room: room.take(end) };
        self.ask(stream, Inflow::new(pull, sink, source));
    }

    fn open_blocks(&mut self, stream: Stream, pull: Pull, sink: Sink) {
        let Pull { buffer, offset, end, .. } = pull;
        let (memory, base) = match sink {
            Sink::Copy(_) => (self.store.place(buffer, end, offset), 0),
            Sink::Slot(..) => (Memory::new(end - offset, &self.store.room), offset),
        };
        let Some(memory) = memory else { return self.refuse(sink, end) };
        if let Sink::Slot(target, slot) = sink {
            let arrived = Arrived { of: (target, slot), memory: Arc::clone(&memory), base };
            self.store.arrived.insert(stream, arrived);
        }
        let source = Source::Blocks { memory, base };
        self.ask(stream, Inflow::new(pull, sink, source));
    }

    /// A pull begins, or goes on otherwise.
    fn ask(&mut self, stream: Stream, inflow: Inflow) {
        let Inflow { from, pull, cursor, .. } = inflow;
        let maps = matches!(inflow.source, Source::Asked { .. });
        self.inflows.insert(stream, inflow);
        self.tell(from, &Frame::Pull { stream, pull: Pull { offset: cursor, ..pull }, maps }, None);
    }

    /// A neighbour has more of what is mapped, or cannot show it; `false` if that makes no sense.
    pub(super) fn take_mapped(
        &mut self,
        from: Process,
        stream: Stream,
        file: Option<FileId>,
        end: u64,
    ) -> bool {
        let maps = |inflow: &&mut Inflow| !matches!(inflow.source, Source::Blocks { .. });
        let Some(inflow) = self.inflows.get_mut(&stream).filter(|of| of.from == from).filter(maps) else {
            return true; // it was closed meanwhile, or brings blocks
        };
        if end < inflow.cursor || end > inflow.pull.end {
            return false;
        }
        // Whoever wrote these bytes did so before it sent this: no read of them is done before here. The kernel's socket
        // orders the two on all processors that Linux runs on; the compiler knows nothing of it.
        fence(Ordering::Acquire);
        let is_known = |known: FileId| matches!(&inflow.source, Source::Mapped(_, of) if *of == known);
        // One that has begun anew is another file, of which as much is there.
        if let Some(file) = file.filter(|&file| !is_known(file)) {
            self.map(stream, file);
        }
        let Some(inflow) = self.inflows.get_mut(&stream) else { return true };
        match &inflow.source {
            Source::Mapped(_, known) if Some(*known) == file => {
                inflow.cursor = end;
                if end == inflow.pull.end {
                    self.inflows.remove(&stream);
                }
                self.member.handle_block(stream, end);
            }
            _ => self.ask_for_blocks(stream),
        }
        true
    }

    /// Maps a neighbour's memory where it can be.
    fn map(&mut self, stream: Stream, file: FileId) {
        let Some(inflow) = self.inflows.get_mut(&stream) else { return };
        let Pull { from, buffer, end, .. } = inflow.pull;
        let memory = match self.peers.pid(from) {
            Some(pid) => Memory::open(pid, file, end, &self.store.room),
            None => {
                self.store.buffers.get(&buffer).filter(|own| from == self.me && own.here() == file).cloned()
            }
        };
        let Some(memory) = memory else { return };
        match inflow.sink {
            Sink::Copy(_) => drop(self.store.buffers.insert(buffer, Arc::clone(&memory))),
            Sink::Slot(target, slot) => {
                let arrived = Arrived { of: (target, slot), memory: Arc::clone(&memory), base: 0 };
                self.store.arrived.insert(stream, arrived);
            }
        }
        inflow.source = Source::Mapped(memory, file);
    }

    /// What cannot be mapped, or not all of it, comes as blocks from where it is.
    fn ask_for_blocks(&mut self, stream: Stream) {
        let Some(inflow) = self.inflows.remove(&stream) else { return };
        let Inflow { from, pull, sink, cursor, .. } = inflow;
        self.tell(from, &Frame::Close { stream }, None);
        match inflow.source {
            // Nothing is written to what this process itself has.
            Source::Mapped(memory, _) if from != self.me => {
                memory.own();
                let (source, began) = (Source::Blocks { memory, base: 0 }, (cursor, Instant::now()));
                self.ask(stream, Inflow { source, began, ..inflow });
            }
            _ => self.open_blocks(stream, Pull { offset: cursor, ..pull }, sink),
        }
    }

    /// So many bytes are more than this process can ever hold: their call has no result.
    fn refuse(&mut self, sink: Sink, bytes: u64) {
        match sink {
            Sink::Copy(object) => {
                let full = self.full(bytes);
                self.end_with(object, &full);
                self.member.withdraw(object);
            }
            Sink::Slot(target, slot) => {
                let why = Failure::NoRoom { target, process: self.me, bytes };
                self.member.handle_unable(target, slot, why);
            }
        }
    }

    /// Opens what has waited for room, in order.
    pub(super) fn unpark(&mut self) {
        while self.parked.first().is_some_and(|(_, pull, _)| self.store.room.has(pull.end)) {
            let (stream, pull, sink) = self.parked.remove(0);
            self.open(stream, pull, sink);
        }
    }

    pub(super) fn close(&mut self, stream: Stream) {
        self.parked.retain(|parked| parked.0 != stream);
        if let Some(inflow) = self.inflows.remove(&stream) {
            self.void.extend(inflow.stops.then_some((inflow.from, stream)));
            self.tell(inflow.from, &Frame::Close { stream }, None);
        }
    }

    /// Of a pull no more is wanted than is under way.
    pub(super) fn stop(&mut self, stream: Stream) {
        match self.inflows.get_mut(&stream) {
            Some(Inflow { from, source: Source::Blocks { .. }, stops, .. }) => {
                *stops = true;
                let from = *from;
                self.tell(from, &Frame::Stop { stream }, None);
            }
            // Nothing is: a neighbour's memory is read where it is, and what has no room has not been asked for.
            _ => {
                self.close(stream);
                self.member.handle_stopped(stream);
            }
        }
    }

    /// All that had left of a pull is here.
    pub(super) fn take_stopped(&mut self, from: Process, stream: Stream) {
        self.void.remove(&(from, stream));
        if self.inflows.get(&stream).is_some_and(|inflow| inflow.from == from) {
            self.inflows.remove(&stream);
            self.member.handle_stopped(stream);
        }
    }

    /// Of so many blocks like this one its sender need not be told at once: of the last one of a pull it waits to hear.
    pub(super) fn may_be_untold(&self, stream: Stream, begin: u64, bytes: &[u8]) -> u64 {
        let end = begin.saturating_add(bytes.len() as u64);
        let is_last = self.inflows.get(&stream).is_none_or(|inflow| end >= inflow.pull.end);
        if is_last {
            1
        } else {
            untold(bytes.len() as u64)
        }
    }

    /// Bytes have come; `false` if they are not those that come next.
    pub(super) fn take_block(&mut self, from: Process, stream: Stream, begin: u64, bytes: &[u8]) -> bool {
        let Some(inflow) = self.inflows.get_mut(&stream).filter(|inflow| inflow.from == from) else {
            // It was closed meanwhile. From whom it was to stop, another brings the same bytes.
            self.taken_twice += if self.void.contains(&(from, stream)) { bytes.len() as u64 } else { 0 };
            return true;
        };
        let Source::Blocks { memory, base } = &inflow.source else { return false };
        let end = begin.saturating_add(bytes.len() as u64);
        if begin != inflow.cursor || end > inflow.pull.end || bytes.is_empty() {
            return false;
        }
        // SAFETY: beyond the mark, which is moved after this; no other stream writes here, as each has memory of its own or
        // is the only one of its copy.
        if !unsafe { memory.write(begin - base, bytes) } {
            return false;
        }
        inflow.cursor = end;
        if from != self.me {
            let what = (inflow.sink, inflow.pull.buffer);
            self.taken_twice += self.store.came.note(what, begin..end, inflow.pull.block);
        }
        let ((at, asked), is_sum) = (inflow.began, matches!(inflow.pull.buffer, Buffer::Partial { .. }));
        if end == inflow.pull.end {
            self.inflows.remove(&stream);
            // Sums wait for those that are summed.
            if !is_sum && !self.is_neighbour(from) {
                self.note_rate(end - at, asked.elapsed());
            }
        }
        self.member.handle_block(stream, end);
        true
    }

    pub(super) fn serve(&mut self, to: Process, stream: Stream, pull: Pull, maps: bool) {
        let serve = Serve { cursor: pull.offset, under_way: 0, since: Some(Instant::now()), pull, maps };
        self.serves.insert((to, stream), serve);
    }

    /// One more of this pull's blocks may leave.
    pub(super) fn grant(&mut self, to: Process, stream: Stream) {
        let Some(serve) = self.serves.get_mut(&(to, stream)) else { return };
        serve.under_way = serve.under_way.saturating_sub(1);
        let (under_way, block) = (serve.under_way, serve.pull.block);
        if serve.under_way == 0 && serve.cursor >= serve.pull.end {
            let (bytes, since) = (serve.pull.end - serve.pull.offset, serve.since);
            self.serves.remove(&(to, stream));
            if let Some(since) = since.filter(|_| !self.is_neighbour(to)) {
                self.note_rate(bytes, since.elapsed());
            }
        }
        let link = self.peers.link(to).filter(|_| under_way > 0);
        if let Some(on_the_way) = link.and_then(|link| self.links.unacknowledged(link)) {
            self.measured.note_lag(lag(under_way, block, on_the_way));
        }
    }

    /// Sends the blocks that may leave, and tells neighbours how far they may read.
    pub(super) fn pump(&mut self) {
        let (mut leaving, mut shown) = (Vec::new(), Vec::new());
        let guessed = || (GUESSED_LAG.as_secs_f64() * self.costs.rate as f64) as u64;
        let lag = self.measured.lag().unwrap_or_else(guessed);
        for (&(to, stream), serve) in &mut self.serves {
            let Pull { buffer, generation, end, block, .. } = serve.pull;
            let Some(memory) = self.store.buffers.get(&buffer) else { continue };
            let Some(readable) = self.member.readable(buffer, generation) else { continue };
            if serve.maps {
                let file = if to == self.me { Some(memory.here()) } else { memory.file() };
                shown.extend(serve.show(file, readable).map(|end| (to, stream, file, end)));
                continue;
            }
            let round_trip = self.peers.link(to).and_then(|link| self.links.round_trip(link));
            let most = window(block, self.costs.rate, round_trip.unwrap_or(2 * self.costs.latency), lag);
            while serve.cursor < end && serve.under_way < most {
                let (begin, next) = (serve.cursor, end.min((serve.cursor / block + 1) * block));
                if next > readable || next > memory.len() as u64 {
                    // Of what is under way not all that came has been told of.
                    let is_dry = serve.under_way < untold(block);
                    serve.since = serve.since.filter(|_| !is_dry);
                    break;
                }
                (serve.cursor, serve.under_way) = (next, serve.under_way + 1);
                let piece = Piece { memory: Arc::clone(memory), range: begin..next };
                leaving.push((to, Frame::Block { stream, begin }, piece));
            }
        }
        // What was written comes before the word of it, as in `take_mapped`.
        fence(Ordering::Release);
        for (to, stream, file, end) in shown {
            if file.is_none() || self.serves.get(&(to, stream)).is_some_and(|serve| serve.pull.end == end) {
                self.serves.remove(&(to, stream));
            }
            self.tell(to, &Frame::Mapped { stream, file, end }, None);
        }
        leaving.into_iter().for_each(|(to, frame, piece)| self.tell(to, &frame, Some(Arc::new(piece))));
    }

    /// A process is gone: nothing goes there or comes from there any more.
    pub(super) fn forget_pulls(&mut self, process: Process) {
        self.serves.retain(|to, _| to.0 != process);
        self.inflows.retain(|_, inflow| inflow.from != process);
        self.void.retain(|of| of.0 != process);
        self.parked.retain(|parked| parked.1.from != process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_once_more_is_counted_until_nobody_needs_it() {
        let (object, mut came) = (ObjectId(1), Came::default());
        let copy = (Sink::Copy(object), Buffer::Object(object));
        assert_eq!([came.note(copy, 20..30, 30), came.note(copy, 30..50, 30)], [0, 0]);
        assert_eq!(came.note(copy, 40..60, 30), 10, "a feeder died, and the next one began within a block");
        assert_eq!([came.note(copy, 0..40, 30), came.note(copy, 40..60, 30)], [20, 20], "it has begun anew");
        let slot = (Sink::Slot(object, 3), copy.1);
        assert_eq!([came.note(slot, 0..60, 30), came.note(slot, 0..10, 30)], [0, 10]);
        came.forget(copy.0);
        assert_eq!([came.note(copy, 0..60, 30), came.note(slot, 0..60, 30)], [0, 60]);
    }
}
