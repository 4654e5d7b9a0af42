//! What is late: asks the others how they stand, answers those who ask, and says who is to blame.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use tweed_proto::late::{Blame, Call, Kind as Sort, Limits, Report, Scene, Stand, Step, Usual, Vigil};
use tweed_schedule::Rank;

use super::{Engine, GroupState};
use crate::connect::peer_status::activity;
use crate::error::EngineError;
use crate::link::message::{Kind, Message};
use crate::link::stream::Payload;
use crate::operation::active::{ActiveOp, Draft};
use crate::operation::p2p::Numbers;

/// A process says at most one line of warning in so long.
const WARN_EVERY: Duration = Duration::from_secs(30);
/// No honest answer is longer.
const MAX_REPORT: usize = 64 << 10;

/// How late an operation is, and what is known about why.
pub(crate) struct Lateness {
    pub(crate) vigil: Vigil,
    usual: Option<Usual>,
    /// When each rank said its first word on it.
    first_words: BTreeMap<Rank, Instant>,
    last_news: Instant,
    asked: Option<Instant>,
    reports: BTreeMap<Rank, (Instant, Report)>,
    /// Of the round of questions before this one.
    heard: BTreeSet<Rank>,
    missed: BTreeSet<Rank>,
}

impl Lateness {
    fn new(vigil: Vigil, usual: Option<Usual>, started: Instant) -> Lateness {
        Lateness {
            vigil,
            usual,
            first_words: BTreeMap::new(),
            last_news: started,
            asked: None,
            reports: BTreeMap::new(),
            heard: BTreeSet::new(),
            missed: BTreeSet::new(),
        }
    }

    /// `rank` has said something about the operation.
    pub(super) fn hear(&mut self, rank: Rank, now: Instant) {
        self.first_words.entry(rank).or_insert(now);
        self.last_news = now;
    }

    /// When each rank said its first word on it.
    pub(super) fn first_words(&self) -> impl Iterator<Item = (Rank, Instant)> + '_ {
        self.first_words.iter().map(|(&rank, &at)| (rank, at))
    }

    /// Begins a new round of questions.
    fn ask(&mut self, others: impl Iterator<Item = Rank>, now: Instant) {
        let reports = std::mem::take(&mut self.reports);
        if self.asked.replace(now).is_some() {
            self.missed = others.filter(|rank| !reports.contains_key(rank)).collect();
            self.heard = reports.into_keys().collect();
        }
    }

    fn heard(&self) -> BTreeSet<Rank> {
        self.heard.iter().chain(self.reports.keys()).copied().collect()
    }

    /// Who has not answered in time, of those that were asked.
    fn missed(&self, others: impl Iterator<Item = Rank>, now: Instant) -> BTreeSet<Rank> {
        let over = self.asked.is_some_and(|asked| now >= asked + self.vigil.limits().answer);
        let silent = others.filter(|rank| over || self.missed.contains(rank));
        silent.filter(|rank| !self.reports.contains_key(rank)).collect()
    }
}

/// Notes how an operation went that has ended well.
pub(super) fn note_end(groups: &mut BTreeMap<u32, GroupState>, run: &ActiveOp, now: Instant) {
    let Some(state) = groups.get_mut(&run.key.group) else { return };
    state.history.handle_end(sort(&run.request), now.saturating_duration_since(run.op.started));
    state.last_end = Some((run.request.name(), now));
    state.count_arrivals(run);
}

fn sort(request: &crate::operation::request::Request) -> Sort {
    Sort::new(request.name(), request.common_bytes())
}

impl Engine {
    /// The timeouts of a call that begins.
    pub(super) fn limits(&self, draft: &Draft, usual: Option<Usual>) -> Limits {
        Limits::derive(self.home.deadline, usual, draft.op.deadline - draft.op.started)
    }

    /// The watch over a call that begins.
    pub(super) fn watch_over(&self, draft: &Draft) -> Lateness {
        let usual = self.groups.get(&draft.group.number).and_then(|c| c.history.usual(sort(&draft.request)));
        Lateness::new(Vigil::new(self.limits(draft, usual)), usual, draft.op.started)
    }

    /// Does for late operations what is due.
    pub(super) fn tend(&mut self, now: Instant) {
        let due = |run: &ActiveOp| !run.told && now >= run.next_step();
        while let Some(index) = self.runs.iter().position(due) {
            let waited = now.saturating_duration_since(self.runs[index].op.started);
            match self.runs[index].late.vigil.poll(waited) {
                Some(Step::Ask) => self.ask(index, now),
                Some(Step::Warn) => self.warn(index, now),
                Some(Step::Fail) => {
                    let error = self.late_error(index, now);
                    self.fail(index, error, true);
                }
                None => break,
            }
        }
    }

    fn ask(&mut self, index: usize, now: Instant) {
        let message = Message { signature: 0, ..self.runs[index].message(Kind::Ask, 0, 0) };
        let run = &mut self.runs[index];
        let concerned = run.concerned();
        run.late.ask(concerned.iter().filter_map(|&p| run.group.rank_of(p)), now);
        for peer in concerned {
            self.links.carry(peer, &message, Payload::Nothing);
        }
    }

    /// `peer` asks how this rank stands in an operation.
    pub(super) fn answer(&mut self, peer: usize, question: &Message) {
        let Ok(text) = serde_json::to_vec(&self.report(peer, question, Instant::now())) else { return };
        let bytes = text.len() as u32;
        let message = Message { bytes, ..Message::new(Kind::State, question.group, question.op) };
        self.links.carry(peer, &message, Payload::Text(text));
    }

    fn report(&self, peer: usize, question: &Message, now: Instant) -> Report {
        match self.find_run(peer, question).map(|index| &self.runs[index]) {
            Some(run) if run.told => Report::of(Stand::Done),
            Some(run) => self.own_report(run, now),
            None if self.is_past(peer, question) => Report::of(Stand::Done),
            None => Report::of(self.elsewhere(question.group, now)),
        }
    }

    fn own_report(&self, run: &ActiveOp, now: Instant) -> Report {
        let quiet = now.saturating_duration_since(run.late.last_news);
        let others = run.concerned().into_iter().filter_map(|p| run.group.rank_of(p));
        Report {
            stand: Stand::Inside { waits_for: run.waits_for(), quiet },
            heard: run.late.heard(),
            missed: run.late.missed(others, now),
        }
    }

    /// The operation has been called here before, and is forgotten.
    fn is_past(&self, peer: usize, message: &Message) -> bool {
        self.groups.get(&message.group).is_some_and(|state| match state.members.rank_of(peer) {
            Some(rank) if Numbers::is_point_to_point(message.op) => state.numbers.is_past(rank, message.op),
            _ => message.op < state.next_op,
        })
    }

    fn elsewhere(&self, group: u32, now: Instant) -> Stand {
        let last = self.groups.get(&group).and_then(|state| state.last_end);
        let waiting = || self.runs.iter().filter(|run| !run.told);
        let call = waiting().find(|r| r.key.group == group).or_else(|| waiting().next());
        Stand::Elsewhere {
            last: last.map(|(name, at)| (name.to_owned(), now.saturating_duration_since(at))),
            call: call.map(|run| Call {
                label: run.label(),
                since: now.saturating_duration_since(run.op.started),
                waits_for: if run.key.group == group { run.waits_for() } else { Vec::new() },
            }),
            activity: activity(),
        }
    }

    /// `peer` has answered. What cannot be read is no answer.
    pub(super) fn take_report(&mut self, peer: usize, message: &Message, body: &[u8]) {
        let Some(index) = self.find_run(peer, message) else { return };
        let report = Some(body).filter(|b| b.len() <= MAX_REPORT).map(serde_json::from_slice::<Report>);
        let run = &mut self.runs[index];
        if let (Some(Ok(report)), Some(rank)) = (report, run.group.rank_of(peer)) {
            if report.ranks().all(|rank| rank < run.group.ranks()) {
                run.late.reports.insert(rank, (self.clock, report));
            }
        }
    }

    fn blame(&self, run: &ActiveOp, now: Instant) -> (Blame, bool) {
        let aged = |(at, report): &(Instant, Report)| report.clone().aged(now.saturating_duration_since(*at));
        let reports = run.late.reports.iter().map(|(&rank, told)| (rank, aged(told)));
        let mut reports: BTreeMap<Rank, Report> = reports.collect();
        reports.insert(run.group.rank, self.own_report(run, now));
        let speaks = Blame::speaker(&reports) == Some(run.group.rank);
        (Blame::find(run.group.rank, &reports, run.late.vigil.limits().answer), speaks)
    }

    fn scene<T>(&self, run: &ActiveOp, now: Instant, describe: impl FnOnce(&Scene<'_>) -> T) -> T {
        describe(&Scene {
            label: &run.label(),
            waited: now.saturating_duration_since(run.op.started),
            limits: *run.late.vigil.limits(),
            deadline: self.home.deadline,
            usual: run.late.usual,
            seats: &run.group.whereabouts.iter().map(|w| w.seat()).collect::<Vec<_>>(),
        })
    }

    /// One line, by one of the ranks that wait, now and then.
    fn warn(&mut self, index: usize, now: Instant) {
        let run = &self.runs[index];
        let (blame, speaks) = self.blame(run, now);
        if speaks && self.last_warning.is_none_or(|last| now >= last + WARN_EVERY) {
            crate::stderr::print_line(&self.scene(run, now, |scene| scene.warning(&blame)));
            self.last_warning = Some(now);
        }
    }

    fn late_error(&self, index: usize, now: Instant) -> EngineError {
        let run = &self.runs[index];
        let (blame, _) = self.blame(run, now);
        EngineError::Deadline(self.scene(run, now, |scene| scene.verdict(&blame)))
    }
}
