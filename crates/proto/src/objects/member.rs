//! One process: what it holds, what it pulls, which slots it has, and its share of the directory.
//!
//! **Theory of operation.** What happens goes in by `handle_*`, what to do comes out of [`Member::poll`], until that is
//! empty. An object *held* here is wanted, received, written or complete ([`State`]); each change is reported to the
//! object's shard. A [`Role`] is a slot of a reduce that this process has been given. Blocks are the driver's:
//! it is asked to open pulls, and reports what has come; it serves pulls of others from whatever is [`readable`]. Who is to
//! pull from another while its feeder lives has that one stop, takes what is under way, and goes on from there; if nothing
//! comes for longer than that should take, it goes on at once, and throws away what comes later.
//!
//! *Faults.* The driver names a process that is gone ([`Member::handle_lost`]). Then its share of the directory forgets it;
//! feeds that came from it are reported as broken to whoever planned them; and what was reported to it, if it was a shard, is
//! reported once more to the process that is the shard now.
//!
//! What cannot happen: two processes take each other for the shard of an object for good, as all choose alike among the
//! living; a message to this process itself crosses a network.
//!
//! [`readable`]: Member::readable

mod copies;
mod slots;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::directory::Directory;
use super::message::{Action, Message, Order, Report, Sink, State, Stream};
use super::role::Role;
use super::shards::shard_of;
use super::{
    Buffer, Bytes, Costs, Failure, Format, Ledger, Log, ObjectId, Operators, Process, Request, Slot, ROOT,
    SMALL_BYTES,
};

/// A process that holds objects; the module's documentation describes it.
#[derive(Debug)]
pub struct Member {
    me: Process,
    costs: Costs,
    /// Whether the rate among these was measured, or is a guess.
    knows_rate: bool,
    /// All that live, this one too.
    processes: BTreeSet<Process>,
    lost: BTreeSet<Process>,
    /// Counts changes of who takes part.
    view: u32,
    directory: Directory,
    held: BTreeMap<ObjectId, Held>,
    roles: BTreeMap<(ObjectId, Slot), Role>,
    /// What each stream brings.
    streams: BTreeMap<Stream, Sink>,
    last_stream: Stream,
    calls: BTreeMap<ObjectId, Call>,
    /// The last attempt of calls that were withdrawn, as many as are kept: a later call of the same target has others.
    withdrawn: BTreeMap<ObjectId, u32>,
    actions: VecDeque<Action>,
    own: VecDeque<(Process, Message)>,
}

/// For how many withdrawn calls the last attempt is kept.
const MOST_WITHDRAWN: usize = 1 << 12;

/// A reduce whose destination this process is.
#[derive(Debug)]
struct Call {
    request: Request,
    attempt: u32,
    ledger: Option<Ledger>,
}

#[derive(Debug)]
struct Held {
    state: State,
    format: Option<Format>,
    generation: u32,
    mark: u64,
    fed_by: Option<Process>,
    stream: Option<Stream>,
    /// Another feeds it as soon as what is under way over the stream is here.
    parting: Option<Parting>,
    /// The view of this process when it first told the present shard of it.
    view: u32,
    /// Bytes per block of what is pulled.
    block: u64,
    bytes: Option<Bytes>,
    /// A get waits for it.
    is_wanted: bool,
}

/// A stream that is to end before the object does.
#[derive(Clone, Copy, Debug)]
struct Parting {
    from: Process,
    /// How much of the object was here when it was looked at last, and after how long it is looked at again.
    mark: u64,
    after: Duration,
}

impl Held {
    fn new(view: u32) -> Held {
        let (format, fed_by, stream, parting, bytes) = (None, None, None, None, None);
        Held {
            state: State::Wanted,
            format,
            generation: 0,
            mark: 0,
            fed_by,
            stream,
            parting,
            view,
            block: SMALL_BYTES,
            bytes,
            is_wanted: false,
        }
    }
}

impl Member {
    /// Process `me` among `processes`, which are all that are known to live; it makes no difference whether `me` is named.
    pub fn new(me: Process, processes: impl IntoIterator<Item = Process>, costs: Costs) -> Member {
        Member {
            me,
            costs,
            knows_rate: true,
            processes: processes.into_iter().chain([me]).collect(),
            lost: BTreeSet::new(),
            view: 0,
            directory: Directory::new(me, costs),
            held: BTreeMap::new(),
            roles: BTreeMap::new(),
            streams: BTreeMap::new(),
            last_stream: 0,
            calls: BTreeMap::new(),
            withdrawn: BTreeMap::new(),
            actions: VecDeque::new(),
            own: VecDeque::new(),
        }
    }

    /// From now on sums are made only where this holds; all processes must have the same.
    pub fn allow(&mut self, operators: Operators) {
        self.directory.operators = operators;
    }

    /// What was measured last. `knows_rate`: none of it is a guess.
    pub fn set_costs(&mut self, costs: Costs, knows_rate: bool) {
        (self.costs, self.knows_rate) = (costs, knows_rate);
        self.directory.costs = costs;
    }

    /// Keeps the logs of the reduces that are planned here.
    pub fn keep_logs(&mut self) {
        self.directory.logs = Some(Vec::new());
    }

    /// The logs kept so far, which it gives away.
    pub fn take_logs(&mut self) -> Vec<Log> {
        self.directory.logs.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// An object is written here. `valid` bytes of it are there now, all of them for one that is put at once; `bytes` has
    /// those of a small one, which others learn of when it is complete.
    pub fn put(&mut self, object: ObjectId, format: Format, valid: u64, bytes: Option<Bytes>) {
        let held = self.held.entry(object).or_insert_with(|| Held::new(self.view));
        let was = held.state;
        held.format = Some(format);
        held.mark = valid.min(format.size);
        held.bytes = bytes.filter(|_| format.size <= SMALL_BYTES).or(held.bytes.take());
        held.state = match held.mark == format.size {
            true => State::Complete,
            false => State::Writing,
        };
        let is_news = held.state != was || held.state == State::Complete;
        let is_shown = held.state == State::Complete || (valid > 0 && format.size > SMALL_BYTES);
        if is_news && is_shown {
            self.report_standing(object);
        }
        self.note_complete(object);
        self.fold_all();
    }

    /// A copy is wanted here: `Action::Got` follows.
    pub fn get(&mut self, object: ObjectId) {
        let held = self.held.entry(object).or_insert_with(|| Held::new(self.view));
        held.is_wanted = true;
        match held.state {
            State::Complete => self.note_complete(object),
            State::Wanted if held.fed_by.is_none() => self.report_standing(object),
            _ => {}
        }
    }

    /// Sums the first sources that appear: `Action::Reduced` follows, and the target is held here.
    pub fn reduce(&mut self, request: Request) {
        self.held.entry(request.target).or_insert_with(|| Held::new(self.view));
        let attempt = self.withdrawn.remove(&request.target).map_or(0, |last| last + 1);
        let call = Call { request: request.clone(), attempt, ledger: None };
        self.calls.insert(request.target, call);
        self.report(request.target, Report::Reduce { request, attempt, ledger: None });
    }

    /// A get or reduce is not wanted any more.
    pub fn withdraw(&mut self, object: ObjectId) {
        if let Some(call) = self.calls.remove(&object) {
            self.withdrawn.insert(object, call.attempt);
            if self.withdrawn.len() > MOST_WITHDRAWN {
                self.withdrawn.pop_first();
            }
            self.report(object, Report::Withdraw { target: object });
        } else {
            self.drop_copy(object);
            self.report(object, Report::Forget { object });
        }
    }

    /// The object is to be gone everywhere.
    pub fn delete(&mut self, object: ObjectId) {
        self.report(object, Report::Delete { object });
    }

    /// A message has come.
    pub fn handle_message(&mut self, from: Process, message: Message) {
        match message {
            Message::Report(Report::Lost { process, .. }) => self.handle_lost(process),
            Message::Report(report) => {
                if let Report::Broken(broken) = &report {
                    self.handle_lost(broken.process);
                }
                self.directory.handle(from, report, &self.processes);
            }
            Message::Order(order) => self.follow(from, order),
        }
        self.collect();
    }

    /// Bytes up to `end` have come over a stream.
    pub fn handle_block(&mut self, stream: Stream, end: u64) {
        match self.streams.get(&stream).copied() {
            Some(Sink::Copy(object)) => self.advance(object, end),
            Some(Sink::Slot(target, slot)) => {
                if let Some(role) = self.roles.get_mut(&(target, slot)) {
                    role.handle_block(stream, end);
                }
                self.fold((target, slot));
            }
            None => {}
        }
    }

    /// No more bytes come over a stream that was stopped: all that had left are here.
    pub fn handle_stopped(&mut self, stream: Stream) {
        self.part(stream, |_| false);
    }

    /// A timer of a stream has run out.
    pub fn handle_timeout(&mut self, stream: Stream) {
        self.part(stream, |held| held.parting.is_some_and(|parting| held.mark > parting.mark));
    }

    /// A piece of arithmetic is done.
    pub fn handle_folded(&mut self, target: ObjectId, slot: Slot, generation: u32, end: u64) {
        let Some(role) = self.roles.get_mut(&(target, slot)) else { return };
        if role.handle_folded(generation, end) && slot == ROOT {
            self.advance(target, end);
        }
        self.fold((target, slot));
    }

    /// What a slot is to add is not here: its reduce has no result.
    pub fn handle_unable(&mut self, target: ObjectId, slot: Slot, why: Failure) {
        if self.roles.contains_key(&(target, slot)) {
            self.report(target, Report::Unable { target, why });
        }
    }

    /// Small objects have been summed.
    pub fn handle_small_sum(&mut self, target: ObjectId, bytes: Bytes) {
        self.directory.handle_small_sum(target, bytes);
        self.collect();
    }

    /// A process has come.
    pub fn handle_joined(&mut self, process: Process) {
        let before = self.processes.clone();
        self.lost.remove(&process);
        if self.processes.insert(process) {
            self.directory.handle_joined(process, &self.processes);
            self.publish_anew(&before);
            self.collect();
        }
    }

    /// A process is gone for good.
    pub fn handle_lost(&mut self, process: Process) {
        // One that was gone before this process came may still be said to feed it; and one of which others have heard
        // and this process has not may have been the shard to them.
        if process == self.me || !self.lost.insert(process) {
            return;
        }
        let before = self.processes.iter().copied().chain([process]).collect();
        self.processes.remove(&process);
        self.directory.handle_lost(process, &self.processes);
        for key in self.roles.keys().copied().collect::<Vec<_>>() {
            self.report_broken(key, process);
        }
        for object in self.held.keys().copied().collect::<Vec<_>>() {
            self.lose_feeder(object, process);
        }
        self.publish_anew(&before);
        self.collect();
    }

    /// The next thing to do.
    #[must_use]
    pub fn poll(&mut self) -> Option<Action> {
        loop {
            if let Some(action) = self.actions.pop_front() {
                return Some(action);
            }
            let (from, message) = self.own.pop_front()?;
            self.handle_message(from, message);
        }
    }

    /// How much of a buffer may be read by who wants this generation of it; none if it is not there.
    pub fn readable(&self, buffer: Buffer, generation: u32) -> Option<u64> {
        match buffer {
            Buffer::Object(object) => {
                let held = self.held.get(&object)?;
                (held.state == State::Complete || held.generation == generation).then_some(held.mark)
            }
            Buffer::Partial { target, slot } => {
                let role = self.roles.get(&(target, slot))?;
                (role.assign.generation == generation).then_some(role.mark)
            }
        }
    }

    /// Size and kind of an object, once known here.
    pub fn format(&self, object: ObjectId) -> Option<Format> {
        self.held.get(&object).and_then(|held| held.format)
    }

    /// How the object stands here: how much there is, up to which byte, and whom it is pulled from. None if nobody has
    /// asked for it here.
    pub fn standing(&self, object: ObjectId) -> Option<(State, u64, Option<Process>)> {
        self.held.get(&object).map(|held| (held.state, held.mark, held.fed_by))
    }

    /// The sources that have taken places of a reduce that was called here, as far as is known here.
    pub fn placed(&self, target: ObjectId) -> Vec<ObjectId> {
        let ledger = self.calls.get(&target).and_then(|call| call.ledger.as_ref());
        let holders = ledger.into_iter().flat_map(|ledger| &ledger.places).filter_map(|place| place.1.holder);
        holders.filter_map(|holder| holder.object).collect()
    }

    /// Whether a process takes part, as far as is known here.
    pub fn lives(&self, process: Process) -> bool {
        self.processes.contains(&process)
    }

    /// All of a small object that is held here.
    pub fn bytes(&self, object: ObjectId) -> Option<&Bytes> {
        self.held.get(&object).and_then(|held| held.bytes.as_ref())
    }

    fn follow(&mut self, from: Process, order: Order) {
        match order {
            Order::Feed { object, format, generation, from, view, block } => {
                // The shard by now plans with what it has been told since.
                if self.held.get(&object).is_none_or(|held| held.view <= view) {
                    self.feed(object, format, generation, from, block);
                }
            }
            Order::Small { object, format, bytes } => {
                self.take_small(object, format, bytes);
                if shard_of(object, &self.processes) != Some(from) {
                    self.report_standing(object); // the shard by now may know of nobody who has it
                }
            }
            Order::Restart { object, generation } => self.restart(object, generation),
            Order::Deleted { object } => {
                self.drop_copy(object);
                self.actions.push_back(Action::Failed { object, why: Failure::Deleted { object } });
            }
            Order::Assign(assign) => self.assign(assign),
            Order::Ledger { request, attempt, number, ledger } => {
                let target = request.target;
                if self.keep(from, request, attempt, ledger) {
                    self.send(from, Message::Report(Report::Kept { target, attempt, number }));
                }
            }
            Order::Release { target, attempt } => self.release(target, attempt),
            Order::Lost { process, .. } => self.handle_lost(process),
            Order::Reduced { target, included, small } => {
                if let Some((format, bytes)) = small {
                    self.take_small(target, format, bytes);
                }
                self.finish(target, included);
            }
            Order::Unable { target, why } => {
                // What is complete has been reported, and that counts.
                if self.held.get(&target).is_none_or(|held| held.state != State::Complete) {
                    self.report(target, Report::Unable { target, why });
                }
            }
            Order::Failed { target, why } => {
                self.calls.remove(&target);
                self.actions.push_back(Action::Failed { object: target, why });
            }
        }
    }

    fn report_standing(&mut self, object: ObjectId) {
        let Some(held) = self.held.get(&object) else { return };
        let &Held { state, format, generation, fed_by, view, .. } = held;
        let (rate, bytes) = (self.knows_rate.then_some(self.costs.rate), held.bytes.clone());
        self.report(object, Report::Holds { object, state, format, generation, fed_by, view, rate, bytes });
    }

    fn report(&mut self, object: ObjectId, report: Report) {
        if let Some(to) = shard_of(object, &self.processes) {
            self.send(to, Message::Report(report));
        }
    }

    fn send(&mut self, to: Process, message: Message) {
        match to == self.me {
            true => self.own.push_back((self.me, message)),
            false => self.actions.push_back(Action::Send { to, message }),
        }
    }

    /// Reports once more what another process is now the shard of.
    fn publish_anew(&mut self, before: &BTreeSet<Process>) {
        self.view += 1;
        let moved = |object: ObjectId| shard_of(object, before) != shard_of(object, &self.processes);
        let held: Vec<ObjectId> = self.held.keys().copied().filter(|&object| moved(object)).collect();
        let calls: Vec<ObjectId> = self.calls.keys().copied().filter(|&target| moved(target)).collect();
        let slots: Vec<(ObjectId, Slot)> = self.roles.keys().copied().filter(|key| moved(key.0)).collect();
        for object in held {
            if let Some(held) = self.held.get_mut(&object) {
                held.view = self.view;
            }
            if !calls.contains(&object) {
                self.report_standing(object);
            }
        }
        // What the shard before may not have heard any more.
        slots.into_iter().for_each(|key| self.report_lost_feeds(key));
        for target in calls {
            let Some(call) = self.calls.get_mut(&target) else { continue };
            call.attempt += 1;
            let Call { request, attempt, ledger } = call;
            let (request, attempt, ledger) = (request.clone(), *attempt, ledger.clone());
            self.report(target, Report::Reduce { request, attempt, ledger });
            self.report_standing(target);
        }
    }

    /// What the directory has to say goes out.
    fn collect(&mut self) {
        for action in std::mem::take(&mut self.directory.out) {
            match action {
                Action::Send { to, message } => self.send(to, message),
                other => self.actions.push_back(other),
            }
        }
    }
}
