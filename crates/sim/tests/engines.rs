//! Whole engines under many seeds. `cargo run --release -p tweed-sim --example engines -- FIRST COUNT` tries more.

use tweed_sim::engines::{run, Sabotage};

/// What every run of CI tries, in four tests side by side.
const SEEDS: u64 = 10_000;

fn survive(quarter: u64) {
    for seed in quarter * SEEDS / 4..(quarter + 1) * SEEDS / 4 {
        run(seed, None).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

#[test]
fn the_first_quarter_of_seeds_goes_well() {
    survive(0);
}

#[test]
fn the_second_quarter_of_seeds_goes_well() {
    survive(1);
}

#[test]
fn the_third_quarter_of_seeds_goes_well() {
    survive(2);
}

#[test]
fn the_last_quarter_of_seeds_goes_well() {
    survive(3);
}

#[test]
fn a_seed_replays() {
    for seed in 0..50 {
        let runs = [(); 2].map(|()| run(seed, None).expect("it goes well"));
        assert_eq!(runs[0], runs[1], "seed {seed}");
    }
}

#[test]
fn each_old_fault_is_found() {
    for sabotage in Sabotage::ALL {
        let found = (0..SEEDS).find(|&seed| run(seed, Some(sabotage)).is_err());
        assert!(found.is_some(), "{sabotage:?} is not found within {SEEDS} seeds");
    }
}
