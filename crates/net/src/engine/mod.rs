//! The engine: takes what has come in, runs the operations, passes on what they say.
//!
//! One lock guards it, and whoever holds the lock drives it: a caller that waits, the thread that reads from
//! sockets (for what it has just read), or the background thread.

mod arrivals;
mod control_messages;
mod driving;
mod early_messages;
mod faults;
mod late;
mod metrics;
mod packets;
mod shutdown;
pub(crate) mod watcher;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tweed_proto::late::History;
use tweed_schedule::Rank;

use crate::error::EngineError;
use crate::group::Membership;
use crate::link::peers::{Links, Load};
use crate::ltp::Parcel;
use crate::operation::active::{ActiveOp, Draft, Home, Key};
use crate::operation::delivery::{Deliveries, Delivery};
use crate::operation::op::Op;
use crate::operation::p2p::Numbers;

pub(crate) use arrivals::Arrivals;
use early_messages::EarlyMessages;
pub(crate) use late::Lateness;
use metrics::Punctuality;
use packets::Flights;

/// After arithmetic on so many bytes, look for news first.
const QUANTUM_BYTES: u64 = 64 << 10;

/// Something that happened outside of the engine's lock.
pub(crate) enum Event {
    Submit(Draft),
    Lost(usize, String),
    Abort(u32, String),
    /// A peer's value has come in packets.
    Received(usize, Parcel),
    /// A value of ours has arrived but for these ranges, and is read no more.
    Delivered(u64, Vec<Range<u32>>),
}

/// What waits for the engine's lock.
pub(crate) type Inbox = Mutex<Vec<Event>>;

/// What the engine knows of a group.
struct GroupState {
    members: Arc<Membership>,
    next_op: u64,
    numbers: Numbers,
    history: History,
    punctuality: BTreeMap<Rank, Punctuality>,
    /// At rank 0: the latest that each rank has left here.
    notes: BTreeMap<Rank, Vec<u8>>,
    /// How operations were delivered, until somebody asks.
    deliveries: Deliveries,
    /// Memory of which no contribution may lose a part: length by address.
    whole: BTreeMap<usize, usize>,
    /// How many operations of each signature have ended in this epoch of the packets.
    of_a_kind: BTreeMap<u32, u32>,
    /// The operation that ended last.
    last_end: Option<(&'static str, Instant)>,
    /// Members that have left it.
    left: BTreeSet<Rank>,
    /// Why a call failed elsewhere that this rank has not come to, or that ended well here.
    verdict: Option<EngineError>,
    /// Why it cannot be used any more.
    broken: Option<EngineError>,
}

/// See the module's documentation.
pub(crate) struct Engine {
    pub(crate) links: Links,
    home: Home,
    inbox: Arc<Inbox>,
    groups: BTreeMap<u32, GroupState>,
    runs: Vec<ActiveOp>,
    next_run: u64,
    /// Receives from anybody that nobody has answered.
    open: Vec<Draft>,
    flights: Flights,
    /// Messages on operations and groups that this rank has not come to yet.
    early: EarlyMessages,
    /// Groups that this rank has left.
    closed: BTreeSet<u32>,
    /// Of those, the ones whose members have not been told yet.
    leaving: Vec<Arc<Membership>>,
    /// Over how many streams a peer has said that it leaves: all, or that group.
    shutdowns: BTreeMap<(usize, u8, u32), usize>,
    /// Operations that have ended; their callers are told once the lock is free.
    ended: Vec<(Arc<Op>, Result<(), EngineError>)>,
    /// When it was last driven: near enough for what counts in milliseconds.
    clock: Instant,
    last_warning: Option<Instant>,
}

impl Engine {
    pub(crate) fn new(home: Home, inbox: Arc<Inbox>) -> Engine {
        Engine {
            links: Links::default(),
            home,
            inbox,
            groups: BTreeMap::new(),
            runs: Vec::new(),
            next_run: 0,
            open: Vec::new(),
            flights: Flights::default(),
            early: EarlyMessages::new(early_messages::MOST_BYTES),
            closed: BTreeSet::new(),
            leaving: Vec::new(),
            shutdowns: BTreeMap::new(),
            ended: Vec::new(),
            clock: Instant::now(),
            last_warning: None,
        }
    }

    pub(crate) fn open_group(&mut self, members: Arc<Membership>) -> Result<(), EngineError> {
        if self.groups.contains_key(&members.number) {
            let name = &members.name;
            return Err(EngineError::Usage(format!(
                "there is a group {name:?} with this number already; make the group anew"
            )));
        }
        let state = GroupState {
            next_op: 0,
            numbers: Numbers::default(),
            history: History::default(),
            punctuality: BTreeMap::new(),
            notes: BTreeMap::new(),
            deliveries: Deliveries::default(),
            whole: BTreeMap::new(),
            of_a_kind: BTreeMap::new(),
            last_end: None,
            left: BTreeSet::new(),
            verdict: None,
            broken: None,
            members,
        };
        let number = state.members.number;
        self.groups.insert(number, state);
        for (peer, message, load) in self.early.take_group(number) {
            self.handle(peer, message, load);
        }
        Ok(())
    }

    pub(crate) fn close_group(&mut self, number: u32) {
        self.send_reason(number);
        let reason = EngineError::Aborted("the group was closed while the operation ran".into());
        self.fail_group(number, &reason);
        self.leaving.extend(self.groups.remove(&number).map(|state| state.members));
        self.closed.insert(number);
        self.early.drop_group(number);
    }

    /// That memory of this rank loses no parts in any contribution to the group; of 0 bytes: it may again.
    pub(crate) fn keep_whole(&mut self, group: u32, address: usize, bytes: usize) {
        let Some(state) = self.groups.get_mut(&group) else { return };
        match bytes {
            0 => state.whole.remove(&address),
            _ => state.whole.insert(address, bytes),
        };
    }

    /// How operations of a group were delivered since the last call.
    pub(crate) fn take_deliveries(&mut self, group: u32) -> Vec<Delivery> {
        self.groups.get_mut(&group).map(|state| state.deliveries.take()).unwrap_or_default()
    }

    /// Writes down how operations went that no peer has acknowledged in full; the process ends.
    pub(crate) fn save_traces(&self) {
        self.runs.iter().for_each(|run| run.save_trace(&self.home));
    }

    /// Does all there is to do.
    pub(crate) fn drive(&mut self) {
        self.clock = Instant::now();
        loop {
            while self.take_inbox() | self.take_messages() | self.run_some() {}
            self.send_leave();
            self.expire(Instant::now());
            if !self.flush_wires() {
                break;
            }
        }
        self.links.ring_bells();
    }

    /// What `peer` sends is taken in next, at `now`.
    pub(crate) fn listen(&mut self, now: Instant) {
        self.clock = now;
        self.take_inbox();
    }

    /// Callers to be told, now that the lock is free.
    pub(crate) fn take_ended(&mut self) -> Vec<(Arc<Op>, Result<(), EngineError>)> {
        std::mem::take(&mut self.ended)
    }

    /// At least so many signals must come in before anything can happen; `None` if a mere acknowledgement would do.
    pub(crate) fn needs(&self) -> Option<u32> {
        match &self.runs[..] {
            [] => Some(1),
            [run] if self.links.is_congested() || run.group.has_wires => run.executor.missing().map(|_| 1),
            [run] => run.executor.missing(),
            runs => runs.iter().all(|r| r.told || r.executor.missing().is_some()).then_some(1),
        }
    }

    /// Something could be done only later: who drives must come back by then.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let running = self.runs.iter().filter(|r| !r.told);
        let disputes = self.runs.iter().filter_map(ActiveOp::end_of_dispute);
        let congestion = self.links.is_congested().then(|| Instant::now() + Duration::from_millis(1));
        let open = self.open.iter().map(|d| self.end_of(d));
        running.map(ActiveOp::next_step).chain(disputes).chain(congestion).chain(open).min()
    }

    /// Some caller waits for something.
    pub(crate) fn is_busy(&self) -> bool {
        !self.open.is_empty() || self.runs.iter().any(|r| !r.told)
    }

    pub(super) fn take_inbox(&mut self) -> bool {
        let events =
            std::mem::take(&mut *self.inbox.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        let any = !events.is_empty();
        for event in events {
            match event {
                Event::Submit(draft) => self.admit(draft),
                Event::Lost(peer, why) => self.handle_lost(peer, why),
                Event::Abort(group, why) => self.abort(group, why),
                Event::Received(peer, parcel) => self.take_parcel(peer, parcel),
                Event::Delivered(number, missing) => self.handle_delivered(number, &missing),
            }
        }
        any
    }

    pub(super) fn take_messages(&mut self) -> bool {
        let mut messages = Vec::new();
        let any = self.links.take(|peer, message| messages.push((peer, message)));
        for (peer, message) in messages {
            self.handle_new(peer, message, Load::default());
        }
        any
    }

    pub(super) fn admit(&mut self, draft: Draft) {
        let Some(state) = self.groups.get_mut(&draft.group.number) else {
            let why =
                format!("{}: the group {:?} has been closed; make it anew", draft.label(), draft.group.name);
            return self.ended.push((draft.op, Err(EngineError::Aborted(why))));
        };
        if let Some(error) = state.broken.clone() {
            let error = error.about(&draft.label());
            return self.ended.push((draft.op, Err(error)));
        }
        if draft.plan.is_none() {
            self.open.push(draft);
            return self.answer_open();
        }
        let key = match state.numbers.take(&draft) {
            Some(key) => key,
            None => {
                state.next_op += 1;
                Key { group: draft.group.number, op: state.next_op - 1, peer: None }
            }
        };
        self.begin(draft, key);
    }

    pub(super) fn begin(&mut self, draft: Draft, key: Key) {
        self.next_run += 1;
        let (op, group, label) = (Arc::clone(&draft.op), Arc::clone(&draft.group), draft.label());
        let late = self.watch_over(&draft);
        let Some(run) = ActiveOp::start(draft, key, self.next_run, late, &self.home) else {
            let why = format!(
                "{label}: no room left in shared memory; use smaller buckets or free `tweed.empty` tensors"
            );
            return self.ended.push((op, Err(EngineError::Usage(why))));
        };
        let place = self.runs.partition_point(|r| r.request.priority >= run.request.priority);
        self.runs.insert(place, run);
        for (peer, message, load) in self.early.take(&key) {
            self.handle(peer, message, load);
        }
        if let Some(run) = self.runs.iter_mut().find(|r| r.key == key) {
            run.came_last = run.waits_for().is_empty();
        }
        if let Some(&peer) =
            group.peers.iter().find(|&&p| self.links.peers.get(p).is_some_and(|p| p.lost.is_some()))
        {
            self.fail_for_lost(peer);
        }
        self.fail_for_left(key.group);
    }

    /// Receives from anybody: looks whether somebody has sent.
    pub(super) fn answer_open(&mut self) {
        let mut index = 0;
        while index < self.open.len() {
            let draft = &self.open[index];
            let found = self
                .groups
                .get_mut(&draft.group.number)
                .and_then(|c| c.numbers.find_sender(draft, self.early.keys()));
            match found {
                Some(key) => {
                    let mut draft = self.open.remove(index);
                    draft.op.set_source(key.peer.unwrap_or(0));
                    draft.plan = Some(draft.group.single_send(1));
                    self.begin(draft, key);
                }
                None => index += 1,
            }
        }
    }
}
