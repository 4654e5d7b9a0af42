//! What a program says about its schedule, against a plain count.

mod support;

use proptest::prelude::*;
use support::schedules;
use tweed_proto::Program;
use tweed_rng::Rng;
use tweed_schedule::{Ranks, Schedule};

/// Per rank and chunk, the number of contributions after each arrival, counted in lockstep.
fn counts(schedule: &Schedule) -> Vec<Vec<Vec<usize>>> {
    let held = |rank, chunk| usize::from(schedule.origin(chunk).contains(rank));
    let of = |rank| (0..schedule.chunks()).map(move |c| vec![held(rank, c)]).collect();
    let mut counts: Vec<Vec<Vec<usize>>> = (0..schedule.ranks()).map(of).collect();
    for step in schedule.sends().chunk_by(|a, b| a.step == b.step) {
        let before = counts.clone();
        let mut sends: Vec<_> = step.iter().collect();
        sends.sort_by_key(|s| (s.dst, s.chunk));
        for group in sends.chunk_by(|a, b| (a.dst, a.chunk) == (b.dst, b.chunk)) {
            let chunk = group[0].chunk as usize;
            let last = |rank: u32| *before[rank as usize][chunk].last().expect("it starts with one");
            let arrived: usize = group.iter().map(|s| last(s.src)).sum();
            let own = if group[0].reduce { last(group[0].dst) } else { 0 };
            counts[group[0].dst as usize][chunk].push(arrived + own);
        }
    }
    counts
}

fn check(schedule: &Schedule) {
    let counts = counts(schedule);
    let reduces = schedule.origin(0) == Ranks::All;
    for program in Program::compile_all(schedule) {
        assert_eq!(program, Program::compile(schedule, program.rank));
        for input in &program.inputs {
            let count = counts[program.rank as usize][input.chunk as usize][input.version as usize];
            let complete = reduces && input.reduce && count == schedule.ranks() as usize;
            assert_eq!(input.complete, complete, "{input:?}");
        }
        check_alone(schedule, &program, reduces);
        let arriving = schedule.sends().iter().filter(|s| s.dst == program.rank).count();
        assert_eq!(program.inputs.iter().map(|i| i.sends.len()).sum::<usize>(), arriving);
        let leaving = schedule.sends().iter().filter(|s| s.src == program.rank).count();
        assert_eq!(program.outputs.iter().map(|o| o.sends.len()).sum::<usize>(), leaving);
    }
}

/// A send of a sum is one contribution alone if nothing had come for that chunk to its sender in an earlier step.
fn check_alone(schedule: &Schedule, program: &Program, reduces: bool) {
    for (index, send) in (0..).zip(schedule.sends()) {
        let earlier =
            |s: &&tweed_schedule::Send| s.dst == send.src && s.chunk == send.chunk && s.step < send.step;
        let concerns = program.rank == send.src || program.rank == send.dst;
        let first = schedule.sends().iter().find(earlier).is_none();
        assert_eq!(program.is_alone(index), concerns && reduces && send.reduce && first, "{index}: {send:?}");
    }
}

#[test]
fn averages_divide_where_every_contribution_is_in() {
    (2..10).flat_map(schedules::all).for_each(|s| check(&s));
}

proptest! {
    #[test]
    fn random_schedules_too(n in 1u32..8, chunks in 1u32..4, seed: u64) {
        check(&schedules::random(n, chunks, &mut Rng::new(seed)));
    }
}
