//! The engine: takes what has come in, runs the operations, passes on what they say.
//!
//! One lock guards it, and whoever holds the lock drives it: a caller that waits, or the background thread.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tweed_proto::{Action, Arrival, Notice, Ready, Signal};
use tweed_schedule::Rank;

use crate::arena::Arena;
use crate::error::EngineError;
use crate::group::Membership;
use crate::links::Links;
use crate::message::{Kind, Message};
use crate::op::Op;
use crate::p2p::Numbers;
use crate::running::{Draft, Key, Running};
use crate::stream::{Payload, Ticket};

/// How long the others may take to say what they have called, once ranks disagree.
const DISPUTE: Duration = Duration::from_secs(1);
/// After arithmetic on so many bytes, look for news first.
const QUANTUM_BYTES: u64 = 64 << 10;

/// Something that happened outside of the engine's lock.
pub(crate) enum Event {
    Submit(Draft),
    Message(usize, Message, Vec<u8>),
    Left(Ticket),
    Lost(usize, String),
    Abort(u32, String),
}

/// What waits for the engine's lock.
pub(crate) type Inbox = Mutex<Vec<Event>>;

/// What the engine knows of a group.
struct Club {
    members: Arc<Membership>,
    next_op: u64,
    numbers: Numbers,
    /// Why it cannot be used any more.
    broken: Option<EngineError>,
}

/// See the module's documentation.
pub(crate) struct Engine {
    pub(crate) links: Links,
    arena: Arc<Arena>,
    inbox: Arc<Inbox>,
    clubs: BTreeMap<u32, Club>,
    runs: Vec<Running>,
    next_run: u64,
    /// Receives from anybody that nobody has answered.
    open: Vec<Draft>,
    /// Messages on operations that this rank has not come to yet.
    early: BTreeMap<Key, Vec<(usize, Message, Vec<u8>)>>,
    /// Operations that have ended; their callers are told once the lock is free.
    ended: Vec<(Arc<Op>, Result<(), EngineError>)>,
}

impl Engine {
    pub(crate) fn new(arena: Arc<Arena>, inbox: Arc<Inbox>) -> Engine {
        Engine {
            links: Links::default(),
            arena,
            inbox,
            clubs: BTreeMap::new(),
            runs: Vec::new(),
            next_run: 0,
            open: Vec::new(),
            early: BTreeMap::new(),
            ended: Vec::new(),
        }
    }

    pub(crate) fn open_group(&mut self, members: Arc<Membership>) -> Result<(), EngineError> {
        if self.clubs.contains_key(&members.number) {
            let name = &members.name;
            return Err(EngineError::Usage(format!("there is a group {name:?} with this number already; make the group anew")));
        }
        let club = Club { next_op: 0, numbers: Numbers::default(), broken: None, members };
        self.clubs.insert(club.members.number, club);
        Ok(())
    }

    pub(crate) fn close_group(&mut self, number: u32) {
        let reason = EngineError::Aborted("the group was closed while the operation ran".into());
        self.fail_group(number, &reason, false);
        self.clubs.remove(&number);
        self.early.retain(|key, _| key.group != number);
    }

    /// Does all there is to do.
    pub(crate) fn drive(&mut self) {
        loop {
            let mut moved = self.take_inbox();
            moved |= self.take_messages();
            moved |= self.run_some();
            if !moved {
                break;
            }
        }
        self.links.ring_bells();
        self.expire(Instant::now());
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
        let disputes = self.runs.iter().filter_map(|r| r.dispute.since.map(|since| since + DISPUTE));
        let congestion = self.links.is_congested().then(|| Instant::now() + Duration::from_millis(1));
        let open = self.open.iter().map(|d| d.op.deadline);
        running.map(|r| r.op.deadline).chain(disputes).chain(congestion).chain(open).min()
    }

    /// Some caller waits for something.
    pub(crate) fn is_busy(&self) -> bool {
        !self.open.is_empty() || self.runs.iter().any(|r| !r.told)
    }

    fn take_inbox(&mut self) -> bool {
        let events = std::mem::take(&mut *self.inbox.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        let any = !events.is_empty();
        for event in events {
            match event {
                Event::Submit(draft) => self.admit(draft),
                Event::Message(peer, message, body) => self.handle(peer, message, body),
                Event::Left(ticket) => self.handle_left(ticket),
                Event::Lost(peer, why) => self.handle_lost(peer, why),
                Event::Abort(group, why) => self.fail_group(group, &EngineError::Aborted(why), true),
            }
        }
        any
    }

    fn take_messages(&mut self) -> bool {
        let mut messages = Vec::new();
        self.links.take(|_, peer, message| messages.push((peer, message)));
        let any = !messages.is_empty();
        for (peer, message) in messages {
            self.handle(peer, message, Vec::new());
        }
        any
    }

    // ---- operations begin

    fn admit(&mut self, draft: Draft) {
        let Some(club) = self.clubs.get_mut(&draft.group.number) else {
            let why = format!("{}: the group {:?} has been closed; make it anew", draft.label(), draft.group.name);
            return self.ended.push((draft.op, Err(EngineError::Aborted(why))));
        };
        if let Some(error) = club.broken.clone() {
            return self.ended.push((draft.op, Err(error)));
        }
        if draft.plan.is_none() {
            self.open.push(draft);
            return self.answer_open();
        }
        let key = match club.numbers.take(&draft) {
            Some(key) => key,
            None => {
                club.next_op += 1;
                Key { group: draft.group.number, op: club.next_op - 1, peer: None }
            }
        };
        self.begin(draft, key);
    }

    fn begin(&mut self, draft: Draft, key: Key) {
        self.next_run += 1;
        let (op, group, label) = (Arc::clone(&draft.op), Arc::clone(&draft.group), draft.label());
        let Some(run) = Running::start(draft, key, self.next_run, &self.arena) else {
            let why = format!("{label}: no room left in shared memory; use smaller buckets or free `tweed.empty` tensors");
            return self.ended.push((op, Err(EngineError::Usage(why))));
        };
        let place = self.runs.partition_point(|r| r.request.priority >= run.request.priority);
        self.runs.insert(place, run);
        for (peer, message, body) in self.early.remove(&key).unwrap_or_default() {
            self.handle(peer, message, body);
        }
        if let Some(&peer) = group.peers.iter().find(|&&p| self.links.peers.get(p).is_some_and(|p| p.lost.is_some())) {
            self.fail_for_lost(peer);
        }
    }

    /// Receives from anybody: looks whether somebody has sent.
    fn answer_open(&mut self) {
        let mut index = 0;
        while index < self.open.len() {
            let draft = &self.open[index];
            let found = self.clubs.get_mut(&draft.group.number).and_then(|c| c.numbers.find_sender(draft, self.early.keys()));
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

    // ---- messages

    fn handle(&mut self, peer: usize, message: Message, body: Vec<u8>) {
        let Some(key) = self.key_of(peer, &message) else { return };
        if message.kind == Kind::Bye {
            return self.handle_lost(peer, "it has left in good order".into());
        }
        let Some(index) = self.runs.iter().position(|r| r.key == key) else { return self.keep_early(key, peer, message, body) };
        let from = key.peer.or_else(|| self.runs[index].group.rank_of(peer)).unwrap_or(0);
        match message.kind {
            Kind::Describe => return self.handle_description(index, from, body),
            Kind::Failed => return self.handle_failure(index, from, &body),
            _ => {}
        }
        if message.signature != self.runs[index].signature {
            return self.start_dispute(index);
        }
        if let Err(what) = self.deliver(index, peer, message, body) {
            let text = format!("{}: rank {from} sent {what}; do all ranks run the same tweed?", self.runs[index].label());
            self.fail(index, EngineError::ShapeMismatch(text), true);
        }
    }

    fn deliver(&mut self, index: usize, peer: usize, message: Message, body: Vec<u8>) -> Result<(), &'static str> {
        let run = &mut self.runs[index];
        if message.kind == Kind::Read {
            return run.executor.handle_read(message.slice, message.send);
        }
        let (input, _) = run.executor.program().arrival(message.send).ok_or("a send that does not end at this rank")?;
        let chunk = run.executor.program().inputs[input as usize].chunk;
        if run.piece_bytes(chunk, message.slice) != u64::from(message.bytes) {
            return Err("a piece of another length");
        }
        let ready = match message.kind {
            Kind::Placed => Ready::Placed,
            Kind::Carried => Ready::Readable(Arrival { at: self.links.land(body), writable: false }),
            kind => Ready::Readable(Arrival { at: message.at, writable: kind == Kind::Writable }),
        };
        let _ = peer;
        run.executor.handle_ready(message.slice, message.send, ready)
    }

    /// The operation that a message is about, as this rank names it.
    fn key_of(&self, peer: usize, message: &Message) -> Option<Key> {
        if message.kind == Kind::Bye || !Numbers::is_point_to_point(message.op) {
            return Some(Key { group: message.group, op: message.op, peer: None });
        }
        let club = self.clubs.get(&message.group);
        let rank = club.and_then(|c| c.members.rank_of(peer));
        Some(Key { group: message.group, op: message.op, peer: rank.or(Some(u32::MAX)) })
    }

    fn keep_early(&mut self, key: Key, peer: usize, message: Message, body: Vec<u8>) {
        let next = self.clubs.get(&key.group).map_or(0, |c| c.next_op);
        let past = key.peer.is_none() && key.op < next;
        if past || matches!(message.kind, Kind::Read) {
            return;
        }
        self.early.entry(key).or_default().push((peer, message, body));
        if key.peer.is_some() {
            self.answer_open();
        }
    }

    fn handle_left(&mut self, ticket: Ticket) {
        if let Some(run) = self.runs.iter_mut().find(|r| r.run == ticket.run) {
            let Ticket { send, to, output, slice, .. } = ticket;
            run.executor.finished(&Action::Transmit { send, to, output, slice });
        }
    }

    // ---- work

    /// Carries out actions until a piece of work worth looking up from; `false` if there was none.
    fn run_some(&mut self) -> bool {
        let mut any = false;
        let mut index = 0;
        while index < self.runs.len() {
            while let Some(action) = self.runs[index].executor.poll() {
                any = true;
                let heavy = self.perform(index, &action);
                if heavy || !self.still_runs(index) {
                    self.settle();
                    return true;
                }
            }
            index += 1;
        }
        self.settle();
        any
    }

    fn still_runs(&self, index: usize) -> bool {
        index < self.runs.len()
    }

    /// Returns whether it was a lot of work.
    fn perform(&mut self, index: usize, action: &Action) -> bool {
        match action {
            Action::Signal(signal) => {
                self.pass_on(index, signal);
                false
            }
            Action::Transmit { send, to, output, slice } => {
                self.transmit(index, Ticket { run: self.runs[index].run, send: *send, output: *output, slice: *slice, to: *to });
                true
            }
            Action::Combine(_) | Action::Stage { .. } => {
                let heavy = self.weight(index, action) >= QUANTUM_BYTES;
                if heavy {
                    self.links.ring_bells();
                }
                match self.runs[index].compute(action, &mut self.links) {
                    Ok(()) => self.runs[index].executor.finished(action),
                    Err(rank) => {
                        let text = format!("{}: rank {rank} told of memory that it does not have", self.runs[index].label());
                        self.fail(index, EngineError::ShapeMismatch(text), true);
                        return true;
                    }
                }
                heavy
            }
        }
    }

    fn weight(&self, index: usize, action: &Action) -> u64 {
        let run = &self.runs[index];
        let program = run.executor.program();
        match action {
            Action::Combine(c) => {
                let input = &program.inputs[c.input as usize];
                run.piece_bytes(input.chunk, c.slice) * input.sends.len() as u64
            }
            Action::Stage { output, slice } => run.piece_bytes(program.outputs[*output as usize].chunk, *slice),
            _ => 0,
        }
    }

    fn pass_on(&mut self, index: usize, signal: &Signal) {
        let run = &self.runs[index];
        let peer = run.peer(signal.to);
        let mut message = run.message(Kind::Read, signal.send, signal.slice);
        match signal.what {
            Notice::Read => {}
            Notice::Placed => {
                message.kind = Kind::Placed;
                message.bytes = run.sent_bytes(signal.send, signal.slice);
            }
            Notice::Readable { output, writable } => {
                let (at, whole) = run.exposed_at(output, signal.slice).expect("what is exposed lies in the arena");
                message.kind = if writable && whole { Kind::Writable } else { Kind::Readable };
                message.at = at;
                message.bytes = run.sent_bytes(signal.send, signal.slice);
            }
        }
        self.links.signal(peer, &message);
    }

    fn transmit(&mut self, index: usize, ticket: Ticket) {
        let run = &self.runs[index];
        let (data, bytes) = run.leaving(ticket.output, ticket.slice);
        let mut message = run.message(Kind::Carried, ticket.send, ticket.slice);
        message.bytes = bytes as u32;
        self.links.carry(run.peer(ticket.to), &message, Payload::Memory(data, bytes, ticket));
        for ticket in std::mem::take(&mut self.links.left) {
            self.handle_left(ticket);
        }
    }

    /// Tells callers whose operation is done, and forgets operations that nobody needs.
    fn settle(&mut self) {
        let ended = &mut self.ended;
        self.runs.retain_mut(|run| {
            if run.executor.is_finished() && !run.told {
                run.told = true;
                ended.push((Arc::clone(&run.op), Ok(())));
            }
            !run.executor.is_closed()
        });
    }

    // ---- what goes wrong

    fn handle_lost(&mut self, peer: usize, why: String) {
        let peer_state = &mut self.links.peers[peer];
        if peer_state.lost.is_some() {
            return;
        }
        // What it had said before it went still counts.
        self.take_messages();
        while self.run_some() {}
        self.links.peers[peer].lost = Some(why);
        self.fail_for_lost(peer);
    }

    /// Ends the operations that wait for a peer that is gone. Its unread values need no acknowledgement any more.
    fn fail_for_lost(&mut self, peer: usize) {
        let waits = |run: &Running| run.group.rank_of(peer).filter(|rank| !run.told && run.waits_for().contains(rank));
        while let Some((index, rank)) = self.runs.iter().enumerate().find_map(|(i, r)| waits(r).map(|rank| (i, rank))) {
            let error = self.lost_error(index, rank, peer);
            self.fail(index, error, true);
        }
        self.runs.retain(|run| !(run.told && run.group.rank_of(peer).is_some()));
        let clubs: Vec<u32> = self.clubs.iter().filter(|(_, c)| c.members.rank_of(peer).is_some()).map(|(&n, _)| n).collect();
        for number in clubs {
            self.break_club(number, peer);
        }
    }

    fn lost_error(&self, index: usize, rank: Rank, peer: usize) -> EngineError {
        let state = &self.links.peers[peer];
        let (host, why) = (&state.host, state.lost.as_deref().unwrap_or("unknown"));
        EngineError::PeerLost(format!(
            "rank {rank} on {host} was lost during {} ({why}). Make the group anew without it, or restart it",
            self.runs[index].label()
        ))
    }

    fn break_club(&mut self, number: u32, peer: usize) {
        let state = &self.links.peers[peer];
        let why = state.lost.clone().unwrap_or_default();
        let host = state.host.clone();
        if let Some(club) = self.clubs.get_mut(&number).filter(|c| c.broken.is_none()) {
            let rank = club.members.rank_of(peer).unwrap_or(0);
            let name = &club.members.name;
            club.broken = Some(EngineError::PeerLost(format!(
                "rank {rank} on {host} of group {name:?} is gone ({why}). Make the group anew without it, or restart it"
            )));
        }
    }

    /// Ends one operation badly. Its group cannot go on, unless it was point-to-point.
    fn fail(&mut self, index: usize, error: EngineError, tell_others: bool) {
        let run = self.runs.remove(index);
        for peer in &self.links.peers {
            peer.streams.iter().for_each(|s| s.detach(run.run));
        }
        if tell_others {
            self.tell_others(&run, Kind::Failed, error.to_string().as_bytes());
        }
        if !run.told {
            self.ended.push((Arc::clone(&run.op), Err(error.clone())));
        }
        if run.key.peer.is_none() {
            self.fail_group(run.key.group, &error, false);
        }
    }

    fn fail_group(&mut self, number: u32, error: &EngineError, tell_others: bool) {
        let Some(club) = self.clubs.get_mut(&number) else { return };
        club.broken.get_or_insert_with(|| error.clone());
        while let Some(index) = self.runs.iter().position(|r| r.key.group == number && !r.told) {
            self.fail(index, error.clone(), tell_others);
        }
        let (gone, open) = std::mem::take(&mut self.open).into_iter().partition(|d: &Draft| d.group.number == number);
        self.open = open;
        self.ended.extend(Vec::into_iter(gone).map(|d: Draft| (d.op, Err(error.clone()))));
    }

    fn tell_others(&mut self, run: &Running, kind: Kind, text: &[u8]) {
        let mut message = run.message(kind, 0, 0);
        message.bytes = text.len() as u32;
        for &peer in run.concerned().iter() {
            self.links.carry(peer, &message, Payload::Text(text.to_vec()));
        }
    }

    fn handle_failure(&mut self, index: usize, from: Rank, body: &[u8]) {
        let text = String::from_utf8_lossy(body).into_owned();
        let lost = self.runs[index].group.peers.iter().any(|&p| self.links.peers.get(p).is_some_and(|p| p.lost.is_some()));
        let error = match lost || text.contains(" was lost during ") {
            true => EngineError::PeerLost(text),
            false => EngineError::Aborted(format!("rank {from} gave up: {text}")),
        };
        self.fail(index, error, false);
    }

    fn start_dispute(&mut self, index: usize) {
        let call = self.runs[index].request.describe();
        let run = &mut self.runs[index];
        if run.dispute.since.is_some() {
            return;
        }
        run.dispute.since = Some(Instant::now());
        let own = run.group.rank;
        run.dispute.calls.insert(own, call.clone());
        let concerned = self.runs[index].concerned();
        let mut message = self.runs[index].message(Kind::Describe, 0, 0);
        message.bytes = call.len() as u32;
        for peer in concerned {
            self.links.carry(peer, &message, Payload::Text(call.clone().into_bytes()));
        }
    }

    fn handle_description(&mut self, index: usize, from: Rank, body: Vec<u8>) {
        let call = String::from_utf8_lossy(&body).into_owned();
        self.runs[index].dispute.calls.insert(from, call);
        self.start_dispute(index);
        let run = &self.runs[index];
        if run.dispute.calls.len() == run.concerned().len() + 1 {
            self.end_dispute(index);
        }
    }

    fn end_dispute(&mut self, index: usize) {
        let run = &self.runs[index];
        let ranks: BTreeSet<Rank> = match run.key.peer {
            Some(peer) => [run.group.rank, peer].into(),
            None => (0..run.group.ranks()).collect(),
        };
        let silent = "has not called it".to_owned();
        let calls = ranks.iter().map(|r| format!("\n  rank {r}: {}", run.dispute.calls.get(r).unwrap_or(&silent)));
        let text = format!(
            "{}: ranks disagree on what it is:{}\nMake every rank call the same operation with the same shape and dtype",
            run.label(),
            calls.collect::<String>()
        );
        self.fail(index, EngineError::ShapeMismatch(text), false);
    }

    /// Ends what has run out of time.
    fn expire(&mut self, now: Instant) {
        while let Some(index) = self.runs.iter().position(|r| r.dispute.since.is_some_and(|s| now >= s + DISPUTE)) {
            self.end_dispute(index);
        }
        while let Some(index) = self.runs.iter().position(|r| !r.told && now >= r.op.deadline) {
            let error = self.late_error(index, now);
            self.fail(index, error, true);
        }
        while let Some(index) = self.open.iter().position(|d| now >= d.op.deadline) {
            let draft = self.open.remove(index);
            let text = format!("{}: nobody has sent in {:.1?}", draft.label(), now - draft.op.started);
            self.ended.push((draft.op, Err(EngineError::Deadline(text))));
        }
    }

    fn late_error(&self, index: usize, now: Instant) -> EngineError {
        let run = &self.runs[index];
        let name = |rank: Rank| {
            let peer = self.links.peers.get(run.group.peers[rank as usize]);
            format!("rank {rank} on {}", peer.map_or("this host", |p| &p.host))
        };
        let late: Vec<String> = run.waits_for().into_iter().map(name).collect();
        EngineError::Deadline(format!(
            "{}: still waiting for {} after {:.1?}. See what that rank does, or raise the group's timeout",
            run.label(),
            late.join(", "),
            now - run.op.started
        ))
    }
}
