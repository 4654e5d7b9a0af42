//! Members under faults. `cargo run --release -p tweed-sim --example members -- FIRST COUNT` tries more seeds.

use tweed_sim::members::{run, scenario, verify, Fault, Plan, Report};

#[test]
fn no_epoch_is_agreed_twice_and_nobody_waits_for_ever_in_seeds_of_all_faults() {
    let mut total = Report::default();
    // In the last three a dead member was kept for what one that was new might hear.
    for seed in (0..100).chain([43962, 99201, 51886]) {
        total.add(verify(seed).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}")));
    }
    // Else nothing was tried.
    assert!(total.epochs > 150 && total.kills > 60 && total.waiting > 3, "{total:?}");
}

fn calm(founders: usize, witnesses: usize, faults: Vec<(u64, Fault)>) -> Plan {
    let plan = scenario(7);
    let settings = tweed_proto::members::Settings { min_members: 1, max_members: 8, ..plan.settings };
    Plan {
        founders,
        members: founders,
        witnesses,
        settings,
        delay: 1,
        lost: 0,
        doubled: 0,
        faults,
        calm: 40,
        ..plan
    }
}

#[test]
fn with_a_witness_all_but_one_may_die_at_once_and_without_one_the_last_waits() {
    let deaths = |count| (1..count).map(|id| (10, Fault::Kill(id, true))).collect();
    let alone = run(&calm(4, 1, deaths(4))).unwrap();
    assert_eq!((alone.epochs, alone.waiting), (1, 0));
    let alone = run(&calm(4, 0, deaths(4))).unwrap();
    assert_eq!((alone.epochs, alone.waiting), (0, 1));
}

#[test]
fn a_kill_costs_one_epoch_and_a_cut_between_two_costs_no_member() {
    let kill = run(&calm(5, 0, vec![(10, Fault::Kill(2, true))])).unwrap();
    assert_eq!(kill.epochs, 1);
    // One without the link, and one with it again; `run` looks who is in at the end.
    for (one, other) in [(1, 3), (0, 3), (0, 1), (3, 4)] {
        let (there, back) = ((0, Fault::Cut(one, other, 39)), (0, Fault::Cut(other, one, 39)));
        for cut in [vec![there.clone(), back.clone()], vec![there], vec![back]] {
            assert_eq!(run(&calm(5, 0, cut.clone())).unwrap().epochs, 2, "{cut:?}");
        }
    }
}

#[test]
fn who_leaves_is_out_after_one_epoch_and_all_but_one_may_leave_at_once() {
    assert_eq!(run(&calm(5, 0, vec![(10, Fault::Leave(2))])).unwrap().epochs, 1);
    let leaves = |count| (1..count).map(|id| (10, Fault::Leave(id))).collect();
    let alone = run(&calm(4, 0, leaves(4))).unwrap();
    assert!(alone.epochs > 0 && alone.waiting == 0, "{alone:?}");
}

#[test]
fn a_witness_that_forgets_what_it_promised_lets_two_sides_go_on() {
    // It is first with the one member, and then, started anew, with the other.
    let faults = vec![
        (0, Fault::Split(vec![0, 1, 0], 30)),
        (30, Fault::Kill(2, true)),
        (31, Fault::Restart(2)),
        (31, Fault::Split(vec![0, 1, 1], 40)),
    ];
    let plan = Plan { calm: 80, ..calm(2, 1, faults) };
    assert!(run(&plan).is_ok());
    let wrong = run(&Plan { forgetful: true, ..plan }).unwrap_err();
    assert!(wrong.contains("epoch 2 is agreed twice"), "{wrong}");
}
