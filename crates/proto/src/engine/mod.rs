//! The engine of one process: runs the operations of all its groups.
//!
//! # Theory of operation
//!
//! The engine is a state machine behind one lock. Everything that it needs of its process stands behind [`Host`]; the
//! arithmetic is done by whoever drives it. So the live process and the simulator run the same code, and in the
//! simulator a seed decides every interleaving.
//!
//! **In**: [`Event`]s from other threads ([`Host::take_events`]), messages from queues in shared memory ([`Host::take`]),
//! messages from streams ([`Engine::handle_message`]; [`landed`] for values that land in their place).
//! **Out**: through the host; jobs and the end from [`Engine::step`]; callers to be told ([`Engine::take_ended`]); lines to
//! print ([`Engine::take_lines`]).
//!
//! Who holds the lock calls [`Engine::step`] until it is idle, and does the jobs that it hands out. Then it unlocks, tells
//! the callers, prints the lines, and sleeps until [`Engine::next_deadline`] at most; [`driving`] is the protocol by which
//! threads take turns at that.
//!
//! **An operation** is drafted by its caller, *admitted* (gets its number in the group), *begun* (gets memory and an
//! executor; what came early for it is handled), *told* (its result is there, or an error), and *retired* when no peer needs
//! anything of it any more. Its shared memory is given back by [`leases`], never before peers have let go.
//! **A group** is open, broken (one of its collectives has failed: every later call gets that error), or closed.
//! **A peer** is reachable or lost, for good: who comes back comes back under a new number. A loss takes effect once all
//! that had come before it was handled, so that what a peer sent before it died still counts.
//!
//! What cannot happen: a caller is told twice, or told success before all of its values are there; a value of one
//! operation reaches another; a message of one epoch's group is taken for the next one's ([`GroupNumber`]); memory is given back while a peer may touch it; a message is waited for without a deadline.

pub mod config;
mod control_messages;
pub mod delivery;
pub mod directory;
pub mod driving;
mod early_messages;
mod error;
mod faults;
mod flow;
mod group_number;
mod groups;
pub mod host;
mod landed;
mod late;
mod leases;
pub mod members;
pub mod message;
pub mod metrics;
mod operation;
mod p2p;
pub mod pace;
mod packets;
mod peers;
pub mod request;
mod shutdown;
pub mod striping;
pub mod urgency;
mod work;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tweed_schedule::Rank;

pub use error::EngineError;
pub use flow::MOST_AHEAD_BYTES;
pub use group_number::GroupNumber;
pub use host::{Address, Host, Lease, Payload, Ticket, Time};
pub use landed::Received;
pub use operation::job::{Job, Source, Target};
pub use operation::{Draft, Key};
pub use packets::PacketMessage;
pub use peers::{Peer, Peers};

use early_messages::EarlyMessages;
use groups::GroupState;
use landed::Landed;
use leases::Leases;
use members::Members;
use operation::{ActiveOp, Start};
use packets::PacketSends;

/// After arithmetic on so many bytes, look for messages first.
const QUANTUM_BYTES: u64 = 64 << 10;
/// A peer's full queue is tried again after so long: its reader wakes nobody.
const CONGESTION_RETRY: Duration = Duration::from_millis(1);

/// Something that happened outside of the engine's lock.
#[derive(Debug)]
pub enum Event<C> {
    /// A caller wants an operation.
    Submit(Draft<C>),
    /// A peer is lost; why.
    Lost(usize, String),
    /// All operations of a group are to end.
    Abort(GroupNumber, String),
    /// A peer's value has come in packets.
    Received(usize, PacketMessage),
    /// Payloads have left, after [`Host::flush`] had put that off.
    Left(Vec<Ticket>),
    /// A value of ours has arrived but for these ranges, and is read no more.
    Delivered(u64, Vec<Range<u32>>),
}

/// An operation that has ended, for its caller.
#[derive(Debug)]
pub struct Ended<C> {
    /// The handle of the caller.
    pub call: C,
    /// How the operation has ended.
    pub result: Result<(), EngineError>,
    /// The other rank of a send or receive.
    pub source: Option<Rank>,
}

/// What [`Engine::step`] has come to.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "a job is made for each piece: a box would cost an allocation each time"
)]
pub enum Step {
    /// Work for the driver, who answers with [`Engine::handle_computed`] and steps on.
    Compute(Job),
    /// Nothing can be done before something happens, or [`Engine::next_deadline`].
    Idle,
}

/// How the process's engine is set up.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// How late a step may be, if the user has set it.
    pub deadline: Option<Duration>,
    /// How operations went is recorded.
    pub records: bool,
    /// So many operations may hold leases at a time.
    pub leases: u32,
    /// So many bytes of a group's values may be sent to a peer that it has not asked for: [`MOST_AHEAD_BYTES`].
    pub ahead_bytes: u64,
}

/// The engine of a process; the module's documentation describes it.
pub struct Engine<H: Host> {
    /// The process that it is in.
    pub host: H,
    /// All peers of the process.
    pub peers: Peers,
    /// Who sleeps until when.
    pub turns: driving::Turns,
    settings: Settings,
    groups: BTreeMap<GroupNumber, GroupState>,
    active: Vec<ActiveOp<H::Call>>,
    next_run: u64,
    /// Receives from anybody that nobody has answered.
    open: Vec<Draft<H::Call>>,
    landed: Landed,
    leases: Leases<Ended<H::Call>>,
    packet_sends: PacketSends,
    /// Messages on operations and groups that this rank has not come to yet.
    early: EarlyMessages,
    /// Groups that this rank has left.
    closed: BTreeSet<GroupNumber>,
    /// Groups that were left, whose members have no notice of it yet.
    leaving: Vec<Arc<Members>>,
    /// Over how many streams a peer has sent that it leaves: all, or that group.
    shutdowns: BTreeMap<(usize, u8, GroupNumber), usize>,
    /// This process has left the network: nothing that it has exposed changes any more.
    sent_bye: bool,
    /// Peers, and groups that peers have left, once all that came before is handled.
    losing: VecDeque<shutdown::Departure>,
    ended: Vec<Ended<H::Call>>,
    lines: Vec<String>,
    /// When it was last driven: near enough for what counts in milliseconds.
    clock: Time,
    last_warning: Option<Time>,
    /// Since the last look for messages, something was done that may lead to more.
    busy_turn: bool,
    look_first: bool,
}

impl<H: Host> Engine<H> {
    /// Without peers and groups.
    pub fn new(host: H, settings: Settings) -> Engine<H> {
        Engine {
            host,
            peers: Peers::default(),
            turns: driving::Turns::default(),
            leases: Leases::new(settings.leases),
            settings,
            groups: BTreeMap::new(),
            active: Vec::new(),
            next_run: 0,
            open: Vec::new(),
            landed: Landed::default(),
            packet_sends: PacketSends::default(),
            early: EarlyMessages::new(early_messages::MOST_BYTES),
            closed: BTreeSet::new(),
            leaving: Vec::new(),
            shutdowns: BTreeMap::new(),
            sent_bye: false,
            losing: VecDeque::new(),
            ended: Vec::new(),
            lines: Vec::new(),
            clock: Time::ZERO,
            last_warning: None,
            busy_turn: false,
            look_first: true,
        }
    }

    /// Goes on until there is arithmetic to do, or nothing at all.
    pub fn step(&mut self, now: Time) -> Step {
        self.clock = now;
        loop {
            if std::mem::take(&mut self.look_first) {
                self.busy_turn |= self.take_events() | self.take_messages();
            }
            if let Some(job) = self.run_some() {
                if job.bytes * job.sources.len() as u64 >= QUANTUM_BYTES {
                    self.look_first = true;
                    self.peers.announce(&mut self.host);
                }
                return Step::Compute(job);
            }
            self.look_first = true;
            if std::mem::take(&mut self.busy_turn) {
                continue;
            }
            self.send_leave();
            self.expire(now);
            let expired = std::mem::take(&mut self.busy_turn);
            if !(self.flush_wires() | self.depart() | self.tend_leases() | expired) {
                self.busy_turn = false;
                self.peers.announce(&mut self.host);
                return Step::Idle;
            }
        }
    }

    /// Only the arithmetic that can be done without looking for messages: for a driver that has just handled one.
    pub fn next_job(&mut self, now: Time) -> Option<Job> {
        self.clock = now;
        self.run_some()
    }

    /// Callers to be told, once the lock is free.
    pub fn take_ended(&mut self) -> Vec<Ended<H::Call>> {
        std::mem::take(&mut self.ended)
    }

    /// Lines for people, to be printed once the lock is free.
    pub fn take_lines(&mut self) -> Vec<String> {
        let mut lines = std::mem::take(&mut self.lines);
        lines.extend(self.host.take_lines());
        lines
    }

    /// At least so many signals must come in before anything can happen; `None` if a mere acknowledgement would do.
    pub fn needs(&self) -> Option<u32> {
        match &self.active[..] {
            // The acknowledgements of the last operations are all that keeps this rank in the group.
            _ if !self.leaving.is_empty() => None,
            [] => Some(1),
            [active] if self.peers.is_congested() || active.group.has_wires => {
                active.executor.missing().map(|_| 1)
            }
            [active] => active.executor.missing(),
            all => all.iter().all(|a| a.has_result() || a.executor.missing().is_some()).then_some(1),
        }
    }

    /// Something can be done only later: who drives must come back by then.
    pub fn next_deadline(&self) -> Option<Time> {
        let running = self.active.iter().filter(|a| !a.has_result()).map(ActiveOp::next_step);
        let disputes = self.active.iter().filter_map(ActiveOp::end_of_dispute);
        let congestion = self.peers.is_congested().then(|| self.clock + CONGESTION_RETRY);
        let open = self.open.iter().map(|d| self.end_of(d));
        let leases = self.leases.next_deadline();
        let paced = (!self.host.held_back().is_empty()).then(|| self.clock + pace::AGAIN);
        running.chain(disputes).chain(congestion).chain(open).chain(leases).chain(paced).min()
    }

    /// Some caller waits for something.
    pub fn is_busy(&self) -> bool {
        !self.open.is_empty() || self.active.iter().any(|a| !a.has_result())
    }

    /// Bytes that peers have sent for operations and groups that this rank has not come to.
    pub fn early_bytes(&self) -> u64 {
        self.early.bytes()
    }

    /// Nothing is held for anybody: no operation, no early message, no memory that a peer touches.
    pub fn is_quiet(&self) -> bool {
        let groups = self.groups.values().all(|group| !group.flow.holds());
        groups
            && self.active.is_empty()
            && self.open.is_empty()
            && self.leases.is_idle()
            && self.early.is_empty()
    }

    /// What is held, in words, for the texts of tests.
    pub fn holdings(&self) -> String {
        let (active, open, early) = (self.active.len(), self.open.len(), self.early.bytes());
        let leases = if self.leases.is_idle() { "no" } else { "some" };
        let labels: Vec<String> = self.active.iter().map(ActiveOp::label).collect();
        let lost: Vec<usize> = (0..self.peers.len()).filter(|&peer| self.peers.is_lost(peer)).collect();
        format!(
            "{active} operations {labels:?}, {open} open receives, {early} early bytes, {leases} claimed memory; \
             peers {lost:?} are lost, {:?} to be",
            self.losing
        )
    }

    fn take_events(&mut self) -> bool {
        let events = self.host.take_events();
        let any = !events.is_empty();
        for event in events {
            match event {
                Event::Submit(draft) => self.admit(draft),
                Event::Lost(peer, why) => self.handle_lost(peer, why),
                Event::Abort(group, why) => self.abort(group, why),
                Event::Left(tickets) => tickets.into_iter().for_each(|ticket| self.handle_left(ticket)),
                Event::Received(peer, packet_message) => self.take_packet_message(peer, packet_message),
                Event::Delivered(number, missing) => self.handle_delivered(number, &missing),
            }
        }
        any
    }

    fn take_messages(&mut self) -> bool {
        let mut messages = Vec::new();
        self.peers.take(&mut self.host, &mut messages);
        let any = !messages.is_empty();
        for (peer, message) in messages {
            self.handle_message(peer, message, Received::default());
        }
        any
    }

    fn end(&mut self, call: H::Call, result: Result<(), EngineError>) {
        self.ended.push(Ended { call, result, source: None });
    }

    /// An operation is over here: its memory is given back, now or when nobody touches it any more.
    fn retire(&mut self, active: ActiveOp<H::Call>, end: Option<Result<(), EngineError>>) {
        if let Some(group) = self.groups.get_mut(&active.key.group) {
            group.flow.forget(active.run);
            if active.call.is_some() {
                group.under_way.end(self.clock);
            }
        }
        let leftover = active.into_leftover(end);
        if self.sent_bye {
            // Peers may still come to what lies ready for them. The memory goes when nobody maps it any more.
            return self.ended.extend(leftover.end);
        }
        let concerned = leftover.peers.clone();
        self.ended.extend(self.leases.end(leftover, self.clock, &self.peers, &mut self.host));
        for peer in concerned {
            if self.peers.is_lost(peer) {
                self.unmap(peer);
            }
        }
    }

    fn tend_leases(&mut self) -> bool {
        if self.leases.is_idle() {
            return false;
        }
        let ended = self.leases.tend(self.clock, &self.peers, &mut self.host);
        let any = !ended.is_empty();
        self.ended.extend(ended);
        any
    }
}
