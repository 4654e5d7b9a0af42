//! Early Close: each row of the table of LTP's section 3.4, at its exact boundaries.

use std::time::Duration;

use tweed_proto::ltp::close::{first_guess, CloseDecision, CloseThresholds, Closing, Progress};
use CloseDecision::{Close, Wait};

const TOTAL: u32 = 1000;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn closing(deadline: Option<Duration>) -> Closing {
    Closing { fraction: 0.8, slack: ms(30), deadline }
}

/// One epoch in which a message took 100 ms to arrive whole; the slowest of all links took 150 ms.
fn measured(deadline: Option<Duration>) -> CloseThresholds {
    let mut thresholds = CloseThresholds::new(closing(deadline));
    thresholds.admit(TOTAL, None);
    thresholds.note_closed(ms(120), TOTAL, TOTAL);
    thresholds.note_closed(ms(100), TOTAL, TOTAL);
    thresholds.end_epoch(Some(ms(150)));
    thresholds.admit(TOTAL, None);
    thresholds
}

fn decide(
    thresholds: &CloseThresholds,
    elapsed: Duration,
    delivered: u32,
    critical_complete: bool,
) -> CloseDecision {
    thresholds.decide(elapsed, Progress { delivered, total: TOTAL, critical_complete })
}

#[test]
fn each_row_of_the_table_holds_at_its_boundaries() {
    let thresholds = measured(None);
    let instant = Duration::from_nanos(1);
    let rows = [
        // before the threshold: only the whole
        (ms(0), 1000, true, Close),
        (ms(100) - instant, 999, true, Wait(Some(ms(100)))),
        (ms(100) - instant, 799, true, Wait(Some(ms(180)))),
        // from the threshold on: the fraction and all critical bytes
        (ms(100), 800, true, Close),
        (ms(100), 799, true, Wait(Some(ms(180)))),
        (ms(100), 999, false, Wait(None)),
        (ms(180) - instant, 800, true, Close),
        (ms(180) - instant, 799, true, Wait(Some(ms(180)))),
        // from the limit on (150 ms of the slowest link and 30 ms): all critical bytes
        (ms(180), 799, true, Close),
        (ms(180), 0, true, Close),
        (ms(180), 999, false, Wait(None)),
    ];
    for (elapsed, delivered, critical, verdict) in rows {
        assert_eq!(
            decide(&thresholds, elapsed, delivered, critical),
            verdict,
            "{elapsed:?} {delivered} {critical}"
        );
    }
}

#[test]
fn without_any_estimate_it_waits_for_all_until_the_deadline() {
    let mut thresholds = CloseThresholds::new(closing(Some(ms(5000))));
    thresholds.admit(TOTAL, None);
    assert_eq!(decide(&thresholds, ms(4999), 999, true), Wait(Some(ms(5000))));
    assert_eq!(decide(&thresholds, ms(5000), 0, true), Close);
    assert_eq!(decide(&thresholds, ms(1), 1000, true), Close);
    let mut patient = CloseThresholds::new(closing(None));
    patient.admit(TOTAL, None);
    assert_eq!(decide(&patient, ms(1 << 40), 999, true), Wait(None));
}

#[test]
fn the_first_guess_is_a_threshold_but_no_limit() {
    let mut thresholds = CloseThresholds::new(closing(None));
    thresholds.admit(TOTAL, first_guess(Some(ms(40)), Some(100_000), TOTAL));
    assert_eq!(thresholds.threshold(TOTAL), Some(ms(60 + 10)));
    assert_eq!(decide(&thresholds, ms(69), 800, true), Wait(Some(ms(70))));
    assert_eq!(decide(&thresholds, ms(70), 800, true), Close);
    assert_eq!(decide(&thresholds, ms(9999), 799, true), Wait(None));
    assert_eq!(first_guess(None, Some(1), 1), None);
    assert_eq!(first_guess(Some(ms(1)), None, 1), None);
    assert_eq!(first_guess(Some(ms(1)), Some(0), 1), None);
}

#[test]
fn a_link_that_never_reaches_the_percentage_closes_at_the_limit() {
    let thresholds = measured(None);
    assert_eq!(decide(&thresholds, ms(179), 10, true), Wait(Some(ms(180))));
    assert_eq!(decide(&thresholds, ms(180), 10, true), Close);
}

#[test]
fn a_dead_worker_costs_the_limit_or_the_deadline_whichever_is_first() {
    assert_eq!(decide(&measured(None), ms(0), 0, true), Wait(Some(ms(180))));
    assert_eq!(decide(&measured(Some(ms(150))), ms(0), 0, true), Wait(Some(ms(150))));
    assert_eq!(decide(&measured(Some(ms(150))), ms(150), 0, true), Close);
}

#[test]
fn after_a_step_of_the_bandwidth_the_next_epoch_has_new_thresholds() {
    let mut thresholds = measured(None);
    // Half the bandwidth: at the limit some 90 % are there, which would take 200 ms for the whole.
    thresholds.note_closed(ms(180), 900, TOTAL);
    thresholds.note_closed(ms(190), 900, TOTAL);
    assert_eq!(thresholds.threshold(TOTAL), Some(ms(100)), "not before the epoch ends");
    assert_eq!(thresholds.coming(), Some(ms(200)));
    thresholds.end_epoch(thresholds.coming());
    assert_eq!(thresholds.threshold(TOTAL), Some(ms(200)));
    assert_eq!(decide(&thresholds, ms(199), 999, true), Wait(Some(ms(200))));
    assert_eq!(decide(&thresholds, ms(229), 799, true), Wait(Some(ms(230))));
    // Fast again: the whole in 50 ms.
    thresholds.note_closed(ms(50), TOTAL, TOTAL);
    thresholds.end_epoch(thresholds.coming());
    assert_eq!(decide(&thresholds, ms(50), 800, true), Close);
    assert_eq!(decide(&thresholds, ms(79), 799, true), Wait(Some(ms(80))));
}

#[test]
fn an_epoch_without_messages_changes_nothing() {
    let mut thresholds = measured(None);
    thresholds.end_epoch(Some(ms(150)));
    assert_eq!(thresholds.threshold(TOTAL), Some(ms(100)));
    assert_eq!(thresholds.limit(TOTAL), Some(ms(180)));
}

#[test]
fn smaller_messages_get_the_same_multiple_of_their_own_threshold() {
    let mut thresholds = CloseThresholds::new(closing(None));
    for (total, time) in [(TOTAL, ms(100)), (100, ms(20))] {
        thresholds.admit(total, None);
        thresholds.note_closed(time, total, total);
    }
    thresholds.end_epoch(Some(ms(150)));
    assert_eq!(thresholds.limit(TOTAL), Some(ms(150 + 30)));
    assert_eq!(thresholds.limit(100), Some(ms(20 * 3 / 2 + 30)));
}

#[test]
fn thresholds_are_kept_for_sizes_in_use_and_for_no_more_than_256() {
    let mut thresholds = measured(None);
    for size in 2000..4000 {
        thresholds.admit(size, None);
        thresholds.admit(TOTAL, None);
    }
    assert_eq!(thresholds.threshold(TOTAL), Some(ms(100)));
    thresholds.note_closed(ms(1), 3999, 3999);
    thresholds.note_closed(ms(1), 2000, 2000);
    thresholds.end_epoch(None);
    assert_eq!(thresholds.threshold(3999), Some(ms(1)));
    assert_eq!(thresholds.slowest(), Some(ms(100)));
}

#[test]
fn a_fraction_of_one_asks_for_all_of_it() {
    let mut thresholds = CloseThresholds::new(Closing { fraction: 1.0, slack: ms(30), deadline: None });
    thresholds.admit(TOTAL, Some(ms(1)));
    assert_eq!(decide(&thresholds, ms(9), 999, true), Wait(None));
    assert_eq!(decide(&thresholds, ms(9), 1000, true), Close);
}
