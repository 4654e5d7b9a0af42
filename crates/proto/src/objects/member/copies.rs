//! What a process holds and pulls.

use super::Member;
use crate::objects::message::{Action, Pull, Report, Sink, State, Stream};
use crate::objects::{Buffer, Bytes, Format, ObjectId, Process, ROOT};

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
        self.close_stream(object);
        if let Some(held) = self.held.get_mut(&object) {
            if generation != held.generation {
                (held.generation, held.mark, held.state) = (generation, 0, State::Wanted);
            }
            (held.format, held.fed_by, held.block) = (Some(format), Some(from), block);
        }
        if self.lost.contains(&from) {
            return self.report(object, Report::Lost { process: from, object });
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
            held.fed_by = None;
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
            held.stream.take().into_iter().for_each(|stream| {
                self.streams.remove(&stream);
            });
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
        let (from, format) = (held.fed_by, held.format);
        self.actions.push_back(Action::Reset { buffer: Buffer::Object(object) });
        self.close_stream(object);
        if let (Some(from), Some(_)) = (from, format) {
            // Whoever feeds it begins anew as well, and has the new beginning sooner or later.
            if let Some(held) = self.held.get_mut(&object) {
                held.fed_by = Some(from);
            }
            self.open_stream(object);
        }
    }

    pub(super) fn drop_copy(&mut self, object: ObjectId) {
        self.close_stream(object);
        if self.held.remove(&object).is_some() {
            self.actions.push_back(Action::Release { buffer: Buffer::Object(object) });
        }
    }
}
