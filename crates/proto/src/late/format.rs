//! The words: rank, host, process, link, operation, since when, who waits, the likely cause, and what to type next.

use std::fmt::Write;
use std::time::Duration;

use tweed_schedule::Rank;

use super::{Activity, Blame, Call, Culprit, Limits, Reason, Usual};

/// More culprits than these are only counted.
const MOST_NAMED: usize = 4;

/// How a rank's process stands, if the asker can see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Process {
    /// The process cannot be seen.
    #[default]
    Unseen,
    /// It was stopped by SIGSTOP, Ctrl-Z or a debugger.
    Stopped,
    /// It runs or sleeps.
    Alive,
}

/// Where a rank lives.
#[derive(Clone, Debug, Default)]
pub struct RankStatus {
    /// The name of its host.
    pub host: String,
    /// Its process id there.
    pub pid: u32,
    /// How the asker reaches it: "shm", or "tcp" and its address.
    pub link: String,
    /// How its process is doing.
    pub process: Process,
}

/// All that the words need besides the blame.
pub struct Context {
    /// The operation that was called.
    pub label: String,
    /// How long the asker has waited.
    pub waited: Duration,
    /// What it went by.
    pub limits: Limits,
    /// How late a step may be, if the user has said.
    pub deadline: Option<Duration>,
    /// How long such an operation takes, if that is known.
    pub usual: Option<Usual>,
    /// All ranks of the group.
    pub ranks: Vec<RankStatus>,
}

impl Context {
    /// One line, while there is still time.
    pub fn warning(&self, blame: &Blame) -> String {
        let Some(first) = blame.culprits.first() else {
            let (late, usually) = (time(self.lateness()), self.usually());
            let first = self.sends_first(blame).next().map_or_else(String::new, |first| format!(": {first}"));
            return format!("tweed: {} is {late} late{usually}{first}", self.label);
        };
        let more = match blame.culprits.len() - 1 {
            0 => String::new(),
            n => format!(" (and {n} more)"),
        };
        let left = time(self.limits.fail.saturating_sub(self.waited));
        let (late, usually, label) = (time(self.lateness()), self.usually(), &self.label);
        let (who, advice) = (self.accuse(first), self.advice(first));
        format!("tweed: {label} is {late} late{usually}: {who}{more}. It fails in {left}. Look: {advice}")
    }

    /// All there is to say, at the end.
    pub fn verdict(&self, blame: &Blame) -> String {
        let mut text = format!("{}: not ended after {}{}", self.label, time(self.waited), self.usually());
        for culprit in blame.culprits.iter().take(MOST_NAMED) {
            let _ = write!(text, "\n  culprit: {}", self.accuse(culprit));
            let _ = write!(text, "\n  next:    {}", self.advice(culprit));
        }
        if let Some(rest) = blame.culprits.len().checked_sub(MOST_NAMED + 1) {
            let _ = write!(text, "\n  and {} more", rest + 1);
        }
        for first in self.sends_first(blame).take(MOST_NAMED) {
            let _ =
                write!(text, "\n  urgent:  {first}; name less as urgent, or allow more time: TWEED_DEADLINE");
        }
        let waits: Vec<String> = blame.waits.iter().map(|(w, on)| format!("{w} for {}", list(on))).collect();
        let _ = write!(text, "\n  waiting: rank {}", shorten(&waits, "; "));
        let _ = write!(text, "\n  limit:   {}", self.limit());
        text
    }

    /// Who sends what before it.
    fn sends_first<'a>(&'a self, blame: &'a Blame) -> impl Iterator<Item = String> + 'a {
        let line = |(&rank, first): (&Rank, &String)| {
            format!("{} sends {first} first, which is more urgent there", self.name(rank))
        };
        blame.sends_first.iter().map(line)
    }

    /// Beyond what is usual.
    fn lateness(&self) -> Duration {
        self.waited.saturating_sub(self.usual.map_or(Duration::ZERO, |u| u.median))
    }

    fn usually(&self) -> String {
        let words = |u: Usual| format!(" (usually {} ± {})", time(u.median), time(u.spread));
        self.usual.map_or_else(String::new, words)
    }

    fn limit(&self) -> String {
        match self.deadline {
            Some(deadline) if self.limits.fail >= deadline => {
                format!("a step may be {} late (TWEED_DEADLINE, Options.deadline)", time(deadline))
            }
            _ => format!("torch's timeout of {}, given to the group or the call", time(self.limits.fail)),
        }
    }

    /// Who, where, and what is wrong.
    fn accuse(&self, culprit: &Culprit) -> String {
        let who = self.name(culprit.rank);
        let waited = time(self.waited);
        match &culprit.reason {
            Reason::Silent => {
                let how = match self.rank_status(culprit.rank).process {
                    Process::Stopped => "is stopped (SIGSTOP, Ctrl-Z or a debugger) and answers nothing",
                    Process::Alive => "is running and does not answer: its host is overloaded, or its engine hangs",
                    Process::Unseen => "answers nothing: it is stopped, or its host or the link to it is down",
                };
                format!("{who} {how}")
            }
            Reason::Elsewhere { last, call, activity } => {
                format!("{who} is alive and has not called it: {}", elsewhere(last, call, *activity))
            }
            Reason::Link { to } => format!(
                "{who} is alive, and nothing from it reaches {} since {waited}: the link between them is cut or blocked",
                self.name(*to)
            ),
            Reason::Slow { to } => {
                let to = self.name(*to);
                format!("values still flow, only too slowly; furthest behind is what {who} sends to {to}")
            }
        }
    }

    /// The command to type next.
    fn advice(&self, culprit: &Culprit) -> String {
        let RankStatus { host, pid, process, .. } = self.rank_status(culprit.rank);
        match &culprit.reason {
            Reason::Silent => match process {
                Process::Stopped => format!("on {host}: kill -CONT {pid}"),
                Process::Alive => format!("on {host}: py-spy dump --native --pid {pid}"),
                Process::Unseen => format!(
                    "on {host}: ps -o pid,stat,etime,args -p {pid} (if STAT is T: kill -CONT {pid}); if {host} cannot be \
                     reached: tweed doctor"
                ),
            },
            Reason::Elsewhere { call: Some(call), .. } if !call.waits_for.is_empty() => {
                format!("compare what these ranks call, and in which order; on {host}: py-spy dump --pid {pid}")
            }
            Reason::Elsewhere { .. } => format!("on {host}: py-spy dump --pid {pid}"),
            Reason::Link { to } => {
                format!("tweed doctor, on {host} and on {}", self.rank_status(*to).host)
            }
            Reason::Slow { .. } => "tweed top; or allow more time: TWEED_DEADLINE".into(),
        }
    }

    fn name(&self, rank: Rank) -> String {
        let RankStatus { host, pid, link, .. } = self.rank_status(rank);
        format!("rank {rank} on {host} (process {pid}, {link})")
    }

    fn rank_status(&self, rank: Rank) -> RankStatus {
        self.ranks.get(rank as usize).cloned().unwrap_or_default()
    }
}

fn elsewhere(last: &Option<(String, Duration)>, call: &Option<Call>, activity: Activity) -> String {
    if let Some(call) = call {
        return format!("it has waited in {} for {}", call.label, time(call.since));
    }
    let does = match activity {
        Activity::Computes => "its main thread computes",
        Activity::Sleeps => "its main thread sleeps or waits for another thread or process",
        Activity::Disk => "its main thread waits for a disk",
        Activity::Unknown => "it does something else",
    };
    match last {
        Some((label, ago)) => format!("{does}; its last call here, {label}, ended {} ago", time(*ago)),
        None => format!("{does}; it has called nothing in this group yet"),
    }
}

fn list(ranks: &[Rank]) -> String {
    shorten(&ranks.iter().map(Rank::to_string).collect::<Vec<_>>(), ", ")
}

fn shorten(words: &[String], between: &str) -> String {
    match words.split_at_checked(16) {
        Some((first, rest)) if !rest.is_empty() => format!("{} and {} more", first.join(between), rest.len()),
        _ => words.join(between),
    }
}

/// Three digits are enough for people.
pub(super) fn time(span: Duration) -> String {
    match span.as_secs_f64() {
        s if s >= 100.0 => format!("{s:.0} s"),
        s if s >= 1.0 => format!("{s:.1} s"),
        s if s >= 1e-3 => format!("{:.0} ms", s * 1e3),
        s => format!("{:.0} µs", s * 1e6),
    }
}
