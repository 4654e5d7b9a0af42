//! Calls that wait for objects, and what comes of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tweed_kernels::ReduceOp;
use tweed_proto::engine::EngineError;
use tweed_proto::objects::{Buffer, Failure, Format, Included, ObjectId, State as Standing, Stream};

use super::kind::{dtype_of, list_of, shape_of};
use super::memory::Memory;
use super::state::State;

/// An object that is here.
#[derive(Debug)]
pub struct Finished {
    /// How many bytes, and of which kind.
    pub format: Format,
    /// The bytes.
    pub memory: Arc<Memory>,
    /// Of a reduce: the ids that are summed, by range.
    pub included: Option<Included>,
}

/// The number of a call, and what came of it.
pub type Ended = (u64, Result<Finished, EngineError>);

/// What is waited for.
#[derive(Clone, Debug)]
pub(super) enum What {
    Get,
    Reduce { ids: Arc<[ObjectId]>, count: u32 },
}

struct Call {
    object: ObjectId,
    what: What,
    since: Instant,
    until: Option<Instant>,
}

#[derive(Default)]
pub(super) struct Calls {
    last: u64,
    open: BTreeMap<u64, Call>,
    pub(super) done: Vec<Ended>,
}

impl Calls {
    /// A call has begun. Returns its number.
    pub(super) fn begin(&mut self, object: ObjectId, what: What, patience: Option<Duration>) -> u64 {
        self.last += 1;
        let since = Instant::now();
        let until = patience.and_then(|patience| since.checked_add(patience));
        self.open.insert(self.last, Call { object, what, since, until });
        self.last
    }

    pub(super) fn waits_for(&self, object: ObjectId) -> bool {
        self.open.values().any(|call| call.object == object)
    }
}

impl State {
    /// Ends the calls for an object, gets or reduces.
    fn end(
        &mut self,
        object: ObjectId,
        is_reduce: bool,
        end: impl Fn(&mut State) -> Result<Finished, EngineError>,
    ) {
        let ends =
            |call: &Call| call.object == object && matches!(call.what, What::Reduce { .. }) == is_reduce;
        let numbers: Vec<u64> =
            self.calls.open.iter().filter(|entry| ends(entry.1)).map(|(&number, _)| number).collect();
        for number in numbers {
            self.calls.open.remove(&number);
            let result = end(self);
            self.calls.done.push((number, result));
        }
    }

    /// An object is complete here.
    pub(super) fn end_gets(&mut self, object: ObjectId) {
        self.end(object, false, |state| state.finished(object, None));
    }

    /// A reduce is complete here.
    pub(super) fn end_reduces(&mut self, target: ObjectId, included: Included) {
        self.end(target, true, |state| state.finished(target, Some(included.clone())));
    }

    /// Calls for this object have no result.
    pub(super) fn fail(&mut self, object: ObjectId, why: &Failure) {
        self.end_with(object, &in_words(why));
    }

    /// All calls for this object end so.
    pub(super) fn end_with(&mut self, object: ObjectId, error: &EngineError) {
        self.end(object, false, |_| Err(error.clone()));
        self.end(object, true, |_| Err(error.clone()));
    }

    /// All calls end, for that reason.
    pub(super) fn abort(&mut self, why: &str) {
        for (number, _) in std::mem::take(&mut self.calls.open) {
            self.calls.done.push((number, Err(EngineError::Aborted(why.to_owned()))));
        }
    }

    /// When the next deadline is, of a call or a pull.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let calls = self.calls.open.values().filter_map(|call| call.until);
        calls.chain(self.timers.values().copied()).min()
    }

    /// Ends the calls whose deadline has passed, and has pulls looked at.
    pub(super) fn expire(&mut self, now: Instant) {
        let due: Vec<Stream> = self.timers.iter().filter(|of| *of.1 <= now).map(|(&of, _)| of).collect();
        for stream in due {
            self.timers.remove(&stream);
            self.member.handle_timeout(stream);
        }
        let is_late = |call: &Call| call.until.is_some_and(|until| until <= now);
        let late: Vec<u64> =
            self.calls.open.iter().filter(|entry| is_late(entry.1)).map(|(&number, _)| number).collect();
        for number in late {
            let Some(call) = self.calls.open.remove(&number) else { continue };
            let text = self.lateness(&call, now);
            self.calls.done.push((number, Err(EngineError::Deadline(text))));
            if !self.calls.waits_for(call.object) {
                self.member.withdraw(call.object);
            }
        }
    }

    fn finished(&mut self, object: ObjectId, included: Option<Included>) -> Result<Finished, EngineError> {
        let lost = || {
            EngineError::Aborted(format!("{object} was complete here, and is gone: it was deleted meanwhile"))
        };
        let format = self.member.format(object).ok_or_else(lost)?;
        let buffer = Buffer::Object(object);
        if let Some(bytes) = self.member.bytes(object).filter(|_| !self.store.buffers.contains_key(&buffer)) {
            let memory = Memory::new(format.size, &self.store.room).ok_or_else(|| self.full(format.size))?;
            // SAFETY: nobody else has it yet.
            unsafe { memory.write(0, bytes) };
            self.store.buffers.insert(buffer, memory);
        }
        let memory = self.store.buffers.get(&buffer).cloned().ok_or_else(lost)?;
        Ok(Finished { format, memory, included })
    }

    /// What is there of an object.
    pub(super) fn progress(&self, object: ObjectId) -> Option<(Finished, u64)> {
        let (format, memory) =
            (self.member.format(object)?, self.store.buffers.get(&Buffer::Object(object))?);
        let (_, mark, _) = self.member.standing(object)?;
        Some((Finished { format, memory: Arc::clone(memory), included: None }, mark))
    }

    /// What is wrong with a call that is late.
    fn lateness(&self, call: &Call, now: Instant) -> String {
        let object = call.object;
        let waited = now.duration_since(call.since).as_secs_f64();
        let is_parked = self.parked.iter().any(|parked| parked.1.buffer == Buffer::Object(object));
        let mut text = match (&call.what, self.member.standing(object)) {
            _ if is_parked => format!("no copy of {object} in {waited:.1} s: {}", self.fill()),
            (What::Reduce { ids, count }, _) => {
                let placed = self.member.placed(object);
                let missing = ids.iter().filter(|id| !placed.contains(id)).map(ObjectId::to_string);
                let missing: Vec<String> = missing.take(4).collect();
                format!(
                    "no sum {object} of the first {count} of {} objects in {waited:.1} s: of {} it is known here that they \
                     are there; among the others are {}. Put them, ask for fewer, or wait longer",
                    ids.len(),
                    placed.len(),
                    missing.join(", ")
                )
            }
            (What::Get, Some((Standing::Receiving | Standing::Writing, mark, from))) => {
                let size = self.member.format(object).map_or(0, |format| format.size);
                let from = from.map_or("others".into(), |process| self.peers.name(process));
                format!("only {mark} of {size} bytes of {object} have come in {waited:.1} s, from {from}: wait longer")
            }
            (What::Get, _) => format!(
                "nobody has made {object} in {waited:.1} s: was it put, under this id, by a process that this one has met? Else \
                 wait longer"
            ),
        };
        let gone: Vec<&str> = self.peers.gone().take(4).collect();
        if !gone.is_empty() {
            text += &format!(". Lost since the start: {}", gone.join("; "));
        }
        text
    }

    /// What fills the store.
    pub(super) fn fill(&self) -> String {
        let room = &self.store.room;
        let objects = self.store.buffers.iter().filter_map(|(buffer, memory)| match buffer {
            Buffer::Object(object) => Some((memory.len() as u64, *object)),
            Buffer::Partial { .. } => None,
        });
        let mut objects: Vec<(u64, ObjectId)> = objects.collect();
        objects.sort_unstable_by(|a, b| b.cmp(a));
        let whole: u64 = objects.iter().map(|object| object.0).sum();
        let largest: Vec<String> =
            objects.iter().take(3).map(|(bytes, object)| format!("{object} with {bytes}")).collect();
        format!(
            "of the store's {} bytes {} objects take {whole} (the largest: {}), and sums under way and what is still held of deleted \
             objects {}. Delete what nobody needs, let go of arrays, or open a larger store",
            room.most,
            objects.len(),
            if largest.is_empty() { "none".into() } else { largest.join(", ") },
            room.used().saturating_sub(whole)
        )
    }

    pub(super) fn full(&self, bytes: u64) -> EngineError {
        EngineError::Usage(format!("there is no room for {bytes} bytes: {}", self.fill()))
    }
}

/// A format, for people.
fn form(format: Format) -> String {
    let dtype = dtype_of(format.kind).map_or("an unknown dtype".into(), |dtype| dtype.to_string());
    match list_of(format.kind) {
        Some(_) => format!("a list of {dtype} arrays, {} elements in all", shape_of(format)[0]),
        None => format!("{dtype}{:?}", shape_of(format)),
    }
}

fn in_words(why: &Failure) -> EngineError {
    match why {
        Failure::Unlike { one, other, formats: [first, second] } => EngineError::ShapeMismatch(format!(
            "{one} is {}, and {other} is {}: only objects of one dtype and shape are summed",
            form(*first),
            form(*second)
        )),
        Failure::Operator { object, format, op } => {
            let pair = ReduceOp::try_from(*op).ok().zip(dtype_of(format.kind));
            let why = pair.and_then(|(op, dtype)| op.supports(dtype).err());
            let why = why.map_or_else(|| why_text(*op), |unsupported| unsupported.to_string());
            EngineError::Usage(format!("{object} is {}: {why}", form(*format)))
        }
        Failure::Count { .. } | Failure::Deleted { .. } | Failure::NoRoom { .. } => {
            EngineError::Usage(why.to_string())
        }
        Failure::Missing { .. } => EngineError::Aborted(why.to_string()),
    }
}

fn why_text(op: u32) -> String {
    format!("operator {op} is none for objects; sum, and divide by the number of ids that the result names")
}
