//! How many callers were turned away, by reason, and now and then a line about it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::framing::Refusal;
use crate::sync::{LockRank, Mutex};

/// No more than one line per reason is printed in this time.
const QUIET: Duration = Duration::from_secs(10);

/// What was turned away so far.
pub(crate) struct Refusals {
    by_reason: Mutex<BTreeMap<&'static str, Tally>>,
}

#[derive(Default)]
struct Tally {
    count: u64,
    printed: u64,
    last: Option<Instant>,
}

impl Default for Refusals {
    fn default() -> Refusals {
        Refusals { by_reason: Mutex::new(LockRank::Refusals, BTreeMap::new()) }
    }
}

impl Refusals {
    /// Counts one; the line to print, if it is time for one.
    fn note(&self, who: &str, refusal: &Refusal, now: Instant) -> Option<String> {
        let mut tallies = self.by_reason.lock();
        let tally = tallies.entry(refusal.reason()).or_default();
        tally.count += 1;
        if tally.last.is_some_and(|last| now.saturating_duration_since(last) < QUIET) {
            return None;
        }
        let unprinted = tally.count - tally.printed - 1;
        (tally.last, tally.printed) = (Some(now), tally.count);
        let more = if unprinted > 0 { format!(" ({unprinted} more like it before)") } else { String::new() };
        Some(format!("tweed: refused a connection from {who}: {refusal}; the run goes on{more}"))
    }

    /// Counts one, and says so now and then.
    pub(crate) fn tell(&self, who: &str, refusal: &Refusal) {
        if let Some(line) = self.note(who, refusal, Instant::now()) {
            crate::stderr::print_line(&line);
        }
    }

    /// How many, by reason.
    pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
        let tallies = self.by_reason.lock();
        tallies.iter().map(|(&reason, tally)| (reason, tally.count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_counted_and_few_are_printed() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(refusals.note("a", &Refusal::Secret, at(0)).unwrap().contains("from a: its secret"));
        assert_eq!(refusals.note("b", &Refusal::Secret, at(1)), None);
        assert!(refusals.note("c", &Refusal::NotTweed, at(1)).is_some());
        assert!(refusals.note("d", &Refusal::Secret, at(11)).unwrap().contains("(1 more like it before)"));
        assert_eq!(refusals.counts(), [("not tweed", 1), ("secret", 3)]);
    }
}
