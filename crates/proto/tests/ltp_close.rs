//! Early Close: each row of the table of LTP's section 3.4, at its exact boundaries.

use std::time::Duration;

use tweed_proto::ltp::close::{first_guess, Closing, Gate, Progress, Verdict};
use Verdict::{Close, Wait};

const TOTAL: u32 = 1000;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn closing(deadline: Option<Duration>) -> Closing {
    Closing { fraction: 0.8, slack: ms(30), deadline }
}

/// One epoch in which a message took 100 ms to arrive whole; the slowest of all links took 150 ms.
fn measured(deadline: Option<Duration>) -> Gate {
    let mut gate = Gate::new(closing(deadline));
    gate.admit(TOTAL, None);
    gate.note_closed(ms(120), TOTAL, TOTAL);
    gate.note_closed(ms(100), TOTAL, TOTAL);
    gate.end_epoch(Some(ms(150)));
    gate.admit(TOTAL, None);
    gate
}

fn decide(gate: &Gate, elapsed: Duration, delivered: u32, critical_complete: bool) -> Verdict {
    gate.decide(elapsed, Progress { delivered, total: TOTAL, critical_complete })
}

#[test]
fn each_row_of_the_table_holds_at_its_boundaries() {
    let gate = measured(None);
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
            decide(&gate, elapsed, delivered, critical),
            verdict,
            "{elapsed:?} {delivered} {critical}"
        );
    }
}

#[test]
fn without_any_estimate_it_waits_for_all_until_the_deadline() {
    let mut gate = Gate::new(closing(Some(ms(5000))));
    gate.admit(TOTAL, None);
    assert_eq!(decide(&gate, ms(4999), 999, true), Wait(Some(ms(5000))));
    assert_eq!(decide(&gate, ms(5000), 0, true), Close);
    assert_eq!(decide(&gate, ms(1), 1000, true), Close);
    let mut patient = Gate::new(closing(None));
    patient.admit(TOTAL, None);
    assert_eq!(decide(&patient, ms(1 << 40), 999, true), Wait(None));
}

#[test]
fn the_first_guess_is_a_threshold_but_no_limit() {
    let mut gate = Gate::new(closing(None));
    gate.admit(TOTAL, first_guess(Some(ms(40)), Some(100_000), TOTAL));
    assert_eq!(gate.threshold(TOTAL), Some(ms(60 + 10)));
    assert_eq!(decide(&gate, ms(69), 800, true), Wait(Some(ms(70))));
    assert_eq!(decide(&gate, ms(70), 800, true), Close);
    assert_eq!(decide(&gate, ms(9999), 799, true), Wait(None));
    assert_eq!(first_guess(None, Some(1), 1), None);
    assert_eq!(first_guess(Some(ms(1)), None, 1), None);
    assert_eq!(first_guess(Some(ms(1)), Some(0), 1), None);
}

#[test]
fn a_link_that_never_reaches_the_percentage_closes_at_the_limit() {
    let gate = measured(None);
    assert_eq!(decide(&gate, ms(179), 10, true), Wait(Some(ms(180))));
    assert_eq!(decide(&gate, ms(180), 10, true), Close);
}

#[test]
fn a_dead_worker_costs_the_limit_or_the_deadline_whichever_is_first() {
    assert_eq!(decide(&measured(None), ms(0), 0, true), Wait(Some(ms(180))));
    assert_eq!(decide(&measured(Some(ms(150))), ms(0), 0, true), Wait(Some(ms(150))));
    assert_eq!(decide(&measured(Some(ms(150))), ms(150), 0, true), Close);
}

#[test]
fn after_a_step_of_the_bandwidth_the_next_epoch_has_new_thresholds() {
    let mut gate = measured(None);
    // Half the bandwidth: at the limit some 90 % are there, which would take 200 ms for the whole.
    gate.note_closed(ms(180), 900, TOTAL);
    gate.note_closed(ms(190), 900, TOTAL);
    assert_eq!(gate.threshold(TOTAL), Some(ms(100)), "not before the epoch ends");
    assert_eq!(gate.coming(), Some(ms(200)));
    gate.end_epoch(gate.coming());
    assert_eq!(gate.threshold(TOTAL), Some(ms(200)));
    assert_eq!(decide(&gate, ms(199), 999, true), Wait(Some(ms(200))));
    assert_eq!(decide(&gate, ms(229), 799, true), Wait(Some(ms(230))));
    // Fast again: the whole in 50 ms.
    gate.note_closed(ms(50), TOTAL, TOTAL);
    gate.end_epoch(gate.coming());
    assert_eq!(decide(&gate, ms(50), 800, true), Close);
    assert_eq!(decide(&gate, ms(79), 799, true), Wait(Some(ms(80))));
}

#[test]
fn an_epoch_without_messages_changes_nothing() {
    let mut gate = measured(None);
    gate.end_epoch(Some(ms(150)));
    assert_eq!(gate.threshold(TOTAL), Some(ms(100)));
    assert_eq!(gate.limit(TOTAL), Some(ms(180)));
}

#[test]
fn smaller_messages_get_the_same_multiple_of_their_own_threshold() {
    let mut gate = Gate::new(closing(None));
    for (total, time) in [(TOTAL, ms(100)), (100, ms(20))] {
        gate.admit(total, None);
        gate.note_closed(time, total, total);
    }
    gate.end_epoch(Some(ms(150)));
    assert_eq!(gate.limit(TOTAL), Some(ms(150 + 30)));
    assert_eq!(gate.limit(100), Some(ms(20 * 3 / 2 + 30)));
}

#[test]
fn thresholds_are_kept_for_sizes_in_use_and_for_no_more_than_256() {
    let mut gate = measured(None);
    for size in 2000..4000 {
        gate.admit(size, None);
        gate.admit(TOTAL, None);
    }
    assert_eq!(gate.threshold(TOTAL), Some(ms(100)));
    gate.note_closed(ms(1), 3999, 3999);
    gate.note_closed(ms(1), 2000, 2000);
    gate.end_epoch(None);
    assert_eq!(gate.threshold(3999), Some(ms(1)));
    assert_eq!(gate.slowest(), Some(ms(100)));
}

#[test]
fn a_fraction_of_one_asks_for_all_of_it() {
    let mut gate = Gate::new(Closing { fraction: 1.0, slack: ms(30), deadline: None });
    gate.admit(TOTAL, Some(ms(1)));
    assert_eq!(decide(&gate, ms(9), 999, true), Wait(None));
    assert_eq!(decide(&gate, ms(9), 1000, true), Close);
}
