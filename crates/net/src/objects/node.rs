//! What callers hold.

use std::net::SocketAddr;
use std::sync::mpsc::{channel, Receiver};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tweed_kernels::ReduceOp;
use tweed_proto::engine::EngineError;
use tweed_proto::hub::MostQueued;
use tweed_proto::objects::{Buffer, Bytes, Costs, Format, Mode, ObjectId, Request, Rule, SMALL_BYTES};

use super::calls::{Ended, Finished, What};
use super::dialing::Dialing;
use super::kind::Layout;
use super::memory::Memory;
use super::state::{State, Writing};
use super::sums::Sum;
use crate::connect::descriptor::PeerDescriptor;
use crate::hub::{HubLinks, HubOptions};
use crate::secure::{hex, Secret};
use crate::sync::stop::SLICE;
use crate::sync::{Condvar, LockRank, Mutex};
use crate::system_error::in_words;

/// A frame is a block of the planner's largest with its head, or a small object, or a plan.
const MOST_FRAME: u64 = 16 << 20;
/// Blocks have windows; of the planner's messages a process that does not read may leave so many unread.
const MOST_QUEUED: MostQueued = MostQueued { messages: 1 << 16, longest: usize::MAX };
/// What is put is copied in pieces of this, and each is there for others at once.
const PUT_STEP: u64 = 4 << 20;
/// How a process takes part.
#[derive(Clone, Debug)]
pub struct ObjectsOptions {
    /// Where it listens; port 0 is any.
    pub address: SocketAddr,
    /// What admits; `None`: on loopback alone.
    pub secret: Option<Secret>,
    /// The network namespace of a testbed, in which no secret is needed.
    pub testbed: Option<String>,
    /// So many bytes its objects may take.
    pub most_bytes: u64,
    /// Share no memory, not even within a host.
    pub wire_only: bool,
    /// What is known of its links.
    pub costs: Costs,
    /// A process that cannot be reached for so long is lost.
    pub silence: Duration,
    /// How long a call to another process may take.
    pub patience: Duration,
}

pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    pub(super) changed: Condvar,
    pub(super) links: Arc<HubLinks>,
    /// For so long a process is called whose link has broken.
    pub(super) patience: Duration,
}

/// A process that puts, gets and sums objects. Calls may come from any thread.
pub struct Objects {
    pub(super) shared: Arc<Shared>,
    pub(super) descriptor: Bytes,
    threads: Vec<JoinHandle<()>>,
    process: u32,
}

impl Objects {
    /// Listens, and knows nobody yet.
    pub fn open(options: ObjectsOptions) -> Result<Objects, EngineError> {
        let ObjectsOptions { address, secret, testbed, most_bytes, wire_only, costs, silence, patience } =
            options;
        // A link that is silent ends after half of it, and for the other half its process is called anew.
        let silence = silence / 2;
        let (most_queued, key_file) = (MOST_QUEUED, None);
        let hub =
            HubOptions { secret, testbed, key_file, silence, patience, most_bytes: MOST_FRAME, most_queued };
        let links = Arc::new(HubLinks::open(hub)?);
        let failed = |e: std::io::Error| EngineError::setup("objects cannot be shared", in_words(&e));
        let bound = links.listen(address, "objects")?;
        let descriptor = PeerDescriptor::new(Some(hex(&links.key())), Some(bound)).map_err(failed)?;
        let descriptor = PeerDescriptor { wire_only, ..descriptor };
        let (sums, jobs) = channel();
        let state = State::new(descriptor.clone(), costs, most_bytes, Arc::clone(&links), sums);
        let state = Mutex::new(LockRank::Objects, state);
        let shared = Arc::new(Shared { state, changed: Condvar::default(), links, patience: silence });
        let (watching, adding) = (Arc::clone(&shared), Arc::clone(&shared));
        let thread = |name: &str| std::thread::Builder::new().name(name.into());
        let threads = vec![
            thread("tweed-objects").spawn(move || watching.watch()).map_err(failed)?,
            thread("tweed-sums").spawn(move || adding.add(&jobs)).map_err(failed)?,
        ];
        let descriptor = descriptor.encode().into();
        Ok(Objects { shared, descriptor, threads, process: std::process::id() })
    }

    /// By which others reach this process.
    pub fn descriptor(&self) -> &[u8] {
        &self.descriptor
    }

    /// Makes room for an object of this shape, which the caller writes from its first byte on. Waits for room as long as
    /// `patience`.
    pub fn create<'a>(
        &self,
        object: ObjectId,
        layout: impl Into<Layout<'a>>,
        patience: Duration,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Arc<Memory>, EngineError> {
        self.check_process()?;
        let layout @ Layout { dtype, shape, .. } = layout.into();
        let kind = layout.kind().ok_or_else(|| {
            EngineError::Usage(format!(
                "the shape {shape:?} is too long to be told: flatten or split the array"
            ))
        })?;
        let size = shape.iter().try_fold(dtype.size() as u64, |bytes, &dim| bytes.checked_mul(dim));
        let size =
            size.ok_or_else(|| EngineError::Usage(format!("the shape {shape:?} has too many elements")))?;
        let until = Instant::now().checked_add(patience);
        loop {
            if let Some(memory) = self.try_create(object, Format { size, kind })? {
                if size == 0 {
                    self.advance(object, 0)?;
                }
                return Ok(memory);
            }
            let is_late = until.is_some_and(|until| Instant::now() >= until);
            let is_over = is_late || interrupted();
            let state = self.shared.state.lock();
            if is_over || size > state.store.room.most || state.is_closed {
                return Err(state.full(size));
            }
            // Whoever lets go of memory takes no lock, and so tells nobody.
            drop(self.shared.changed.wait_timeout(state, SLICE));
        }
    }

    /// `None`: there is no room.
    fn try_create(&self, object: ObjectId, format: Format) -> Result<Option<Arc<Memory>>, EngineError> {
        let mut state = self.shared.state.lock();
        if state.writing.contains_key(&object) || state.member.format(object).is_some() {
            return Err(EngineError::Usage(format!(
                "{object} is here already: put what is new under a new id"
            )));
        }
        let room = Arc::clone(&state.store.room);
        let Some(memory) = room.has(format.size).then(|| Memory::new(format.size, &room)).flatten() else {
            return Ok(None);
        };
        state.writing.insert(object, Writing { memory: Arc::clone(&memory), format, valid: 0 });
        state.store.buffers.insert(Buffer::Object(object), Arc::clone(&memory));
        Ok(Some(memory))
    }

    /// The first `valid` bytes of an object that is written here are there, for good.
    pub fn advance(&self, object: ObjectId, valid: u64) -> Result<(), EngineError> {
        self.check_process()?;
        let mut state = self.shared.state.lock();
        let Some(writing) = state.writing.get_mut(&object) else {
            return Err(EngineError::Usage(format!(
                "{object} is not written here: it was sealed, or deleted"
            )));
        };
        let Format { size, .. } = writing.format;
        if valid < writing.valid || valid > size {
            let was = writing.valid;
            return Err(EngineError::Usage(format!(
                "the mark of {object} goes from {was} to {size} bytes, not to {valid}"
            )));
        }
        writing.valid = valid;
        let (format, memory) = (writing.format, Arc::clone(&writing.memory));
        let is_small_and_whole = valid == size && size <= SMALL_BYTES;
        // SAFETY: behind the mark; the caller has promised to write there no more.
        let bytes = is_small_and_whole.then(|| unsafe { memory.read(0..size) }).flatten().map(Bytes::from);
        if valid == size {
            state.writing.remove(&object);
        }
        state.member.put(object, format, valid, bytes);
        state.drive();
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// An object is there: a copy of these parts, one behind the other. Others take its beginning while the rest is
    /// copied. Nothing interrupts it once there is room.
    pub fn put<'a>(
        &self,
        object: ObjectId,
        layout: impl Into<Layout<'a>>,
        parts: &[&[u8]],
        patience: Duration,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), EngineError> {
        let memory = self.create(object, layout, patience, interrupted)?;
        let given: usize = parts.iter().map(|part| part.len()).sum();
        if memory.len() != given {
            self.abandon(object, &memory);
            let needed = memory.len();
            return Err(EngineError::Usage(format!("{object} has {needed} bytes, and {given} were given")));
        }
        let (mut begin, mut valid) = (0, 0);
        for step in parts.iter().flat_map(|part| part.chunks(PUT_STEP as usize)) {
            // SAFETY: beyond the mark, and nobody else writes it.
            unsafe { memory.write(begin, step) };
            begin += step.len() as u64;
            if begin - valid >= PUT_STEP || begin == given as u64 {
                self.advance(object, begin)?;
                valid = begin;
            }
        }
        Ok(())
    }

    /// Nobody writes the rest of an object that was to lie in this memory: if there is any, nobody is to have the object.
    pub fn abandon(&self, object: ObjectId, memory: &Arc<Memory>) {
        let is_written = |state: &State| {
            state.writing.get(&object).is_some_and(|writing| Arc::ptr_eq(&writing.memory, memory))
        };
        if self.check_process().is_ok() && is_written(&self.shared.state.lock()) {
            let _ = self.delete(object);
        }
    }

    /// Asks for a copy. Returns the number of the call.
    pub fn get(&self, object: ObjectId, patience: Option<Duration>) -> Result<u64, EngineError> {
        self.begin(object, What::Get, patience, |state| state.member.get(object))
    }

    /// Asks for the sum of the first `count` of these objects that appear. Returns the number of the call.
    pub fn reduce(
        &self,
        target: ObjectId,
        ids: Arc<[ObjectId]>,
        count: u32,
        (op, mode, rule): (ReduceOp, Mode, Rule),
        patience: Option<Duration>,
    ) -> Result<u64, EngineError> {
        let mut sorted: Vec<ObjectId> = ids.to_vec();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(EngineError::Usage(format!("{} is named twice; give each id once", pair[0])));
        }
        let what = What::Reduce { ids: Arc::clone(&ids), count };
        self.begin(target, what, patience, |state| {
            let (costs, rule) = (state.costs, state.rule(rule, count));
            state.member.reduce(Request { target, ids, count, op: op as u32, mode, rule, costs });
        })
    }

    fn begin(
        &self,
        object: ObjectId,
        what: What,
        patience: Option<Duration>,
        act: impl FnOnce(&mut State),
    ) -> Result<u64, EngineError> {
        self.check_process()?;
        let mut state = self.shared.state.lock();
        if state.is_closed {
            return Err(EngineError::Aborted(
                "objects are not shared any more: this process has closed them".into(),
            ));
        }
        let number = state.calls.begin(object, what, patience);
        act(&mut state);
        state.drive();
        drop(state);
        self.shared.changed.notify_all();
        if patience.is_some() {
            self.shared.links.wake();
        }
        Ok(number)
    }

    /// Nobody is to have the object any more; arrays of it that are held stay.
    pub fn delete(&self, object: ObjectId) -> Result<(), EngineError> {
        self.check_process()?;
        let mut state = self.shared.state.lock();
        state.member.delete(object);
        state.drive();
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// The calls that have ended since the last time it was asked; waits for one for as long as `patience`.
    pub fn ended(&self, patience: Duration) -> Result<Vec<Ended>, EngineError> {
        self.check_process()?;
        let until = Instant::now().checked_add(patience);
        let mut state = self.shared.state.lock();
        loop {
            let left = until.map_or(SLICE, |until| until.saturating_duration_since(Instant::now()));
            if !state.calls.done.is_empty() || left.is_zero() || state.is_closed {
                return Ok(std::mem::take(&mut state.calls.done));
            }
            state = self.shared.changed.wait_timeout(state, left);
        }
    }

    /// How far an object that this process holds, makes or gets has come: its memory, and up to which byte it may be read;
    /// `None` if there is nothing of it yet. Waits for a mark other than `mark` for as long as `patience`. Memory is another
    /// one when the object has begun anew.
    pub fn mark(
        &self,
        object: ObjectId,
        mark: u64,
        patience: Duration,
    ) -> Result<Option<(Finished, u64)>, EngineError> {
        self.check_process()?;
        let until = Instant::now().checked_add(patience);
        let mut state = self.shared.state.lock();
        loop {
            let found = state.progress(object);
            let left = until.map_or(SLICE, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() || state.is_closed || found.as_ref().is_some_and(|found| found.1 != mark) {
                return Ok(found);
            }
            state = self.shared.changed.wait_timeout(state, left);
        }
    }

    /// The sources that have places of a reduce that was called here, once there are `least`, or it has ended: then there are none.
    /// Waits for as long as `patience`.
    pub fn placed(
        &self,
        target: ObjectId,
        least: usize,
        patience: Duration,
    ) -> Result<Vec<ObjectId>, EngineError> {
        self.check_process()?;
        let until = Instant::now().checked_add(patience);
        let mut state = self.shared.state.lock();
        loop {
            let found = state.member.placed(target);
            let left = until.map_or(SLICE, |until| until.saturating_duration_since(Instant::now()));
            let is_over = state.is_closed || !state.calls.waits_for(target);
            if found.len() >= least || left.is_zero() || is_over {
                return Ok(found);
            }
            state = self.shared.changed.wait_timeout(state, left);
        }
    }

    /// How many bytes are taken, and how many may be.
    pub fn room(&self) -> (u64, u64) {
        let state = self.shared.state.lock();
        (state.store.room.used(), state.store.room.most)
    }

    /// Bytes that came more than once, as a link broke or a process died: of blocks, and of what had not come whole.
    pub fn taken_twice(&self) -> u64 {
        self.shared.state.lock().taken_twice + self.shared.links.unfinished()
    }

    /// Bytes of the largest block that came.
    pub fn largest_block(&self) -> u64 {
        self.shared.state.lock().store.came.block
    }

    /// It has left.
    pub fn is_closed(&self) -> bool {
        self.shared.state.lock().is_closed
    }

    /// Leaves: others see it as gone, and calls under way end.
    pub fn close(&self) {
        if self.check_process().is_err() {
            return;
        }
        let mut state = self.shared.state.lock();
        state.close_sums();
        state.abort("objects are not shared any more: this process has closed them");
        state.store.room.close();
        drop(state);
        self.shared.changed.notify_all();
        self.shared.links.wake();
        self.shared.links.close();
    }

    pub(super) fn check_process(&self) -> Result<(), EngineError> {
        if self.process == std::process::id() {
            return Ok(());
        }
        Err(EngineError::Forked(format!(
            "objects are shared by process {}, of which this one is a fork: open them after the fork",
            self.process
        )))
    }
}

impl Shared {
    /// Waits for links and deadlines until the process leaves.
    fn watch(self: &Arc<Self>) {
        let mut dialing = Dialing::default();
        loop {
            let state = self.state.lock();
            let (is_closed, until) = (state.is_closed, state.next_deadline());
            drop(state);
            if is_closed {
                return;
            }
            let patience =
                until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
            let Ok(events) = self.links.next(patience.min(Duration::from_secs(3600))) else { return };
            let mut state = self.state.lock();
            if state.is_closed {
                return; // links that end now do so for that reason
            }
            let away: Vec<_> = events.into_iter().filter_map(|event| state.handle(event)).collect();
            state.expire(Instant::now());
            state.drive();
            drop(state);
            away.into_iter().for_each(|(process, why)| dialing.begin(self, process, why));
            self.changed.notify_all();
        }
    }

    /// Adds until the process leaves.
    fn add(&self, jobs: &Receiver<Sum>) {
        for sum in jobs.iter() {
            let is_made = sum.make();
            let mut state = self.state.lock();
            match is_made {
                true => state.added(&sum),
                false => state.miss(&sum.fold),
            }
            state.drive();
            drop(state);
            self.changed.notify_all();
        }
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        self.close();
        if self.check_process().is_ok() {
            self.threads.drain(..).for_each(|thread| drop(thread.join()));
        } else {
            // In a fork they are the parent's.
            std::mem::forget(std::mem::take(&mut self.threads));
        }
    }
}
