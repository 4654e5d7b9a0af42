//! Who feeds whom: the copies of one object.
//!
//! **Theory of operation.** A *copy* is a process with an entry here. It is
//!
//! ```text
//! wanted --granted a feeder--> fed --first block--> fed and readable --last block--> complete
//!    ^---------its feeder dies---------/------------------/
//! ```
//!
//! or it is written by its own process, and then needs no feeder. A copy that is readable and feeds nobody is *free*; each
//! feeds one other at a time, until that one is complete. Who asks is granted a free copy, or waits for one.
//!
//! **Nobody waits behind a slower link.** A copy's *pace* is the least rate on its way from the writer; one that waits has none. A receiver takes
//! only a copy of at least [`ENOUGH`] of the best pace there is for it. Where such a one is busy with a slower receiver,
//! the faster one steps in between: it pulls from the copy, and the slower one, which needs little, from it. Who has
//! measured nothing yet counts as the fastest of those that have: nobody steps in before a slow one in its first pull.
//!
//! **Another shard.** A receiver that has told another process since, as that was the shard to it, follows no order upon what it told
//! this one: each order repeats the *view* of the report that it is for. When it tells this one again, it is believed.
//!
//! **What cannot happen.** A copy feeds two; a circle (whoever has lost its feeder is never granted one that pulls from it,
//! however many stand between).

use std::collections::{BTreeMap, VecDeque};

use super::message::State;
use super::Process;

/// A pace that is at least this share is as good: rates are measured, and of equal links one that two pulls have shared
/// measures half.
const ENOUGH: f64 = 0.4;

#[derive(Debug, Default)]
pub(crate) struct Copies {
    copies: BTreeMap<Process, Copy>,
    /// Who waits for a feeder, in order; those that others pull from come first.
    waiting: VecDeque<Process>,
    published: u64,
}

#[derive(Debug)]
struct Copy {
    state: State,
    /// In payload bytes per second, if it has measured that.
    rate: Option<u64>,
    fed_by: Option<Process>,
    feeds: Option<Process>,
    /// Counts in the order in which copies became readable.
    since: u64,
    /// The view of its latest report; what was granted upon an earlier one it does not follow.
    view: u32,
}

impl Copy {
    fn is_readable(&self) -> bool {
        self.state != State::Wanted
    }

    fn needs_feeder(&self) -> bool {
        matches!(self.state, State::Wanted | State::Receiving)
    }
}

/// Pull from the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) receiver: Process,
    pub(crate) from: Process,
    /// The view of the receiver's latest report.
    pub(crate) view: u32,
}

impl Copies {
    /// A process has so much. `fed_by` counts only for one that was not known here, or has told another shard since.
    pub(crate) fn update(
        &mut self,
        process: Process,
        state: State,
        rate: Option<u64>,
        (fed_by, view): (Option<Process>, u32),
    ) {
        let since = self.published;
        self.believe(process, fed_by, view);
        // It may be known as a feeder before it is known itself.
        let feeds = self.copies.iter().find(|(_, copy)| copy.fed_by == Some(process)).map(|(&fed, _)| fed);
        let copy = self.copies.entry(process).or_insert_with(|| {
            let state = State::Wanted;
            Copy { state, rate, fed_by, feeds, since, view }
        });
        if state != State::Wanted && !copy.is_readable() {
            copy.since = since;
            self.published += 1;
        }
        let was_complete = copy.state == State::Complete;
        copy.state = if was_complete { State::Complete } else { state };
        copy.rate = rate;
        match (copy.needs_feeder(), copy.fed_by) {
            (false, _) => self.stop_feeding(process),
            (true, Some(feeder)) => self.adopt(process, feeder),
            (true, None) if !self.waiting.contains(&process) => {
                if state == State::Wanted {
                    self.waiting.push_back(process)
                } else {
                    self.waiting.push_front(process)
                }
            }
            (true, None) => {}
        }
    }

    /// Another process was the shard of this one meanwhile: what is known here of who feeds it gives way to what it says.
    fn believe(&mut self, process: Process, fed_by: Option<Process>, view: u32) {
        let Some(copy) = self.copies.get_mut(&process).filter(|copy| copy.view < view) else { return };
        copy.view = view;
        if copy.fed_by != fed_by {
            self.stop_feeding(process);
            if let Some(copy) = self.copies.get_mut(&process) {
                copy.fed_by = fed_by;
            }
        }
    }

    /// A receiver pulls from a feeder already, which is busy with it, if it is known.
    fn adopt(&mut self, process: Process, feeder: Process) {
        if let Some(copy) = self.copies.get_mut(&feeder) {
            copy.feeds.get_or_insert(process);
        }
    }

    /// The least rate that any of them has measured.
    pub(crate) fn least_rate(&self) -> Option<u64> {
        self.copies.values().filter_map(|copy| copy.rate).min().map(|rate| rate.max(1))
    }

    /// A copy is there no more; who pulled from it waits for another, before all others.
    pub(crate) fn remove(&mut self, process: Process) {
        self.waiting.retain(|&waits| waits != process);
        self.stop_feeding(process);
        self.copies.remove(&process);
        let orphans: Vec<Process> = self
            .copies
            .iter()
            .filter(|(_, copy)| copy.fed_by == Some(process))
            .map(|(&orphan, _)| orphan)
            .collect();
        for orphan in orphans {
            self.orphan(orphan);
        }
    }

    fn orphan(&mut self, process: Process) {
        if let Some(copy) = self.copies.get_mut(&process) {
            copy.fed_by = None;
            if copy.needs_feeder() && !self.waiting.contains(&process) {
                self.waiting.push_front(process);
            }
        }
    }

    /// A receiver needs no feeder any more: what fed it is free.
    fn stop_feeding(&mut self, process: Process) {
        self.waiting.retain(|&waits| waits != process);
        let feeder = self.copies.get_mut(&process).and_then(|copy| copy.fed_by.take());
        if let Some(feeder) = feeder.and_then(|feeder| self.copies.get_mut(&feeder)) {
            if feeder.feeds == Some(process) {
                feeder.feeds = None;
            }
        }
    }

    /// The next that is granted a copy; one that steps in between makes two grants of it.
    ///
    /// Cost: `n log n` for `n` copies, and for each that waits as much as copies are free.
    pub(crate) fn grant(&mut self) -> Option<Vec<Grant>> {
        if self.waiting.is_empty() {
            return None;
        }
        let view = View::of(self);
        let mut waiting = self.waiting.iter().enumerate();
        let (place, receiver, from) =
            waiting.find_map(|(at, &receiver)| Some((at, receiver, view.choose(receiver)?)))?;
        self.waiting.remove(place);
        let displaced = self.connect(receiver, from);
        let grant = |receiver, from| Grant { receiver, from, view: self.copies[&receiver].view };
        let behind = displaced.map(|behind| grant(behind, receiver));
        Some(std::iter::once(grant(receiver, from)).chain(behind).collect())
    }

    /// Returns who pulled from the feeder so far, and pulls from the receiver now.
    fn connect(&mut self, receiver: Process, from: Process) -> Option<Process> {
        let behind = self.copies.get_mut(&from).and_then(|copy| copy.feeds.replace(receiver));
        if let Some(copy) = self.copies.get_mut(&receiver) {
            copy.fed_by = Some(from);
            if behind.is_some() {
                copy.feeds = behind;
            }
        }
        if let Some(copy) = behind.and_then(|behind| self.copies.get_mut(&behind)) {
            copy.fed_by = Some(receiver);
        }
        behind
    }

    /// What is there is void; all but `writer` have to hear of it.
    pub(crate) fn restart(&mut self, writer: Process) -> Vec<Process> {
        for copy in self.copies.values_mut().filter(|copy| copy.state == State::Receiving) {
            copy.state = State::Wanted;
        }
        self.copies.keys().copied().filter(|&process| process != writer).collect()
    }

    /// Whoever waits, once the object itself can be the answer.
    pub(crate) fn take_waiting(&mut self) -> Vec<Process> {
        self.waiting.drain(..).collect()
    }

    /// A receiver makes the object itself from now on.
    pub(crate) fn become_writer(&mut self, process: Process) {
        self.stop_feeding(process);
        if let Some(copy) = self.copies.get_mut(&process) {
            copy.state = if copy.is_readable() { State::Writing } else { State::Wanted };
        }
    }

    /// Everyone with a copy, or who wants one.
    pub(crate) fn processes(&self) -> impl Iterator<Item = Process> + '_ {
        self.copies.keys().copied()
    }

    /// The processes that are sources: whoever watches for one learns of these.
    pub(crate) fn sources(&self) -> impl Iterator<Item = Process> + '_ {
        let is_source = |copy: &Copy| matches!(copy.state, State::Complete | State::Writing);
        self.copies.iter().filter(move |(_, copy)| is_source(copy)).map(|(&process, _)| process)
    }

    /// Who would take the place of `writer`: who pulls from it, else who has waited longest.
    pub(crate) fn heir(&self, writer: Process) -> Option<Process> {
        let fed = self.copies.get(&writer).and_then(|copy| copy.feeds);
        fed.or_else(|| self.waiting.iter().copied().find(|&process| process != writer))
    }
}

/// What is looked up again and again for one grant.
struct View<'a> {
    of: &'a Copies,
    /// The rate at which each copy grows, or can be read if it is complete.
    paces: BTreeMap<Process, u64>,
    /// Readable copies that feed nobody; and those that feed someone, if links are uneven.
    free: Vec<Process>,
    busy: Vec<Process>,
    best: u64,
    /// The rate of who has measured none.
    guess: u64,
}

impl View<'_> {
    fn of(copies: &Copies) -> View<'_> {
        let rates = || copies.copies.values().filter_map(|copy| copy.rate);
        let guess = rates().max().unwrap_or(1);
        let is_uneven = rates().min().unwrap_or(guess) as f64 <= guess as f64 * ENOUGH;
        let paces = paces(&copies.copies, guess);
        let readable = || copies.copies.iter().filter(|(_, copy)| copy.is_readable());
        let busy = readable()
            .filter(|(_, copy)| is_uneven && copy.feeds.is_some())
            .map(|(&process, _)| process)
            .collect();
        let free = readable().filter(|(_, copy)| copy.feeds.is_none()).map(|(&process, _)| process).collect();
        let best = readable().map(|(process, _)| paces[process]).max().unwrap_or(0);
        View { of: copies, paces, free, busy, best, guess }
    }

    /// The copy for a receiver: free and fast, or busy with one that is slower. Complete ones first, then the fastest, then
    /// the oldest.
    fn choose(&self, receiver: Process) -> Option<Process> {
        let feeds = self.of.copies.get(&receiver)?.feeds;
        let rate = |process: &Process| self.of.copies[process].rate.unwrap_or(self.guess);
        let fits = |process: Process| !self.may_be_behind(process, receiver);
        let best = match feeds {
            None => self.best,
            Some(_) => {
                self.readable().filter(|&process| fits(process)).map(|process| self.paces[&process]).max()?
            }
        };
        let enough = rate(&receiver).min(best) as f64 * ENOUGH;
        let is_enough = |process: &Process| fits(*process) && self.paces[process] as f64 >= enough;
        let order = |process: &Process| {
            let copy = &self.of.copies[process];
            (copy.state == State::Complete, self.paces[process], std::cmp::Reverse(copy.since))
        };
        let free = self.free.iter().copied().filter(is_enough).max_by_key(order);
        free.or_else(|| {
            let is_slow = |process: &Process| (rate(process) as f64) < rate(&receiver) as f64 * ENOUGH;
            let feeds_slow =
                |process: &Process| self.of.copies[process].feeds.is_some_and(|fed| is_slow(&fed));
            let open = self.busy.iter().copied().filter(|_| feeds.is_none()).filter(feeds_slow);
            open.filter(is_enough).max_by_key(order)
        })
    }

    fn readable(&self) -> impl Iterator<Item = Process> + '_ {
        self.of.copies.iter().filter(|(_, copy)| copy.is_readable()).map(|(&process, _)| process)
    }

    /// Does `process` get what `of` has, however many stand between? It may, where one of them has not reported yet.
    fn may_be_behind(&self, process: Process, of: Process) -> bool {
        let mut at = process;
        for _ in 0..=self.of.copies.len() {
            match self.of.copies.get(&at) {
                Some(copy) if at != of => match copy.fed_by {
                    Some(feeder) => at = feeder,
                    None => return false,
                },
                _ => return true,
            }
        }
        true
    }
}

fn paces(copies: &BTreeMap<Process, Copy>, guess: u64) -> BTreeMap<Process, u64> {
    let mut paces = BTreeMap::new();
    for &process in copies.keys() {
        let mut way = Vec::new();
        let mut at = Some(process);
        while let Some(here) = at.filter(|here| !paces.contains_key(here) && way.len() <= copies.len()) {
            way.push(here);
            at = copies.get(&here).and_then(|copy| copy.fed_by);
        }
        let mut pace = at.and_then(|known| paces.get(&known).copied()).unwrap_or(u64::MAX);
        for here in way.into_iter().rev() {
            let waits = |copy: &Copy| copy.needs_feeder() && copy.fed_by.is_none();
            let own = |copy: &Copy| if waits(copy) { 0 } else { copy.rate.unwrap_or(guess) };
            pace = pace.min(copies.get(&here).map_or(u64::MAX, own));
            paces.insert(here, pace);
        }
    }
    paces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(copies: &mut Copies) -> Vec<(Process, Process)> {
        let all = std::iter::from_fn(|| copies.grant()).flatten();
        all.map(|grant| (grant.receiver, grant.from)).collect()
    }

    fn copies(states: &[(Process, State, u64)]) -> Copies {
        let mut copies = Copies::default();
        states
            .iter()
            .for_each(|&(process, state, rate)| copies.update(process, state, Some(rate), (None, 0)));
        copies
    }

    #[test]
    fn a_copy_feeds_one_and_a_receiver_counts_from_its_first_block_on() {
        let mut copies = copies(&[
            (0, State::Complete, 10),
            (1, State::Wanted, 10),
            (2, State::Wanted, 10),
            (3, State::Wanted, 10),
        ]);
        assert_eq!(grants(&mut copies), [(1, 0)]);
        copies.update(1, State::Receiving, Some(10), (None, 0));
        assert_eq!(grants(&mut copies), [(2, 1)]);
        copies.update(1, State::Complete, Some(10), (None, 0));
        assert_eq!(grants(&mut copies), [(3, 0)]);
    }

    #[test]
    fn who_loses_its_feeder_takes_that_ones_feeder() {
        let mut copies = copies(&[(1, State::Complete, 10), (2, State::Wanted, 10)]);
        assert_eq!(grants(&mut copies), [(2, 1)]);
        copies.update(2, State::Receiving, Some(10), (None, 0));
        copies.update(4, State::Wanted, Some(10), (None, 0));
        assert_eq!(grants(&mut copies), [(4, 2)]);
        copies.remove(2);
        assert_eq!(grants(&mut copies), [(4, 1)]);
    }

    #[test]
    fn a_faster_receiver_steps_in_before_a_slower_one() {
        let mut copies = copies(&[(0, State::Complete, 100), (1, State::Wanted, 10)]);
        assert_eq!(grants(&mut copies), [(1, 0)]);
        copies.update(1, State::Receiving, Some(10), (None, 0));
        copies.update(2, State::Wanted, Some(100), (None, 0));
        assert_eq!(grants(&mut copies), [(2, 0), (1, 2)]);
        copies.update(3, State::Wanted, Some(100), (None, 0));
        assert_eq!(grants(&mut copies), []);
        copies.update(2, State::Receiving, Some(100), (None, 0));
        assert_eq!(grants(&mut copies), [(3, 2), (1, 3)]);
    }

    #[test]
    fn who_has_measured_nothing_steps_in_before_nobody_and_is_not_passed_over() {
        let mut copies = Copies::default();
        copies.update(0, State::Complete, None, (None, 0));
        copies.update(1, State::Receiving, Some(10), (Some(0), 0));
        copies.update(2, State::Wanted, None, (None, 0));
        assert_eq!(grants(&mut copies), [(2, 1)]);
        copies.update(2, State::Receiving, None, (None, 0));
        copies.update(3, State::Wanted, Some(12), (None, 0));
        assert_eq!((grants(&mut copies), copies.least_rate()), (vec![(3, 2)], Some(10)));
    }

    #[test]
    fn a_shard_that_is_one_again_believes_what_it_is_told_of_feeders() {
        let mut copies = copies(&[(0, State::Complete, 10), (1, State::Wanted, 10)]);
        assert_eq!(grants(&mut copies), [(1, 0)]);
        copies.update(1, State::Receiving, Some(10), (None, 1)); // another shard let it pull from one that has died
        assert_eq!(grants(&mut copies), [(1, 0)]);
    }

    #[test]
    fn a_new_shard_makes_no_circle_of_copies_that_it_does_not_know_yet() {
        let mut copies = Copies::default();
        copies.update(1, State::Receiving, Some(10), (Some(0), 0));
        copies.update(2, State::Receiving, Some(10), (None, 0));
        assert_eq!(grants(&mut copies), []); // 0 may pull from 2
        copies.update(0, State::Receiving, Some(10), (Some(2), 0));
        assert_eq!(grants(&mut copies), []);
        copies.update(3, State::Complete, Some(10), (None, 0));
        assert_eq!(grants(&mut copies), [(2, 3)]);
    }
}
