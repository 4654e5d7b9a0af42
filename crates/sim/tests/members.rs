//! Members under faults. `cargo run --release -p tweed-sim --example members -- FIRST COUNT` tries more seeds.

use std::collections::BTreeSet;

use tweed_proto::members::{Settings, Standing, Why};
use tweed_sim::members::{run, scenario, verify, watch, Fault, Plan, Report, Standings};

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
    let settings = Settings { min_members: 1, max_members: 8, ..plan.settings };
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

/// Of a run with four members: what is to be in the place of a witness, and kills that heard of each other.
fn replaced(witnesses: usize, delay: u64, faults: &[(u64, Fault)]) -> Report {
    let plan = Plan { delay, calm: 160, ..calm(4, witnesses, faults.to_vec()) };
    run(&plan).unwrap_or_else(|wrong| panic!("{faults:?}: {wrong}"))
}

fn kill(at: u64, id: usize) -> (u64, Fault) {
    (at, Fault::Kill(id, true))
}

#[test]
fn a_witness_that_is_lost_for_good_is_replaced_while_the_others_are_a_majority() {
    let (lost, replace, other) = (kill(10, 4), (20, Fault::Replace(4, 7)), kill(60, 5));
    let dies = [kill(100, 0), kill(100, 1), kill(100, 2)];
    let with = |some: &[(u64, Fault)]| replaced(3, 1, &[some, &dies].concat());
    // An epoch with the new one, and one of the last member: two of three are needed for each.
    let report = with(&[lost.clone(), replace.clone(), other.clone()]);
    assert_eq!((report.epochs, report.waiting), (2, 0));
    let report = with(&[lost.clone(), other.clone()]);
    assert_eq!((report.epochs, report.waiting), (0, 1));
    // Too late: nothing is agreed any more, the replacement neither.
    let report = with(&[lost, other, (70, replace.1)]);
    assert_eq!((report.epochs, report.waiting), (0, 1));
}

#[test]
fn the_only_witness_is_moved_while_it_lives_and_never_after_it_is_lost() {
    let dies = [kill(100, 0)];
    let moved = [vec![(10, Fault::Replace(4, 5)), kill(60, 4)], dies.to_vec()].concat();
    assert_eq!(replaced(1, 1, &moved).epochs, 2);
    let lost = [vec![kill(9, 4), (10, Fault::Replace(4, 5))], dies.to_vec()].concat();
    let report = replaced(1, 1, &lost);
    assert_eq!((report.epochs, report.waiting), (0, 1));
    // With its file, which outlives it, it agrees to its successor.
    let back = [lost, vec![(40, Fault::Restart(4))]].concat();
    assert_eq!(replaced(1, 1, &back).epochs, 2);
}

#[test]
fn of_two_that_ask_for_one_place_one_gets_it_and_of_two_places_each_gets_its_own() {
    for (other, epochs) in [(4, 1), (5, 1)] {
        let report = replaced(3, 1, &[(10, Fault::Replace(4, 7)), (10, Fault::Replace(other, 8))]);
        assert_eq!((report.epochs, report.waiting), (epochs, 0), "{other}");
    }
    // One after the other, until none of the first is left.
    let all: Vec<(u64, Fault)> = (0..3)
        .flat_map(|nth| {
            [
                (10 + 40 * nth, Fault::Replace(4 + nth as usize, 7 + nth as usize)),
                kill(45 + 40 * nth, 4 + nth as usize),
            ]
        })
        .collect();
    assert_eq!(replaced(3, 1, &all).epochs, 3);
}

#[test]
fn whoever_has_a_part_in_a_replacement_may_be_killed_or_started_anew_at_any_time_of_it() {
    for (witnesses, delay) in [(1, 1), (3, 1), (3, 3)] {
        let (old, new) = (4, 4 + witnesses);
        let mut epochs = BTreeSet::new();
        for (later, victim) in (0..30).flat_map(|later| [(later, 0), (later, old), (later, new)]) {
            let again = if victim == new { Fault::RestartEmpty(new) } else { Fault::Restart(victim) };
            for again in [again, Fault::Restart(victim)] {
                let at = 11 + later;
                let faults = [
                    (10, Fault::Replace(old, new)),
                    (at, Fault::Kill(victim, later % 2 == 0)),
                    (at + 15, again),
                ];
                let report = replaced(witnesses, delay, &faults);
                // Without its file the only witness is lost for good, if it was one already.
                let is_lost =
                    report.waiting == 1 && witnesses == 1 && faults[2].1 == Fault::RestartEmpty(new);
                assert!(report.waiting == 0 || is_lost, "{faults:?}");
                epochs.insert(report.epochs);
            }
        }
        assert!(epochs.contains(&1) && epochs.len() > 1, "{epochs:?}");
    }
}

#[test]
fn no_epoch_is_agreed_twice_where_a_network_is_split_about_a_replacement() {
    let mut total = Report::default();
    for seed in 0..60 {
        // Two members and a witness on each side, and any of these with the third, the new one, or both.
        let side = |bit: u64| (seed >> bit & 1) as u8;
        let parts = vec![0, 0, 1, 1, 0, 1, side(0), side(1)];
        let until = 20 + seed;
        let faults = vec![
            (10, Fault::Replace(4 + (seed as usize >> 2) % 3, 7)),
            (12 + seed % 16, Fault::Split(parts, until)),
        ];
        let plan = Plan { seed, delay: 3, lost: 10, doubled: 10, calm: 110, ..calm(4, 3, faults) };
        total.add(run(&plan).unwrap_or_else(|wrong| panic!("{seed}: {wrong}")));
    }
    assert!(total.epochs > 100 && total.waiting == 0, "{total:?}");
}

/// Where processes stand at this tick of a run, and what came of it.
fn at(tick: u64, plan: &Plan) -> (Standings, Report) {
    let mut found = Standings::new();
    let report = watch(plan, |now, standings| {
        if now == tick {
            found = standings;
        }
    });
    (found, report.unwrap_or_else(|wrong| panic!("{:?}: {wrong}", plan.faults)))
}

fn settled(standings: &Standings) -> BTreeSet<usize> {
    standings.iter().filter(|(_, standing)| **standing == Standing::Settled).map(|(&id, _)| id).collect()
}

/// All ways to put so many processes into two parts of one size, the first of them always into the same.
fn halves(count: usize) -> Vec<Vec<u8>> {
    let parts = |bits: u32| (0..count).map(|id| (bits >> id & 1) as u8).collect();
    (0..1u32 << count)
        .filter(|bits| bits & 1 == 0 && bits.count_ones() as usize == count / 2)
        .map(parts)
        .collect()
}

#[test]
fn of_two_halves_the_one_with_the_lowest_key_goes_on_and_the_other_waits() {
    for count in [4, 6] {
        let mut in_all: BTreeSet<usize> = (0..count).collect();
        for parts in halves(count) {
            let plan = Plan { calm: 80, ..calm(count, 0, vec![(0, Fault::Split(parts.clone(), 70))]) };
            let (standings, report) = at(60, &plan);
            let goes_on = settled(&standings);
            let waits = standings.iter().filter(|(id, _)| !goes_on.contains(id));
            let no_quorum = Standing::Waiting(Why::NoQuorum { heard: count / 2, voters: count });
            assert!(
                waits.clone().count() == count / 2 && waits.clone().all(|(_, one)| *one == no_quorum),
                "{standings:?}"
            );
            assert!(
                goes_on.iter().all(|&id| parts[id] == parts[*goes_on.first().unwrap()]),
                "{parts:?}: {goes_on:?}"
            );
            in_all.retain(|id| goes_on.contains(id));
            // One without the others, and one or two in which they are in again.
            assert!(report.epochs >= 2 && report.waiting == 0, "{parts:?}: {report:?}");
        }
        assert_eq!(in_all.len(), 1, "whoever has the lowest key");
    }
}

#[test]
fn of_three_thirds_all_wait_and_go_on_as_they_were() {
    let plan = Plan { calm: 80, ..calm(6, 0, vec![(0, Fault::Split(vec![0, 0, 1, 1, 2, 2], 70))]) };
    let (standings, report) = at(60, &plan);
    let no_quorum = Standing::Waiting(Why::NoQuorum { heard: 2, voters: 6 });
    assert!(standings.len() == 6 && standings.values().all(|one| *one == no_quorum), "{standings:?}");
    assert_eq!((report.epochs, report.waiting), (0, 0));
}

#[test]
fn fewer_than_the_minimum_wait_until_another_one_joins() {
    // With a witness half of them may be gone; without one, fewer.
    for (founders, witnesses, min) in [(4, 1, 3), (5, 0, 4)] {
        let base = calm(founders, witnesses, Vec::new());
        let settings = Settings { min_members: min, ..base.settings.clone() };
        let kills = [1, 2].map(|id| (10, Fault::Kill(id, true)));
        let waits = Plan { settings, members: founders + 1, faults: kills.to_vec(), calm: 100, ..base };
        let joins =
            Plan { faults: [kills.to_vec(), vec![(60, Fault::Join(founders))]].concat(), ..waits.clone() };
        let members = founders - 2;
        for plan in [&waits, &joins] {
            let (mut standings, report) = at(60, plan);
            standings.retain(|&id, _| id < founders);
            let few = Standing::Waiting(Why::TooFew { members, min });
            assert!(standings.len() == members && standings.values().all(|one| *one == few), "{standings:?}");
            let goes_on = u64::from(plan.faults.len() > 2);
            assert_eq!((report.epochs, report.waiting), (goes_on, 1 - goes_on));
        }
    }
}

#[test]
fn who_is_lost_again_and_again_waits_longer_each_time() {
    const DIES: [u64; 4] = [30, 80, 150, 250];
    let away_each = |penalty| {
        let faults = DIES.iter().flat_map(|&at| [(at, Fault::Kill(2, true)), (at + 12, Fault::Restart(2))]);
        let base = calm(5, 0, faults.collect());
        let plan = Plan { settings: Settings { penalty, ..base.settings.clone() }, calm: 400, ..base };
        let mut away = DIES.map(|_| 0);
        let ticks = watch(&plan, |now, standings| {
            if standings.get(&2) != Some(&Standing::Settled) {
                if let Some(last) = DIES.iter().rposition(|&at| at < now) {
                    away[last] += 1;
                }
            }
        });
        ticks.unwrap();
        away
    };
    let away = away_each(scenario(7).settings.penalty);
    assert!(away.is_sorted_by(|one, next| one < next), "{away:?}");
    let (least, most) = (away_each(0).into_iter().min(), away_each(0).into_iter().max());
    assert!(most < least.map(|least| least + 5), "without a penalty all are alike: {least:?} to {most:?}");
}

#[test]
fn who_was_silent_for_a_moment_is_in_or_out_before_the_next_loss() {
    // An epoch without it may have been accepted, and not be decided when it is heard again. If that stays so until another one
    // dies, the two of them are lost at once, and of three members the last waits for good.
    for (silent, dies) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        for number in 0..3 * 8 * 6 {
            let (delay, ticks, begin) = (1 + number % 3, 8 + number / 3 % 8, 8 + number / 24);
            let faults =
                vec![(begin, Fault::Stop(silent, ticks)), (begin + ticks + 40, Fault::Kill(dies, true))];
            let plan = Plan { delay, calm: 100, ..calm(3, 0, faults) };
            let report = run(&plan).unwrap_or_else(|wrong| panic!("{:?}: {wrong}", plan.faults));
            assert_eq!(report.waiting, 0, "{delay} {:?}", plan.faults);
        }
    }
}

#[test]
fn two_that_join_within_a_short_time_cost_one_epoch() {
    let joins = vec![(10, Fault::Join(4)), (12, Fault::Join(5))];
    let plan = Plan { members: 6, ..calm(4, 0, joins) };
    assert_eq!(run(&plan).unwrap().epochs, 1);
    let hasty = Settings { batch: 0, ..plan.settings.clone() };
    assert_eq!(run(&Plan { settings: hasty, ..plan }).unwrap().epochs, 2);
}

#[test]
fn whoever_proposes_may_be_killed_at_any_time_of_the_vote() {
    for (witnesses, delay, is_heard) in
        [(0, 1, true), (0, 1, false), (0, 3, true), (1, 2, true), (3, 3, false)]
    {
        let mut epochs = BTreeSet::new();
        for later in 0..=20 {
            // Of the others rank 0 proposes first, and then rank 1; a vote takes some four messages behind each other.
            for kills in [vec![0], vec![0, 1]] {
                let at =
                    |(place, &id): (usize, &usize)| (10 + later + place as u64, Fault::Kill(id, is_heard));
                let votes = kills.iter().enumerate().map(at);
                let faults = [(10, Fault::Kill(4, true))].into_iter().chain(votes).collect();
                let plan = Plan { delay, ..calm(7, witnesses, faults) };
                let report = run(&plan).unwrap_or_else(|wrong| panic!("{:?}: {wrong}", plan.faults));
                assert_eq!(report.waiting, 0, "{:?}", plan.faults);
                epochs.insert(report.epochs);
            }
        }
        // Some died before all was agreed without who was lost first, and some behind that.
        assert!(epochs.contains(&1) && epochs.contains(&2), "{epochs:?}");
    }
}
