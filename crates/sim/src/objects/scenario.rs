//! Runs drawn from a seed: who puts, gets and sums what, who comes late, who dies, and what must come of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tweed_proto::objects::{shard_of, Mode, ObjectId, Process, Rule};
use tweed_rng::{mix, Rng};
use tweed_schedule::{Link, Rank, Topology};

use super::world::run_unchecked;
use super::{run, Cut, Outcome, Setup, What};

const RATE: u64 = 1_000_000_000;

/// What a run showed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Gets and reduces that ended.
    pub ended: u64,
    /// Gets and reduces that could not end, as what they need has died.
    pub lost: u64,
    /// Processes that died in the run.
    pub deaths: u64,
    /// Links that broke in the run.
    pub cuts: u64,
    /// Results whose ranges sum different ids.
    pub mixed: u64,
    /// Reduces whose log the checker proved.
    pub proven: u64,
}

impl Report {
    /// Adds the counts of another report.
    pub fn add(&mut self, other: Report) {
        self.ended += other.ended;
        self.lost += other.lost;
        self.deaths += other.deaths;
        self.cuts += other.cuts;
        self.mixed += other.mixed;
        self.proven += other.proven;
    }
}

/// The run of a seed: two to twelve processes, one object or one sum, late arrivals, up to three deaths, uneven links,
/// of which up to three break, and one process that may stand still for a while.
pub fn scenario(seed: u64) -> Setup {
    let mut rng = Rng::new(mix(seed));
    let ranks = 2 + rng.below(11) as u32;
    let mut setup = Setup::new(topology(&mut rng, ranks));
    setup.seed = seed;
    setup.message = Duration::from_micros(rng.below(20));
    setup.jitter = Duration::from_micros(rng.below(100));
    setup.detection = Duration::from_micros(200 + rng.below(2000));
    let size = [1000, 65_536, 65_537, 1 << 20, 3_000_000][rng.index(5)];
    // Everything happens within about twice the time that the bytes take.
    let span = Duration::from_nanos(2 * size + 500_000);
    let moment = |rng: &mut Rng| Duration::from_nanos(rng.below(span.as_nanos() as u64));
    let deaths = [0, 0, 1, 1, 2, 3][rng.index(6)].min(ranks - 1);
    for _ in 0..deaths {
        let (rank, at) = (rng.below(ranks.into()) as Rank, moment(&mut rng));
        setup.deaths.insert(rank, at);
    }
    match rng.below(4) {
        0 => add_broadcast(&mut setup, &mut rng, ranks, size, span),
        _ => add_reduce(&mut setup, &mut rng, ranks, size, span),
    }
    add_cuts(&mut setup, ranks, span);
    add_pause(&mut setup, ranks, span);
    setup
}

/// One that does not die stands still: what it is to call, it calls later.
fn add_pause(setup: &mut Setup, ranks: u32, span: Duration) {
    let mut rng = Rng::new(mix(setup.seed ^ 0x0070_6175_7365));
    let rank = rng.below(ranks.into()) as Rank;
    if rng.bernoulli(0.4) && !setup.deaths.contains_key(&rank) {
        let pause = (span.mul_f64(1.5 * rng.uniform()), span.mul_f64(3.0 * rng.uniform().powi(3)));
        setup.pauses.insert(rank, pause);
    }
}

/// They are drawn by themselves: a seed is the same run but for them.
fn add_cuts(setup: &mut Setup, ranks: u32, span: Duration) {
    let mut rng = Rng::new(mix(setup.seed ^ 0x6375_7473));
    for _ in 0..[0, 0, 1, 2, 3][rng.index(5)] {
        let one = rng.below(ranks.into()) as Rank;
        let other = (one + 1 + rng.below(u64::from(ranks) - 1) as Rank) % ranks;
        let (at, lasts) = (span.mul_f64(1.5 * rng.uniform()), span.mul_f64(rng.uniform().powi(3)));
        setup.cuts.push(Cut { pair: (one, other), at, lasts });
    }
}

/// As `scenario`, and up to three of the processes come while all that happens.
pub fn with_newcomers(seed: u64) -> Setup {
    let mut setup = scenario(seed);
    let mut rng = Rng::new(mix(seed ^ 0x6a6f_696e));
    let ranks = setup.topology.ranks();
    let last = setup.calls.iter().map(|call| call.at).max().unwrap_or_default();
    for _ in 0..=rng.below(3).min(u64::from(ranks) - 2) {
        setup.joins.insert(rng.below(ranks.into()) as Rank, last.mul_f64(1.2 * rng.uniform()));
    }
    for call in &mut setup.calls {
        call.at = call.at.max(setup.joins.get(&call.process).copied().unwrap_or_default());
    }
    setup
}

fn topology(rng: &mut Rng, ranks: u32) -> Arc<Topology> {
    let latency = Duration::from_micros(10 + rng.below(100));
    if rng.below(3) > 0 {
        return Arc::new(Topology::complete(ranks, Link::new(RATE, latency)));
    }
    let rates: Vec<u64> = (0..ranks).map(|_| [RATE, RATE, RATE / 3, RATE / 10][rng.index(4)]).collect();
    Arc::new(behind_switch(&rates, latency))
}

/// Hosts behind one switch, each with links of its own rate.
pub fn behind_switch(rates: &[u64], latency: Duration) -> Topology {
    let switch = rates.len() as u32;
    let links = (0..switch).zip(rates).flat_map(|(host, &rate)| {
        let link = Link::new(rate, latency / 2);
        [((host, switch), link), ((switch, host), link)]
    });
    Topology::from_links(switch, links)
}

fn id(rng: &mut Rng) -> ObjectId {
    ObjectId(u128::from(rng.draw()) << 64 | u128::from(rng.draw()))
}

fn add_broadcast(setup: &mut Setup, rng: &mut Rng, ranks: u32, size: u64, span: Duration) {
    let (object, origin) = (id(rng), rng.below(ranks.into()) as Rank);
    setup.call(span.mul_f64(rng.uniform()), origin, What::Put { object, size });
    for rank in (0..ranks).filter(|&rank| rank != origin) {
        setup.call(span.mul_f64(rng.uniform()), rank, What::Get { object });
    }
}

fn add_reduce(setup: &mut Setup, rng: &mut Rng, ranks: u32, size: u64, span: Duration) {
    let target = id(rng);
    let together = rng.bernoulli(0.3);
    let mut ids = Vec::new();
    for _ in 0..1 + rng.below(u64::from(ranks) + 4) {
        let (object, rank) = (id(rng), rng.below(ranks.into()) as Rank);
        let at = if together { Duration::ZERO } else { span.mul_f64(rng.uniform()) };
        ids.push(object);
        setup.call(at, rank, What::Put { object, size });
        // The task of a process that dies is often run once more, somewhere else.
        if setup.deaths.contains_key(&rank) && rng.bernoulli(0.5) {
            let again = setup.deaths[&rank] + setup.detection * 2 + span.mul_f64(rng.uniform() / 2.0);
            setup.call(again, rng.below(ranks.into()) as Rank, What::Put { object, size });
        }
    }
    let count = match rng.bernoulli(0.5) {
        true => ids.len() as u32,
        false => 1 + rng.below(ids.len() as u64) as u32,
    };
    let mode = if rng.bernoulli(0.5) { Mode::Whole } else { Mode::Ranges };
    let rule = [Rule::Measured, Rule::Hybrid, Rule::Degree][rng.index(3)];
    let caller = rng.below(ranks.into()) as Rank;
    setup.call(span.mul_f64(rng.uniform()), caller, What::Reduce { target, ids, count, mode, rule });
    if rng.bernoulli(0.5) {
        for rank in (0..ranks).filter(|&rank| rank != caller) {
            setup.call(span.mul_f64(rng.uniform()), rank, What::Get { object: target });
        }
    }
}

/// Runs it and says what is wrong about what came of it.
pub fn verify(setup: &Setup) -> Result<Report, String> {
    let outcome = run(setup).map_err(|error| error.to_string())?;
    let facts = Facts::of(setup, &outcome);
    let mut report = Report { ended: outcome.got.len() as u64, ..Report::default() };
    (report.deaths, report.cuts) = (setup.deaths.len() as u64, setup.cuts.len() as u64);
    for &(process, object) in &outcome.waiting {
        if let Some(why) = facts.must_end(process, object) {
            return Err(format!("process {process} waits for ever for {object}: {why}"));
        }
        report.lost += 1;
    }
    if let Some((process, object, why)) = outcome.failed.first() {
        return Err(format!("process {process} failed to get {object}: {why}"));
    }
    facts.check_included(&mut report)?;
    for log in outcome.logs.iter().filter(|log| log.has_all) {
        let Some(included) = outcome.included.get(&log.target) else { continue };
        // Nobody adds anything to a part of which all sources died; there is nothing to prove about it.
        if included.iter().all(|part| !part.1.is_empty()) {
            log.schedule(included).map_err(|error| format!("the log of {}: {error}", log.target))?;
            report.proven += 1;
        }
    }
    Ok(report)
}

/// What a run was about, and what is left at its end.
struct Facts<'a> {
    setup: &'a Setup,
    outcome: &'a Outcome,
    /// The processes that had all of each object.
    had: BTreeMap<ObjectId, BTreeSet<Rank>>,
}

impl Facts<'_> {
    fn of<'a>(setup: &'a Setup, outcome: &'a Outcome) -> Facts<'a> {
        let mut had: BTreeMap<ObjectId, BTreeSet<Rank>> = BTreeMap::new();
        for call in &setup.calls {
            let was_alive = setup.deaths.get(&call.process).is_none_or(|&died| died > call.at);
            if let What::Put { object, .. } = call.what {
                had.entry(object).or_default().extend(was_alive.then_some(call.process));
            }
        }
        for &(process, object) in outcome.got.keys() {
            had.entry(object).or_default().insert(process);
        }
        Facts { setup, outcome, had }
    }

    /// Someone who lives has all of it.
    fn is_left(&self, object: ObjectId) -> bool {
        let has = self.had.get(&object).into_iter().flatten();
        has.into_iter().any(|process| !self.setup.deaths.contains_key(process))
    }

    /// Someone who had all of it died.
    fn has_died(&self, object: ObjectId) -> bool {
        self.had.get(&object).into_iter().flatten().any(|process| self.setup.deaths.contains_key(process))
    }

    /// Why a call must have an end, if so.
    fn must_end(&self, process: Rank, object: ObjectId) -> Option<String> {
        if self.is_left(object) {
            return Some("someone who lives has all of it".into());
        }
        let reduce = self.setup.calls.iter().find_map(|call| match &call.what {
            What::Reduce { target, ids, count, mode, .. } if *target == object => {
                Some((call.process, ids, *count, *mode))
            }
            _ => None,
        });
        let (caller, ids, count, mode) = reduce?;
        // In ranges, what was summed in part does not return.
        let may_return = |id: ObjectId| mode == Mode::Whole || !self.has_died(id);
        let left = ids.iter().filter(|&&id| self.is_left(id) && may_return(id)).count();
        // Where the destination is dead, so may be what knew of the plan; or it was complete, and nobody else had all.
        let is_dead = self.setup.deaths.contains_key(&caller);
        let all: BTreeSet<Process> = (0..self.setup.topology.ranks()).map(u64::from).collect();
        let early = all.iter().copied().filter(|&process| !self.setup.joins.contains_key(&(process as Rank)));
        let early: BTreeSet<Process> = early.collect();
        let is_plan_lost = || {
            let shards = [&all, &early].map(|processes| shard_of(object, processes));
            // A newcomer that is the shard knows nothing of the plan but from the destination.
            shards[0] != shards[1]
                || shards.into_iter().flatten().any(|shard| self.setup.deaths.contains_key(&(shard as Rank)))
        };
        let is_over = self.outcome.got.contains_key(&(caller, object))
            || self.outcome.logs.iter().any(|log| log.target == object);
        let was_called = self.setup.deaths.get(&caller).is_none_or(|&died| {
            let call = self.setup.calls.iter().find(|call| matches!(call.what, What::Reduce { .. }));
            call.is_some_and(|call| call.at < died) && !self.outcome.unheard.contains(&caller)
        });
        if left >= count as usize && was_called && !(is_dead && (is_plan_lost() || is_over)) {
            return Some(format!("{left} of {count} sources live (asked by {process}, called by {caller})"));
        }
        None
    }

    fn check_included(&self, report: &mut Report) -> Result<(), String> {
        let reduces = self.setup.calls.iter().filter_map(|call| match &call.what {
            What::Reduce { target, ids, count, mode, .. } => Some((target, ids, *count as usize, *mode)),
            _ => None,
        });
        for (target, ids, count, mode) in reduces {
            let Some(included) = self.outcome.included.get(target) else { continue };
            let fits = |part: &Vec<ObjectId>| match mode {
                Mode::Whole => part.len() == count && included.len() == 1,
                Mode::Ranges => part.len() <= count,
            };
            let known: BTreeSet<&ObjectId> = ids.iter().collect();
            if !included.iter().all(|(_, part)| fits(part) && part.iter().all(|id| known.contains(id))) {
                return Err(format!("{target} is said to sum {included:?}, of {count}, {mode:?}"));
            }
            report.mixed += u64::from(included.len() > 1);
        }
        Ok(())
    }
}

/// What happens in a run, for people.
pub fn describe(setup: Setup) -> String {
    let setup = Setup { trace: true, ..setup };
    let mut lines = vec![format!("{} processes, detection {:?}", setup.topology.ranks(), setup.detection)];
    let mut calls = setup.calls.clone();
    calls.sort_by_key(|call| call.at);
    lines.extend(calls.iter().map(|call| format!("{:?} process {}: {:?}", call.at, call.process, call.what)));
    lines.extend(setup.joins.iter().map(|(rank, at)| format!("{at:?} process {rank} comes")));
    lines.extend(setup.deaths.iter().map(|(rank, at)| format!("{at:?} process {rank} dies")));
    lines.extend(
        setup
            .pauses
            .iter()
            .map(|(rank, (at, lasts))| format!("{at:?} process {rank} stands still for {lasts:?}")),
    );
    lines.extend(
        setup.cuts.iter().map(|Cut { pair, at, lasts }| format!("{at:?} no link of {pair:?} for {lasts:?}")),
    );
    match run_unchecked(&setup) {
        Ok((outcome, wrong)) => {
            lines.extend(outcome.trace.iter().cloned());
            lines.extend(
                outcome.got.iter().map(|((rank, object), at)| format!("{at:?} process {rank} has {object}")),
            );
            lines.extend(
                outcome.waiting.iter().map(|(rank, object)| format!("process {rank} waits for {object}")),
            );
            lines.extend(outcome.included.iter().map(|(target, ids)| format!("{target} sums {ids:?}")));
            lines.extend(wrong.map(|error| error.to_string()));
        }
        Err(error) => lines.push(error.to_string()),
    }
    lines.join("\n")
}
