//! Who is to blame: from what each rank answers to the rank, or the link, that all the others wait for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tweed_schedule::Rank;

/// What a rank answers when it is asked how it stands in an operation. Ranks are those of the operation's group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// How the operation stands there.
    pub stand: Standing,
    /// Who has answered it on this operation since it asked.
    #[serde(rename = "heard")]
    pub answered: BTreeSet<Rank>,
    /// Who owes it an answer.
    pub missed: BTreeSet<Rank>,
    /// The more urgent operation whose values it sends before those of this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sends_first: Option<String>,
}

/// How a rank stands in an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    /// It has called it, and waits.
    Inside {
        /// The ranks that it waits for.
        waits_for: Vec<Rank>,
        /// How long nothing has come in.
        quiet: Duration,
    },
    /// It has ended there.
    Done,
    /// It has not called it.
    Elsewhere {
        /// The operation of the group that ended there last, and how long ago.
        last: Option<(String, Duration)>,
        /// What it waits in instead.
        call: Option<Call>,
        /// What its main thread does.
        activity: Activity,
    },
}

/// A call that a rank waits in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The operation that was called.
    pub label: String,
    /// How long it has waited.
    pub since: Duration,
    /// The ranks that it waits for; empty if it belongs to another group.
    pub waits_for: Vec<Rank>,
}

/// What a process's main thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Activity {
    /// It uses a core.
    Computes,
    /// It sleeps, or waits for another thread or process.
    Sleeps,
    /// It waits for a disk.
    Disk,
    /// The system does not say.
    Unknown,
}

/// Why somebody is to blame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It answers nobody: it is stopped, or its host or link is down.
    Silent,
    /// It is alive and has not called the operation.
    Elsewhere {
        /// Its last operation, as [`Standing::Elsewhere`] has it.
        last: Option<(String, Duration)>,
        /// The call that it is in, as [`Standing::Elsewhere`] has it.
        call: Option<Call>,
        /// What it does, as [`Standing::Elsewhere`] has it.
        activity: Activity,
    },
    /// It is alive, and nothing gets from it to that rank.
    Link {
        /// The rank that hears nothing.
        to: Rank,
    },
    /// Values still flow, only slowly; that rank is furthest behind.
    Slow {
        /// Who waits for them.
        to: Rank,
    },
}

/// A rank and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Culprit {
    /// The rank that holds the others up.
    pub rank: Rank,
    /// Why it holds them up.
    pub reason: Reason,
}

/// What was found out about an operation that is late.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blame {
    /// Whom everything waits for, as far as it was found; ascending.
    pub culprits: Vec<Culprit>,
    /// Who waits for whom, as far as it leads from the rank that asked.
    pub waits: BTreeMap<Rank, Vec<Rank>>,
    /// Ranks that would be furthest behind, had they nothing more urgent to send: what that is. They are not to blame.
    pub sends_first: BTreeMap<Rank, String>,
}

impl Blame {
    /// Follows the waits from rank `me` on. `reports` holds the asker's own; who is missing has not answered.
    /// What has come in within `fresh` shows that values still flow.
    pub fn find(me: Rank, reports: &BTreeMap<Rank, Report>, fresh: Duration) -> Blame {
        let mut search = Search {
            reports,
            waits: BTreeMap::new(),
            culprits: BTreeMap::new(),
            sends_first: BTreeMap::new(),
        };
        search.follow(me);
        if search.culprits.is_empty() {
            search.take_elsewhere();
        }
        if search.culprits.is_empty() {
            search.take_slowest(fresh);
        }
        let culprits = search.culprits.into_iter().map(|(rank, reason)| Culprit { rank, reason });
        Blame { culprits: culprits.collect(), waits: search.waits, sends_first: search.sends_first }
    }

    /// The first of the ranks that answered and wait: one of all is enough to speak.
    pub fn speaker(reports: &BTreeMap<Rank, Report>) -> Option<Rank> {
        reports.iter().find(|(_, r)| matches!(r.stand, Standing::Inside { .. })).map(|(&rank, _)| rank)
    }
}

struct Search<'a> {
    reports: &'a BTreeMap<Rank, Report>,
    waits: BTreeMap<Rank, Vec<Rank>>,
    culprits: BTreeMap<Rank, Reason>,
    sends_first: BTreeMap<Rank, String>,
}

impl Search<'_> {
    fn follow(&mut self, me: Rank) {
        let mut next = VecDeque::from([me]);
        while let Some(rank) = next.pop_front() {
            let awaited = self.reports.get(&rank).map(Report::waits_for).unwrap_or_default();
            if awaited.is_empty() || self.waits.contains_key(&rank) {
                continue;
            }
            for &other in &awaited {
                match self.judge(rank, other) {
                    Some(reason) => drop(self.culprits.insert(other, reason)),
                    None => next.push_back(other),
                }
            }
            self.waits.insert(rank, awaited);
        }
    }

    /// What is wrong with `rank`, for which `waiter` waits; `None` if it waits itself.
    fn judge(&self, waiter: Rank, rank: Rank) -> Option<Reason> {
        let Some(report) = self.reports.get(&rank) else {
            let answered = |r: &&Report| r.answered.contains(&rank);
            let reached = self.reports.values().any(|r| answered(&r));
            return Some(if reached { Reason::Link { to: waiter } } else { Reason::Silent });
        };
        let deaf = self.reports.get(&waiter).is_some_and(|r| r.missed.contains(&rank));
        match &report.stand {
            Standing::Done => Some(Reason::Link { to: waiter }),
            _ if deaf => Some(Reason::Link { to: waiter }),
            _ if !report.waits_for().is_empty() => None,
            other => other.elsewhere(),
        }
    }

    /// All wait in a circle: those of them that do so in another call.
    fn take_elsewhere(&mut self) {
        let elsewhere = |&rank: &Rank| Some((rank, self.reports.get(&rank)?.stand.elsewhere()?));
        self.culprits = self.waits.keys().filter_map(elsewhere).collect();
    }

    /// All have called it and wait in a circle: the link into the rank that has heard nothing for longest, unless the other
    /// end sends something more urgent first.
    fn take_slowest(&mut self, fresh: Duration) {
        let quiet = |rank: &Rank| match self.reports.get(rank).map(|r| &r.stand) {
            Some(&Standing::Inside { quiet, .. }) => quiet,
            _ => Duration::ZERO,
        };
        let flows = self.waits.keys().any(|rank| quiet(rank) < fresh);
        let Some((&to, from)) = self.waits.iter().max_by_key(|(rank, _)| quiet(rank)) else { return };
        let reason = if flows { Reason::Slow { to } } else { Reason::Link { to } };
        for &rank in from {
            match self.reports.get(&rank).and_then(|report| report.sends_first.clone()) {
                Some(first) => drop(self.sends_first.insert(rank, first)),
                None => drop(self.culprits.insert(rank, reason.clone())),
            }
        }
    }
}

impl Standing {
    fn elsewhere(&self) -> Option<Reason> {
        let Standing::Elsewhere { last, call, activity } = self.clone() else { return None };
        Some(Reason::Elsewhere { last, call, activity })
    }
}

impl Report {
    /// A report of a rank that has asked nobody.
    pub fn of(stand: Standing) -> Report {
        Report { stand, answered: BTreeSet::new(), missed: BTreeSet::new(), sends_first: None }
    }

    /// This report, told `later`. What was quiet may have spoken since, so that stays as it was.
    pub fn aged(mut self, later: Duration) -> Report {
        if let Standing::Elsewhere { last, call, .. } = &mut self.stand {
            last.iter_mut().for_each(|(_, ago)| *ago += later);
            call.iter_mut().for_each(|call| call.since += later);
        }
        self
    }

    /// All ranks that it mentions.
    pub fn ranks(&self) -> impl Iterator<Item = Rank> {
        self.waits_for().into_iter().chain(self.answered.clone()).chain(self.missed.clone())
    }

    /// The ranks for which it waits, in this operation or in another of the same group.
    fn waits_for(&self) -> Vec<Rank> {
        match &self.stand {
            Standing::Inside { waits_for, .. } => waits_for.clone(),
            Standing::Done => Vec::new(),
            Standing::Elsewhere { call, .. } => call.as_ref().map_or(Vec::new(), |c| c.waits_for.clone()),
        }
    }
}
