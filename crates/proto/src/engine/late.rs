//! What is late: asks the others how they stand, answers those who ask, and says who is to blame.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::late::{Blame, Call, Context, Kind as Sort, Limits, Report, Standing, Step, Usual, Watchdog};
use tweed_schedule::Rank;

use super::error::EngineError;
use super::host::{Host, Payload, Time};
use super::message::{Kind, Message};
use super::operation::ActiveOp;
use super::p2p::Numbers;
use super::{Draft, Ended, Engine, GroupNumber};

/// A process says at most one line of warning in so long.
const WARN_EVERY: Duration = Duration::from_secs(30);
/// No honest answer is longer.
const MAX_REPORT: usize = 64 << 10;

/// How late an operation is, and what is known about why.
pub(super) struct Lateness {
    pub(super) watchdog: Watchdog,
    usual: Option<Usual>,
    /// When the first message of each rank about it came.
    pub(super) first_messages: BTreeMap<Rank, Time>,
    last_message: Time,
    asked: Option<Time>,
    reports: BTreeMap<Rank, (Time, Report)>,
    /// The ranks that answered the round of questions before this one.
    answered: BTreeSet<Rank>,
    missed: BTreeSet<Rank>,
}

impl Lateness {
    fn new(watchdog: Watchdog, usual: Option<Usual>, started: Time) -> Lateness {
        Lateness {
            watchdog,
            usual,
            first_messages: BTreeMap::new(),
            last_message: started,
            asked: None,
            reports: BTreeMap::new(),
            answered: BTreeSet::new(),
            missed: BTreeSet::new(),
        }
    }

    /// `rank` has sent something about the operation.
    pub(super) fn note_message(&mut self, rank: Rank, now: Time) {
        self.first_messages.entry(rank).or_insert(now);
        self.last_message = now;
    }

    /// Begins a new round of questions.
    fn ask(&mut self, others: impl Iterator<Item = Rank>, now: Time) {
        let reports = std::mem::take(&mut self.reports);
        if self.asked.replace(now).is_some() {
            self.missed = others.filter(|rank| !reports.contains_key(rank)).collect();
            self.answered = reports.into_keys().collect();
        }
    }

    fn answered(&self) -> BTreeSet<Rank> {
        self.answered.iter().chain(self.reports.keys()).copied().collect()
    }

    /// Who has not answered in time, of those that were asked.
    fn missed(&self, others: impl Iterator<Item = Rank>, now: Time) -> BTreeSet<Rank> {
        let over = self.asked.is_some_and(|asked| now >= asked + self.watchdog.limits.answer);
        let silent = others.filter(|rank| over || self.missed.contains(rank));
        silent.filter(|rank| !self.reports.contains_key(rank)).collect()
    }
}

fn sort(request: &crate::engine::request::Request) -> Sort {
    Sort::new(request.name(), request.common_bytes())
}

impl<H: Host> Engine<H> {
    /// The timeouts of a call that begins.
    pub(super) fn limits(&self, draft: &Draft<H::Call>, usual: Option<Usual>) -> Limits {
        Limits::derive(self.settings.deadline, usual, draft.timeout())
    }

    /// The watch over a call that begins.
    pub(super) fn watch(&self, draft: &Draft<H::Call>) -> Lateness {
        let usual = self.groups.get(&draft.group.number).and_then(|c| c.history.usual(sort(&draft.request)));
        Lateness::new(Watchdog::new(self.limits(draft, usual)), usual, draft.started)
    }

    /// Does for late operations what is due.
    pub(super) fn tend(&mut self, now: Time) {
        let due = |active: &ActiveOp<H::Call>| !active.has_result() && now >= active.next_step();
        while let Some(index) = self.active.iter().position(due) {
            self.busy_turn = true;
            let waited = now.saturating_sub(self.active[index].started);
            match self.active[index].late.watchdog.poll(waited) {
                Some(Step::Ask) => {
                    self.ask(index, now);
                    if self.active[index].late.watchdog.is_half_over() {
                        self.lift(index);
                    }
                }
                Some(Step::Warn) => self.warn(index, now),
                Some(Step::Fail) => {
                    let active = &self.active[index];
                    let (blame, _) = self.blame(active, now);
                    let error = EngineError::Deadline(self.context(active, now).verdict(&blame));
                    self.fail(index, error, true);
                }
                None => break,
            }
        }
    }

    /// Notes how an operation went that has ended well, for its caller.
    pub(super) fn note_end(&mut self, index: usize) {
        let active = &mut self.active[index];
        let delivery = std::mem::take(&mut active.delivery);
        let call = active.call.take();
        let took = self.clock.saturating_sub(active.started);
        if let Some(group) = self.groups.get_mut(&active.key.group) {
            group.history.handle_end(sort(&active.request), took);
            group.last_end = Some((active.request.name(), self.clock));
            group.count_arrivals(active);
            group.under_way.end(self.clock);
            group.deliveries.keep(delivery);
            if group.ends_epoch(active) {
                active.group.endpoint.into_iter().for_each(|endpoint| self.host.end_epoch(endpoint));
            }
        }
        let source = active.key.peer;
        self.ended.extend(call.map(|call| Ended { call, result: Ok(()), source }));
    }

    fn ask(&mut self, index: usize, now: Time) {
        let message = Message { signature: 0, ..self.active[index].message(Kind::Ask, 0, 0) };
        let active = &mut self.active[index];
        let concerned = active.concerned();
        active.late.ask(concerned.iter().filter_map(|&p| active.group.rank_of(p)), now);
        for peer in concerned {
            self.peers.send(peer, &message, Payload::Nothing, &mut self.host);
        }
    }

    /// An operation that has waited for half of its time becomes as urgent as any other.
    fn lift(&mut self, index: usize) {
        let most = self.active.iter().map(|active| active.request.urgency).max().unwrap_or(0);
        let active = &mut self.active[index];
        active.request.urgency = most;
        self.host.lift(active.run, most);
        if let Some(group) = self.groups.get_mut(&active.key.group) {
            group.flow.lift(active.run, most);
        }
        self.active.sort_by_key(|active| Reverse(active.request.urgency));
    }

    /// `peer` asks how this rank stands in an operation.
    pub(super) fn answer(&mut self, peer: usize, question: &Message) {
        let Ok(text) = serde_json::to_vec(&self.report(peer, question, self.clock)) else { return };
        let message = Message::new(Kind::State, question.group, question.op);
        self.peers.send_text(peer, &message, text, &mut self.host);
    }

    fn report(&self, peer: usize, question: &Message, now: Time) -> Report {
        match self.find_run(peer, question).map(|index| &self.active[index]) {
            Some(active) if active.has_result() => Report::of(Standing::Done),
            Some(active) => self.own_report(active, now),
            None if self.is_past(peer, question) => Report::of(Standing::Done),
            None => Report::of(self.elsewhere(question.group, now)),
        }
    }

    fn own_report(&self, active: &ActiveOp<H::Call>, now: Time) -> Report {
        let quiet = now.saturating_sub(active.late.last_message);
        let others = active.concerned().into_iter().filter_map(|p| active.group.rank_of(p));
        Report {
            stand: Standing::Inside { waits_for: active.waits_for(), quiet },
            answered: active.late.answered(),
            missed: active.late.missed(others, now),
            sends_first: self.sends_first(active),
        }
    }

    /// The operation whose values leave before those of this one, if some of both wait.
    fn sends_first(&self, active: &ActiveOp<H::Call>) -> Option<String> {
        let before = |other: &&ActiveOp<H::Call>| {
            other.request.urgency > active.request.urgency && other.executor.is_sending()
        };
        self.active.iter().find(before).filter(|_| active.executor.is_sending()).map(ActiveOp::label)
    }

    /// The operation has been called here before, and is forgotten.
    fn is_past(&self, peer: usize, message: &Message) -> bool {
        self.groups.get(&message.group).is_some_and(|state| match state.members.rank_of(peer) {
            Some(rank) if Numbers::is_point_to_point(message.op) => state.numbers.is_past(rank, message.op),
            _ => message.op < state.next_op,
        })
    }

    fn elsewhere(&self, group: GroupNumber, now: Time) -> Standing {
        let last = self.groups.get(&group).and_then(|state| state.last_end);
        let waiting = || self.active.iter().filter(|active| !active.has_result());
        let call = waiting().find(|r| r.key.group == group).or_else(|| waiting().next());
        Standing::Elsewhere {
            last: last.map(|(name, at)| (name.to_owned(), now.saturating_sub(at))),
            call: call.map(|active| Call {
                label: active.label(),
                since: now.saturating_sub(active.started),
                waits_for: if active.key.group == group { active.waits_for() } else { Vec::new() },
            }),
            activity: self.host.activity(),
        }
    }

    /// `peer` has answered. What cannot be read is no answer.
    pub(super) fn take_report(&mut self, peer: usize, message: &Message, body: &[u8]) {
        let Some(index) = self.find_run(peer, message) else { return };
        let report = Some(body).filter(|b| b.len() <= MAX_REPORT).map(serde_json::from_slice::<Report>);
        let active = &mut self.active[index];
        if let (Some(Ok(report)), Some(rank)) = (report, active.group.rank_of(peer)) {
            if report.ranks().all(|rank| rank < active.group.ranks()) {
                active.late.reports.insert(rank, (self.clock, report));
            }
        }
    }

    fn blame(&self, active: &ActiveOp<H::Call>, now: Time) -> (Blame, bool) {
        let aged = |(at, report): &(Time, Report)| report.clone().aged(now.saturating_sub(*at));
        let reports = active.late.reports.iter().map(|(&rank, report)| (rank, aged(report)));
        let mut reports: BTreeMap<Rank, Report> = reports.collect();
        reports.insert(active.group.rank, self.own_report(active, now));
        let speaks = Blame::speaker(&reports) == Some(active.group.rank);
        (Blame::find(active.group.rank, &reports, active.late.watchdog.limits.answer), speaks)
    }

    fn context(&self, active: &ActiveOp<H::Call>, now: Time) -> Context {
        let group = &active.group;
        Context {
            label: active.label(),
            waited: now.saturating_sub(active.started),
            limits: active.late.watchdog.limits,
            deadline: self.settings.deadline,
            usual: active.late.usual,
            ranks: (0..group.ranks()).map(|rank| self.host.rank_status(group.number, rank)).collect(),
        }
    }

    /// One line, by one of the ranks that wait, now and then.
    fn warn(&mut self, index: usize, now: Time) {
        let active = &self.active[index];
        let (blame, speaks) = self.blame(active, now);
        if speaks && self.last_warning.is_none_or(|last| now >= last + WARN_EVERY) {
            let line = self.context(active, now).warning(&blame);
            self.lines.push(line);
            self.last_warning = Some(now);
        }
    }
}
