//! What a process holds and pulls.

use std::time::Duration;

use super::{Held, Member, Parting};
use crate::objects::message::{Action, Pull, Report, Sink, State, Stream};
use crate::objects::{Buffer, Bytes, Costs, Format, ObjectId, Process, ROOT};

/// Threads that share a processor answer so late, whatever the link's latency.
const LATE: Duration = Duration::from_millis(30);
/// A feeder that is to stop has so many times as long as its answer, or one more block, should take.
const PATIENCE: u32 = 4;

/// So long a receiver waits for a feeder that is to stop, and again after each block. The rate is that of its fastest pull: a
/// block of a feeder whose link is far slower is not waited for. Who goes on without the answer takes at most once more what
/// is under way.
fn patience(block: u64, costs: &Costs) -> Duration {
    let on_link = Duration::from_secs_f64(block as f64 / costs.rate.max(1) as f64);
    PATIENCE * (2 * (costs.latency + costs.message) + on_link + LATE)
}

impl Member {
    pub(super) fn feed(
        &mut self,
        object: ObjectId,
        format: Format,
        generation: u32,
        from: Process,
        block: u64,
    ) {
        let Some(held) = self.held.get(&object) else {
            return self.report(object, Report::Forget { object });
        };
        let same = held.fed_by == Some(from) && held.generation == generation && held.stream.is_some();
        if held.state == State::Complete
            || held.state == State::Writing
            || same
            || generation < held.generation
        {
            return;
        }
        if self.lost.contains(&from) {
            return self.report(object, Report::Lost { process: from, object });
        }
        if generation != held.generation {
            self.close_stream(object);
        }
        let Some(held) = self.held.get_mut(&object) else { return };
        if generation != held.generation {
            (held.generation, held.mark, held.state) = (generation, 0, State::Wanted);
        }
        let before = held.fed_by.replace(from);
        let after = patience(held.block, &self.costs);
        (held.format, held.block) = (Some(format), block);
        match held.stream.zip(before) {
            Some((stream, before)) if held.parting.is_none() => {
                held.parting = Some(Parting { from: before, mark: held.mark, after });
                self.actions.extend([Action::Stop { stream }, Action::Timer { stream, after }]);
            }
            Some(_) => {}
            None => self.open_stream(object),
        }
    }

    /// Another feeds the object of a stream that is to stop from now on, unless its feeder is to be given more time.
    pub(super) fn part(&mut self, stream: Stream, waits: impl FnOnce(&Held) -> bool) {
        let Some(&Sink::Copy(object)) = self.streams.get(&stream) else { return };
        let Some(held) = self.held.get_mut(&object) else { return };
        let (waits, mark) = (waits(held), held.mark);
        match held.parting.as_mut().filter(|_| held.stream == Some(stream)) {
            Some(parting) if waits => {
                parting.mark = mark;
                self.actions.push_back(Action::Timer { stream, after: parting.after });
            }
            Some(_) => self.reopen_stream(object),
            None => {}
        }
    }

    /// A process that feeds an object, or did so far, is gone.
    pub(super) fn lose_feeder(&mut self, object: ObjectId, process: Process) {
        let Some(held) = self.held.get(&object) else { return };
        if held.fed_by == Some(process) {
            self.close_stream(object);
            self.report(object, Report::Lost { process, object });
        } else if held.parting.is_some_and(|parting| parting.from == process) {
            self.reopen_stream(object);
        }
    }

    /// Pulls from whom it is to be pulled from now, and no more from whom it was.
    fn reopen_stream(&mut self, object: ObjectId) {
        let fed_by = self.held.get(&object).and_then(|held| held.fed_by);
        self.close_stream(object);
        if let Some(held) = self.held.get_mut(&object) {
            held.fed_by = fed_by;
        }
        self.open_stream(object);
    }

    pub(super) fn open_stream(&mut self, object: ObjectId) {
        self.last_stream += 1;
        let stream = self.last_stream;
        let Some(held) = self.held.get_mut(&object) else { return };
        let (Some(from), Some(format)) = (held.fed_by, held.format) else { return };
        held.stream = Some(stream);
        let buffer = Buffer::Object(object);
        let pull = Pull {
            from,
            buffer,
            generation: held.generation,
            offset: held.mark,
            end: format.size,
            block: held.block,
        };
        self.open(stream, pull, Sink::Copy(object));
    }

    pub(super) fn open(&mut self, stream: Stream, pull: Pull, sink: Sink) {
        self.streams.insert(stream, sink);
        self.actions.push_back(Action::Open { stream, pull, sink });
    }

    pub(super) fn close(&mut self, stream: Stream) {
        if self.streams.remove(&stream).is_some() {
            self.actions.push_back(Action::Close { stream });
        }
    }

    pub(super) fn close_stream(&mut self, object: ObjectId) {
        let stream = self.held.get_mut(&object).and_then(|held| {
            (held.fed_by, held.parting) = (None, None);
            held.stream.take()
        });
        stream.into_iter().for_each(|stream| self.close(stream));
    }

    /// An object has grown.
    pub(super) fn advance(&mut self, object: ObjectId, end: u64) {
        let Some(held) = self.held.get_mut(&object) else { return };
        let is_made = self.roles.contains_key(&(object, ROOT));
        let is_first = held.state == State::Wanted;
        held.mark = end;
        let is_complete = held.format.is_some_and(|format| end == format.size);
        held.state = match (is_complete, is_made) {
            (true, _) => State::Complete,
            (false, true) => State::Writing,
            (false, false) => State::Receiving,
        };
        if is_complete {
            held.parting = None;
            if let Some(stream) = held.stream.take() {
                self.streams.remove(&stream);
            }
        }
        if is_first || is_complete {
            self.report_standing(object);
        }
        if is_complete {
            self.note_complete(object);
        }
        self.fold_all();
    }

    pub(super) fn note_complete(&mut self, object: ObjectId) {
        let Some(held) = self.held.get_mut(&object) else { return };
        if held.state == State::Complete && std::mem::take(&mut held.is_wanted) {
            self.actions.push_back(Action::Got { object });
        }
    }

    pub(super) fn take_small(&mut self, object: ObjectId, format: Format, bytes: Bytes) {
        let is_over = !self.calls.contains_key(&object);
        if is_over && self.held.get(&object).is_some_and(|held| held.state == State::Complete) {
            return;
        }
        let Some(held) = self.held.get_mut(&object) else { return };
        (held.format, held.mark, held.state) = (Some(format), format.size, State::Complete);
        held.bytes = Some(bytes);
        self.note_complete(object);
    }

    pub(super) fn restart(&mut self, object: ObjectId, generation: u32) {
        let Some(held) = self.held.get_mut(&object) else { return };
        if generation <= held.generation || held.state == State::Complete {
            return;
        }
        (held.generation, held.mark, held.state) = (generation, 0, State::Wanted);
        self.actions.push_back(Action::Reset { buffer: Buffer::Object(object) });
        // Whoever feeds it begins anew as well, and has the new beginning sooner or later.
        self.reopen_stream(object);
    }

    pub(super) fn drop_copy(&mut self, object: ObjectId) {
        self.close_stream(object);
        if self.held.remove(&object).is_some() {
            self.actions.push_back(Action::Release { buffer: Buffer::Object(object) });
        }
    }
}
