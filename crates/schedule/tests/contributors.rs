//! Sums of some: each chunk ends as the sum of exactly the contributors that are promised.

use tweed_schedule::{Collective, Draft, Schedule, ScheduleError, Send};

/// A reduce to rank 0, which adds nothing, from 1 and 2 directly and from 3 over 2.
fn draft(sends: Vec<Send>) -> Draft {
    let (name, collective) = ("some".into(), Collective::Reduce);
    Draft { name, collective, root: 0, ranks: 4, chunks: 2, sends, topology: None }
}

fn sends() -> Vec<Send> {
    let first = [Send::new(0, 1, 0, 0, false), Send::new(0, 3, 2, 0, true), Send::new(1, 2, 0, 0, true)];
    first.into_iter().chain([Send::new(0, 2, 0, 1, false)]).collect()
}

fn prove(sends: Vec<Send>, contributors: [&[u32]; 2]) -> Result<Schedule, ScheduleError> {
    Schedule::of_contributors(draft(sends), contributors.map(<[u32]>::to_vec).to_vec())
}

#[test]
fn each_chunk_has_contributors_of_its_own() {
    let proven = prove(sends(), [&[1, 2, 3], &[2]]).unwrap();
    assert_eq!(proven.contributors(), Some(&[vec![1, 2, 3], vec![2]][..]));
    assert!(Schedule::new(draft(sends())).is_err(), "a reduce of all needs all");
}

#[test]
fn what_is_summed_is_what_is_promised() {
    let missing = prove(sends(), [&[1, 2, 3], &[2, 3]]).unwrap_err();
    assert!(matches!(missing, ScheduleError::Missing { rank: 0, chunk: 1, contributor: 3, .. }), "{missing}");
    let foreign = prove(sends(), [&[1, 2], &[2]]).unwrap_err();
    assert!(matches!(foreign, ScheduleError::NotHeld { .. }), "{foreign}");
    let twice = [sends(), vec![Send::new(2, 3, 0, 0, true)]].concat();
    let twice = prove(twice, [&[1, 2, 3], &[2]]).unwrap_err();
    assert!(matches!(twice, ScheduleError::Twice { contributor: 3, .. }), "{twice}");
}

#[test]
fn lists_of_contributors_are_checked() {
    for (lists, wrong) in
        [([&[1, 2, 3][..], &[][..]], 1), ([&[2, 1][..], &[2][..]], 0), ([&[4][..], &[2][..]], 0)]
    {
        let error = prove(sends(), lists).unwrap_err();
        assert_eq!(error, ScheduleError::Contributors { chunk: wrong, ranks: 4, chunks: 2 });
    }
    let short = Schedule::of_contributors(draft(sends()), vec![vec![1, 2, 3]]).unwrap_err();
    assert_eq!(short, ScheduleError::Contributors { chunk: 2, ranks: 4, chunks: 2 });
}
