//! All that a process knows of objects: the planner's member, the bytes, and who waits. One lock holds it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tweed_kernels::{DType, ReduceOp};
use tweed_proto::hub::{Body, Key};
use tweed_proto::objects::{
    Action, Buffer, Bytes, Costs, Failure, Fold, Form, Format, Frame, Garbled, Mark, Member, Message,
    ObjectId, Order, Process, Pull, Report, Rule, Sink, Stream,
};

use super::calls::Calls;
use super::kind::dtype_of;
use super::measured::Measured;
use super::memory::Memory;
use super::peers::{process_of, Outgoing, Peers};
use super::pulls::{Inflow, Serve, Store};
use super::sums::{sum_small, Sum};
use crate::connect::descriptor::PeerDescriptor;
use crate::hub::{Event, HubLinks};

/// Sources of a sum that all are mapped at once.
const MOST_MAPPED: u32 = 8;
/// Bytes of a sum after which neighbours are told how far it is.
const SHOWN: u64 = 1 << 20;

/// An object that is written here.
pub(super) struct Writing {
    pub(super) memory: Arc<Memory>,
    pub(super) format: Format,
    pub(super) valid: u64,
}

pub(super) struct State {
    pub(super) me: Process,
    descriptor: PeerDescriptor,
    pub(super) member: Member,
    /// As measured so far.
    pub(super) costs: Costs,
    pub(super) measured: Measured,
    pub(super) store: Store,
    pub(super) peers: Peers,
    pub(super) calls: Calls,
    pub(super) writing: BTreeMap<ObjectId, Writing>,
    pub(super) inflows: BTreeMap<Stream, Inflow>,
    /// Pulls that were closed before their feeders answered that they stop.
    pub(super) void: BTreeSet<(Process, Stream)>,
    pub(super) serves: BTreeMap<(Process, Stream), Serve>,
    /// Copies for which there is no room yet.
    pub(super) parked: Vec<(Stream, Pull, Sink)>,
    /// When the member is to look at a pull again.
    pub(super) timers: BTreeMap<Stream, Instant>,
    pub(super) is_closed: bool,
    /// Bytes of blocks that came once more: after a link broke, as what had come was void when a process died, or from a feeder
    /// that was not waited for.
    pub(super) taken_twice: u64,
    /// What this process has told itself.
    own: VecDeque<(Frame, Option<Body>)>,
    pub(super) links: Arc<HubLinks>,
    /// None after the end.
    sums: Option<Sender<Sum>>,
}

/// Whether an operator goes with the elements of a kind: what the engine's kernels can, but for those that need a scale.
pub(super) fn goes_with(op: u32, kind: u64) -> bool {
    let pair = ReduceOp::try_from(op).ok().zip(dtype_of(kind));
    pair.is_some_and(|(op, dtype)| {
        !matches!(op, ReduceOp::Avg | ReduceOp::PremulSum) && op.supports(dtype).is_ok()
    })
}

impl State {
    pub(super) fn new(
        descriptor: PeerDescriptor,
        costs: Costs,
        most: u64,
        links: Arc<HubLinks>,
        sums: Sender<Sum>,
    ) -> State {
        let me = process_of(&links.key());
        let mut member = Member::new(me, [], costs);
        member.set_costs(costs, false);
        member.allow(goes_with);
        State {
            me,
            descriptor,
            member,
            costs,
            measured: Measured::default(),
            store: Store::new(most),
            peers: Peers::default(),
            calls: Calls::default(),
            writing: BTreeMap::new(),
            inflows: BTreeMap::new(),
            void: BTreeSet::new(),
            serves: BTreeMap::new(),
            parked: Vec::new(),
            timers: BTreeMap::new(),
            is_closed: false,
            taken_twice: 0,
            own: VecDeque::new(),
            links,
            sums: Some(sums),
        }
    }

    /// Something has happened on a link. Returns which process has none any more, if that is so, and why.
    pub(super) fn handle(&mut self, event: Event) -> Option<(Process, String)> {
        match event {
            Event::Joined(link, key) => self.join(link, key),
            Event::Message(link, bytes) => {
                let from = self.peers.at(link)?;
                if let Err(why) = self.take(from, link, &bytes) {
                    self.lose(from, &why);
                }
            }
            Event::Left(link, why) => return self.leave(link, why),
            Event::Woken => {}
        }
        None
    }

    /// A link stands: each end says over it how much it has taken.
    pub(super) fn join(&mut self, link: u64, key: Key) {
        if self.peers.at(link).is_some() {
            return; // who has called has not waited for the event
        }
        if !self.peers.join(link, key) {
            return self.part(link, "its process is gone");
        }
        let process = process_of(&key);
        let mark = self.peers.greet(process).unwrap_or_default();
        let frame = Frame::Resume { is_only: self.peers.links(process).count() == 1 };
        self.links.send(link, &[mark.encode(), frame.encode()].concat(), None);
        if self.peers.is_new(process) {
            self.resume(process, link);
        }
        if let Some(round_trip) = self.links.round_trip(link) {
            self.measured.note_round_trip(round_trip);
            self.set_costs();
        }
    }

    /// Ends a link to one that is gone, and tells it so: it would call anew.
    fn part(&mut self, link: u64, why: &str) {
        self.links.send(link, &[Mark::default().encode(), Frame::Parted.encode()].concat(), None);
        self.links.cut(link, why);
    }

    /// A link has ended. Whoever has another one goes on over that.
    fn leave(&mut self, link: u64, why: String) -> Option<(Process, String)> {
        let (process, other) = self.peers.end(link)?;
        match other {
            Some(other) if self.peers.link(process).is_none() => self.resume(process, other),
            Some(_) => {}
            None if self.peers.place(process).is_some() => return Some((process, why)),
            None => self.peers.forget(process),
        }
        None
    }

    /// A message has come.
    fn take(&mut self, from: Process, link: u64, bytes: &[u8]) -> Result<(), String> {
        let garbled = |garbled: Garbled| garbled.to_string();
        let (mark, rest) = Mark::decode(bytes).map_err(garbled)?;
        let (is_next, taken) = self.peers.handle(from, mark).map_err(|wrong| wrong.to_string())?;
        taken.into_iter().for_each(|stream| self.grant(from, stream));
        if !rest.is_empty() {
            let (frame, body) = Frame::decode(rest).map_err(garbled)?;
            match frame {
                Frame::Resume { is_only } => match self.peers.link(from) {
                    Some(other) if other == link || !is_only => {}
                    _ => self.resume(from, link),
                },
                Frame::Parted => return Err("others have lost this process".into()),
                frame if is_next => {
                    let untold = match frame {
                        Frame::Hello { .. } | Frame::Stopped { .. } => 1,
                        Frame::Block { stream, begin } => self.may_be_untold(stream, begin, body),
                        _ => u64::MAX,
                    };
                    if !self.hear(from, frame, body) {
                        return Err("it has said what no tweed says".into());
                    }
                    self.tell_taken(from, untold);
                }
                _ => {
                    self.taken_twice += body.len() as u64;
                    self.tell_taken(from, 1);
                }
            }
        }
        Ok(())
    }

    /// Who sends nothing else says at times what it has taken: once it has not told of so many.
    fn tell_taken(&mut self, to: Process, untold: u64) {
        if let Some((link, mark)) = self.peers.poll_taken(to, untold) {
            self.links.send(link, &mark.encode(), None);
        }
    }

    /// A process has said something; `false`: nothing that makes sense.
    fn hear(&mut self, from: Process, frame: Frame, rest: &[u8]) -> bool {
        match frame {
            Frame::Hello { descriptor } => return self.meet(from, &descriptor),
            Frame::Message { message } => {
                let names = named(&message);
                self.member.handle_message(from, message);
                // Whoever is lost to one is lost to all; it learns so by its links.
                names.into_iter().for_each(|process| self.cut_if_lost(process));
            }
            Frame::Pull { stream, pull, maps } => self.serve(from, stream, pull, maps),
            Frame::Mapped { stream, file, end } => return self.take_mapped(from, stream, file, end),
            Frame::Close { stream } => drop(self.serves.remove(&(from, stream))),
            Frame::Stop { stream } => {
                self.serves.remove(&(from, stream));
                self.tell(from, &Frame::Stopped { stream }, None);
            }
            Frame::Stopped { stream } => self.take_stopped(from, stream),
            Frame::Block { stream, begin } => return self.take_block(from, stream, begin, rest),
            Frame::Resume { .. } | Frame::Parted => return false,
        }
        true
    }

    /// So many bytes of a pull have come, or have been taken, within that time.
    pub(super) fn note_rate(&mut self, bytes: u64, within: Duration) {
        if self.measured.note_pull(bytes, within) {
            self.set_costs();
        }
    }

    fn set_costs(&mut self) {
        self.costs = self.measured.costs(self.costs);
        self.member.set_costs(self.costs, self.measured.knows_rate());
    }

    /// A process takes part from now on.
    pub(super) fn meet(&mut self, process: Process, descriptor: &[u8]) -> bool {
        let Ok(descriptor) = PeerDescriptor::decode(0, descriptor) else { return false };
        let is_its = self.peers.describe(process, descriptor);
        if is_its {
            if self.is_neighbour(process) {
                self.store.room.is_shared.store(true, Ordering::Relaxed);
            }
            self.member.handle_joined(process);
        }
        is_its
    }

    /// Its memory can be mapped here, or is here.
    pub(super) fn is_neighbour(&self, process: Process) -> bool {
        let shows = |of| self.descriptor.shows_memory_to(of);
        process == self.me || self.peers.descriptor(process).is_some_and(shows)
    }

    /// How the tree of a sum of so many is found. Neighbours send nothing: the destination adds what it maps, all sources in one
    /// pass, and is the only one to fill new memory, which takes longer than to add. Any other tree fills some at each slot
    /// that sums. What is mapped takes room, so of many there is another tree. A source elsewhere that nobody here has met yet
    /// is sent to the destination, too: right, and slower than it could be.
    pub(super) fn rule(&self, wanted: Rule, count: u32) -> Rule {
        let mut known = self.peers.known().peekable();
        let all_map = known.peek().is_some() && known.all(|process| self.is_neighbour(process));
        match wanted {
            Rule::Measured if all_map && count <= MOST_MAPPED => Rule::Given(Form::Star, SHOWN),
            _ => wanted,
        }
    }

    fn cut_if_lost(&mut self, process: Process) {
        if process != self.me && !self.member.lives(process) && self.peers.knows(process) {
            self.lose(process, "others have lost it");
        }
    }

    /// A process is gone.
    pub(super) fn lose(&mut self, process: Process, why: &str) {
        for link in self.peers.lose(process, why) {
            self.part(link, why);
        }
        self.forget_pulls(process);
        self.store.room.give_up();
        self.member.handle_lost(process);
    }

    /// Tells a process something; one that cannot be told is gone.
    pub(super) fn tell(&mut self, to: Process, frame: &Frame, body: Option<Body>) {
        if to == self.me {
            return self.own.push_back((frame.clone(), body));
        }
        let of = if let Frame::Block { stream, .. } = frame { Some(*stream) } else { None };
        match self.peers.push(to, Outgoing { frame: frame.encode().into(), body, of }) {
            true => self.flush(to),
            false => self.lose(to, "it does not read what it is told"),
        }
    }

    /// What a process is sent goes over this link from now on.
    fn resume(&mut self, process: Process, link: u64) {
        self.peers.resume(process, link);
        self.flush(process);
        self.tell_taken(process, 1);
    }

    /// Sends a process what may leave.
    fn flush(&mut self, to: Process) {
        while let Some((link, mark, outgoing)) = self.peers.poll(to) {
            self.links.send(link, &[&mark.encode()[..], &outgoing.frame].concat(), outgoing.body.clone());
        }
    }

    /// Does all that there is to do.
    pub(super) fn drive(&mut self) {
        loop {
            while let Some(action) = self.member.poll() {
                self.act(action);
            }
            self.unpark();
            self.pump();
            let Some((frame, body)) = self.own.pop_front() else { return };
            let rest = body.as_ref().map_or(&[][..], |body| (**body).as_ref());
            let of = if let Frame::Block { stream, .. } = frame { Some(stream) } else { None };
            self.hear(self.me, frame, rest);
            if let Some(stream) = of {
                self.grant(self.me, stream);
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Send { to, message } => self.tell(to, &Frame::Message { message }, None),
            Action::Open { stream, pull, sink } => self.open(stream, pull, sink),
            Action::Close { stream } => self.close(stream),
            Action::Stop { stream } => self.stop(stream),
            Action::Timer { stream, after } => {
                self.timers.insert(stream, Instant::now() + after);
                self.links.wake(); // who waits for links waits no longer than for this
            }
            Action::Fold(fold) => self.add(fold),
            Action::Reset { buffer } => drop(self.store.buffers.remove(&buffer)),
            Action::Release { buffer } => {
                self.store.buffers.remove(&buffer);
                if let Buffer::Object(object) = buffer {
                    self.store.came.forget(Sink::Copy(object));
                    self.writing.remove(&object);
                }
            }
            Action::Over { target, slot } => self.store.end_slot((target, slot)),
            Action::Got { object } => self.end_gets(object),
            Action::SumSmall { target, format, op, parts } => self.add_small(target, format, op, &parts),
            Action::Reduced { target, included } => self.end_reduces(target, included),
            Action::Failed { object, why } => self.fail(object, &why),
        }
    }

    /// The process leaves.
    pub(super) fn close_sums(&mut self) {
        (self.is_closed, self.sums) = (true, None);
    }

    /// Hands a piece of arithmetic to the thread for it.
    fn add(&mut self, fold: Fold) {
        let of = fold.own.unwrap_or(fold.target);
        let format = self.member.format(of).or_else(|| self.member.format(fold.target));
        let kinds = format.and_then(|f| dtype_of(f.kind).zip(ReduceOp::try_from(fold.op).ok()));
        let parts = format.and_then(|format| self.store.parts(&fold, format.size));
        match (kinds, parts) {
            (Some((dtype, op)), Some((into, parts))) => {
                let sum = Sum { fold, dtype, op, into, parts };
                if let Some(sums) = &self.sums {
                    let _ = sums.send(sum); // nobody adds any more after the end
                }
            }
            _ => self.miss(&fold),
        }
    }

    /// What a piece of arithmetic adds is not here: its call has no result.
    pub(super) fn miss(&mut self, fold: &Fold) {
        let &Fold { target, slot, .. } = fold;
        let object = fold.own.unwrap_or(target);
        self.member.handle_unable(target, slot, Failure::Missing { target, object, process: self.me });
    }

    fn add_small(&mut self, target: ObjectId, format: Format, op: u32, parts: &[Bytes]) {
        let kinds: Option<(DType, ReduceOp)> = dtype_of(format.kind).zip(ReduceOp::try_from(op).ok());
        if let Some(sum) = kinds.and_then(|(dtype, op)| sum_small(dtype, op, parts)) {
            self.member.handle_small_sum(target, sum);
        }
    }

    /// A range of a sum is there.
    pub(super) fn added(&mut self, sum: &Sum) {
        let Fold { target, slot, generation, ref range, .. } = sum.fold;
        self.member.handle_folded(target, slot, generation, range.end);
    }
}

/// The process that a message says is dead.
fn named(message: &Message) -> Option<Process> {
    match message {
        Message::Report(Report::Lost { process, .. }) | Message::Order(Order::Lost { process, .. }) => {
            Some(*process)
        }
        Message::Report(Report::Broken(broken)) => Some(broken.process),
        _ => None,
    }
}
