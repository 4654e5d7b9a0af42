//! What follows from the deadline: limits that fit together, a watchdog that keeps its order, and blame that is just.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tweed_proto::late::{
    Activity, Blame, Call, Context, Culprit, History, Kind, Limits, Process, RankStatus, Reason, Report,
    Standing, Step, Usual, Watchdog,
};

const FRESH: Duration = Duration::from_millis(100);

fn span() -> impl Strategy<Value = Duration> {
    // From nothing to what saturates, each order of magnitude equally likely.
    (0u32..64).prop_flat_map(|bits| 0..=(u64::MAX >> bits)).prop_map(Duration::from_micros)
}

fn usual() -> impl Strategy<Value = Option<Usual>> {
    proptest::option::of((span(), span()).prop_map(|(median, spread)| Usual { median, spread }))
}

fn limits() -> impl Strategy<Value = Limits> {
    (proptest::option::of(span()), usual(), span()).prop_map(|(d, u, most)| Limits::derive(d, u, most))
}

proptest! {
    #[test]
    fn limits_fit_together(deadline in proptest::option::of(span()), usual in usual(), most in span()) {
        let limits = Limits::derive(deadline, usual, most);
        prop_assert!(limits.answer <= limits.notice);
        prop_assert!(limits.notice.saturating_add(limits.answer) <= limits.fail);
        prop_assert!(limits.fail <= most);
        prop_assert!(limits.dispute <= limits.fail);
        prop_assert!(deadline.is_none_or(|d| limits.silence > d || d == Duration::MAX));
    }

    #[test]
    fn what_is_as_quick_as_usual_is_not_looked_into(deadline in span(), usual in usual()) {
        let limits = Limits::derive(Some(deadline), usual, Duration::MAX);
        prop_assert!(limits.notice >= usual.map_or(Duration::ZERO, |u| u.median));
        prop_assert!(limits.fail >= deadline);
    }

    #[test]
    fn a_watchdog_asks_warns_asks_and_fails(limits in limits(), steps in proptest::collection::vec(span(), 1..20)) {
        let mut watchdog = Watchdog::new(limits);
        let mut waited = Duration::ZERO;
        let mut seen = Vec::new();
        for step in steps {
            waited = waited.saturating_add(step).max(watchdog.next());
            let due = watchdog.poll(waited).expect("it is due");
            seen.push(due);
            if due == Step::Fail {
                break;
            }
        }
        let whole = [Step::Ask, Step::Warn, Step::Ask, Step::Fail];
        prop_assert_eq!(&seen[..], &whole[..seen.len()]);
    }

    #[test]
    fn nobody_is_judged_before_he_could_answer(limits in limits(), stopped in span()) {
        let mut watchdog = Watchdog::new(limits);
        let asked = watchdog.next().saturating_add(stopped);
        prop_assert_eq!(watchdog.poll(asked), Some(Step::Ask));
        let warned = watchdog.next();
        prop_assert!(warned >= asked.saturating_add(limits.answer));
    }

    #[test]
    fn an_outlier_does_not_move_the_usual(values in proptest::collection::vec(1u64..1000, 9..64), outlier in 1u64..1 << 40) {
        let kind = Kind::new("all_reduce", 4096);
        let mut history = History::default();
        values.iter().for_each(|&v| history.handle_end(kind, Duration::from_micros(v)));
        history.handle_end(kind, Duration::from_micros(outlier));
        let usual = history.usual(kind).expect("there are enough");
        prop_assert!(usual.median <= Duration::from_micros(1000));
        prop_assert!(usual.spread <= Duration::from_micros(1000));
    }

    #[test]
    fn somebody_is_always_to_blame(reports in proptest::collection::btree_map(0u32..6, report(), 0..6), waits_for in waits()) {
        let mut reports = reports;
        reports.insert(0, inside(&waits_for, 0));
        let blame = Blame::find(0, &reports, FRESH);
        prop_assert!(!blame.culprits.is_empty());
    }
}

fn waits() -> impl Strategy<Value = Vec<u32>> {
    proptest::collection::vec(0u32..6, 1..4)
}

fn report() -> impl Strategy<Value = Report> {
    prop_oneof![
        (waits(), 0u64..1000).prop_map(|(w, quiet)| inside(&w, quiet)),
        Just(Report::of(Standing::Done)),
        Just(elsewhere()),
    ]
}

fn inside(waits_for: &[u32], quiet_ms: u64) -> Report {
    Report::of(Standing::Inside { waits_for: waits_for.to_vec(), quiet: Duration::from_millis(quiet_ms) })
}

fn elsewhere() -> Report {
    Report::of(Standing::Elsewhere { last: None, call: None, activity: Activity::Computes })
}

fn find(me: u32, reports: &[(u32, Report)]) -> Vec<Culprit> {
    let reports: BTreeMap<u32, Report> = reports.iter().cloned().collect();
    Blame::find(me, &reports, FRESH).culprits
}

fn culprit(rank: u32, reason: Reason) -> Vec<Culprit> {
    vec![Culprit { rank, reason }]
}

/// A ring of four in which rank 2 does not move: 3 waits for 2, 0 for 3, 1 for 0.
fn ring(of_two: Option<Report>) -> Vec<(u32, Report)> {
    let others = [(0, inside(&[3], 900)), (1, inside(&[0], 800)), (3, inside(&[2], 950))];
    others.into_iter().chain(of_two.map(|r| (2, r))).collect()
}

#[test]
fn the_silent_rank_is_named_by_those_that_wait_only_for_others() {
    for me in [0, 1, 3] {
        assert_eq!(find(me, &ring(None)), culprit(2, Reason::Silent));
    }
}

#[test]
fn who_sends_something_more_urgent_is_not_to_blame() {
    let mut reports = ring(Some(inside(&[1], 999)));
    assert_eq!(find(0, &reports), culprit(1, Reason::Link { to: 2 }));
    reports[1].1.sends_first = Some("all_reduce float32 [2]".into());
    assert_eq!(find(0, &reports), []);
    let (warning, verdict) = texts(Process::Alive, &reports);
    let words = "rank 1 on host-1 (process 101, tcp 10.0.0.3:4000) sends all_reduce float32 [2] first, which is more urgent there";
    assert!(
        warning.ends_with(words) && verdict.contains(&format!("urgent:  {words}; ")),
        "{warning}\n{verdict}"
    );
}

#[test]
fn a_rank_that_has_not_called_is_named() {
    for me in [0, 1, 3] {
        let found = find(me, &ring(Some(elsewhere())));
        assert!(matches!(found[..], [Culprit { rank: 2, reason: Reason::Elsewhere { .. } }]), "{found:?}");
    }
}

#[test]
fn a_rank_that_waits_in_an_earlier_call_of_the_group_passes_the_blame_on() {
    let call = Call { label: "barrier".into(), since: FRESH, waits_for: vec![4] };
    let stuck = Standing::Elsewhere { last: None, call: Some(call), activity: Activity::Sleeps };
    assert_eq!(find(1, &ring(Some(Report::of(stuck)))), culprit(4, Reason::Silent));
}

fn elsewhere_for(waits_for: &[u32]) -> Report {
    let call = Call { label: "recv float32 [4]".into(), since: FRESH, waits_for: waits_for.to_vec() };
    Report::of(Standing::Elsewhere { last: None, call: Some(call), activity: Activity::Sleeps })
}

#[test]
fn where_ranks_wait_for_each_other_in_several_calls_who_is_in_another_one_is_named() {
    let found = find(0, &[(0, inside(&[1], 900)), (1, elsewhere_for(&[0]))]);
    assert!(matches!(found[..], [Culprit { rank: 1, reason: Reason::Elsewhere { .. } }]), "{found:?}");
}

#[test]
fn a_rank_that_has_ended_leaves_the_link() {
    assert_eq!(find(1, &ring(Some(Report::of(Standing::Done)))), culprit(2, Reason::Link { to: 3 }));
}

#[test]
fn a_rank_that_answers_others_is_not_stopped() {
    let mut reports = ring(None);
    reports[1].1.answered.insert(2);
    assert_eq!(find(3, &reports), culprit(2, Reason::Link { to: 3 }));
}

#[test]
fn a_rank_that_does_not_answer_the_waiter_leaves_the_link() {
    let mut reports = ring(Some(inside(&[1], 700)));
    reports[2].1.missed.insert(2);
    assert_eq!(find(0, &reports), culprit(2, Reason::Link { to: 3 }));
}

#[test]
fn in_a_circle_the_link_that_fell_silent_first_is_cut() {
    assert_eq!(find(0, &ring(Some(inside(&[1], 700)))), culprit(2, Reason::Link { to: 3 }));
}

#[test]
fn where_values_flow_nothing_is_cut() {
    assert_eq!(find(0, &ring(Some(inside(&[1], 5)))), culprit(2, Reason::Slow { to: 3 }));
}

#[test]
fn the_first_rank_that_waits_speaks() {
    let reports: BTreeMap<u32, Report> =
        [(0, elsewhere()), (1, inside(&[0], 1)), (2, inside(&[0], 1))].into();
    assert_eq!(Blame::speaker(&reports), Some(1));
}

fn texts(process: Process, reports: &[(u32, Report)]) -> (String, String) {
    let link = "tcp 10.0.0.3:4000".to_owned();
    let ranks: Vec<RankStatus> = (0..4)
        .map(|r| RankStatus { host: format!("host-{r}"), pid: 100 + r, link: link.clone(), process })
        .collect();
    let deadline = Some(Duration::from_secs(5));
    let usual = Some(Usual { median: Duration::from_millis(20), spread: Duration::from_millis(2) });
    let limits = Limits::derive(deadline, usual, Duration::from_secs(1800));
    let label = "all_reduce float32 [8]".to_owned();
    let context = Context { label, waited: Duration::from_secs(2), limits, deadline, usual, ranks };
    let blame = Blame::find(0, &reports.iter().cloned().collect(), FRESH);
    (context.warning(&blame), context.verdict(&blame))
}

#[test]
fn the_words_say_who_where_since_when_and_what_to_type() {
    let (warning, verdict) = texts(Process::Stopped, &ring(None));
    assert_eq!(
        warning,
        "tweed: all_reduce float32 [8] is 2.0 s late (usually 20 ms ± 2 ms): rank 2 on host-2 (process 102, tcp \
         10.0.0.3:4000) is stopped (SIGSTOP, Ctrl-Z or a debugger) and answers nothing. It fails in 3.0 s. \
         Look: on host-2: kill -CONT 102"
    );
    assert_eq!(
        verdict,
        "all_reduce float32 [8]: not ended after 2.0 s (usually 20 ms ± 2 ms)\
         \n  culprit: rank 2 on host-2 (process 102, tcp 10.0.0.3:4000) is stopped (SIGSTOP, Ctrl-Z or a debugger) and \
         answers nothing\
         \n  next:    on host-2: kill -CONT 102\
         \n  waiting: rank 0 for 3; 3 for 2\
         \n  limit:   a step may be 5.0 s late (TWEED_DEADLINE, Options.deadline)"
    );
}

#[test]
fn each_reason_has_its_own_words_and_advice() {
    let (absent, done) = (ring(Some(elsewhere())), ring(Some(Report::of(Standing::Done))));
    let cases = [
        (Process::Unseen, ring(None), "answers nothing: it is stopped, or its host", "kill -CONT 102"),
        (Process::Alive, ring(None), "is running and does not answer", "py-spy dump --native --pid 102"),
        (Process::Alive, absent, "has not called it: its main thread computes", "py-spy dump --pid 102"),
        (Process::Alive, done, "nothing from it reaches rank 3 on host-3", "tweed doctor"),
        (Process::Alive, ring(Some(inside(&[1], 5))), "values still flow", "tweed top"),
        (
            Process::Alive,
            ring(Some(elsewhere_for(&[1]))),
            "it has waited in recv float32 [4]",
            "compare what",
        ),
    ];
    for (process, reports, words, advice) in cases {
        let (warning, verdict) = texts(process, &reports);
        for text in [warning, verdict] {
            assert!([words, advice, "rank 2 on host-2"].iter().all(|part| text.contains(part)), "{text}");
        }
    }
}
