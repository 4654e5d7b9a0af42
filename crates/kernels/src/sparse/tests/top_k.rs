//! Choosing, against sorting.

use proptest::prelude::*;

use super::super::finite::all_finite_with;
use super::super::{kth_magnitude, nonzero, threshold, top_k, Selection};
use super::{bits, magnitude, values, KINDS};
use crate::isa::{InstructionSet, Isa};

/// Indices of the `count` largest, ascending.
fn largest(x: &[f32], count: usize) -> Vec<i32> {
    let mut order: Vec<i32> = (0..x.len() as i32).collect();
    order.sort_by_key(|&at| (!magnitude(x[at as usize]), at));
    order.truncate(count);
    order.sort_unstable();
    order
}

/// `selection` is what `x` has at `expected`; `rest` is `x` without it.
fn check(what: &str, selection: &Selection, expected: &[i32], x: &[f32], rest: Option<&[f32]>) {
    let values: Vec<f32> = expected.iter().map(|&at| x[at as usize]).collect();
    assert_eq!(selection.indices(), expected, "{what}");
    assert_eq!(bits(selection.values()), bits(&values), "{what}");
    let Some(rest) = rest else { return };
    let mut left = x.to_vec();
    expected.iter().for_each(|&at| left[at as usize] = 0.0);
    assert_eq!(bits(rest), bits(&left), "{what}: the rest");
}

fn sum(x: &[f32], error: &[f32]) -> Vec<f32> {
    x.iter().zip(error).map(|(a, b)| a + b).collect()
}

fn check_top_k(what: &str, x: &[f32], error: &[f32], count: usize) {
    let both = sum(x, error);
    let (expected, expected_of_both) = (largest(x, count), largest(&both, count));
    for isa in InstructionSet::available() {
        let mut selection = Selection::by(isa);
        let what = format!("{isa:?}, {what}, {count} of {}", x.len());
        top_k(x, None, count, &mut selection);
        check(&what, &selection, &expected, x, None);
        let mut rest = error.to_vec();
        top_k(x, Some(&mut rest), count, &mut selection);
        check(&format!("{what}, fed"), &selection, &expected_of_both, &both, Some(&rest));
    }
}

fn check_threshold(what: &str, x: &[f32], error: &[f32], tau: f32, most: usize) {
    let reach = |x: &[f32]| x.iter().filter(|x| magnitude(**x) >= magnitude(tau)).count();
    for isa in InstructionSet::available() {
        let mut selection = Selection::by(isa);
        let what = format!("{isa:?}, {what}, {most} of {} values of {tau}", x.len());
        assert_eq!(threshold(x, None, tau, most, &mut selection), reach(x), "{what}");
        check(&what, &selection, &largest(x, reach(x).min(most)), x, None);
        let (mut rest, both) = (error.to_vec(), sum(x, error));
        assert_eq!(threshold(x, Some(&mut rest), tau, most, &mut selection), reach(&both), "{what}, fed");
        let expected = largest(&both, reach(&both).min(most));
        check(&format!("{what}, fed"), &selection, &expected, &both, Some(&rest));
    }
}

proptest! {
    #[test]
    fn top_k_is_what_sorting_gives(
        kind in proptest::sample::select(&KINDS[..]), numel in 0..2000_usize, share in 0.0..1.0_f64, seed: u64,
    ) {
        let (x, error) = (values(kind, numel, seed), values("ordinary", numel, !seed));
        check_top_k(kind, &x, &error, (share * numel as f64).round() as usize);
    }

    #[test]
    fn a_threshold_takes_what_reaches_it(
        kind in proptest::sample::select(&KINDS[..]), numel in 0..2000_usize, at: usize,
        most in prop_oneof![Just(usize::MAX), 0..200_usize], seed: u64,
    ) {
        let (x, error) = (values(kind, numel, seed), values("ordinary", numel, !seed));
        check_threshold(kind, &x, &error, x.get(at % (numel + 1)).copied().unwrap_or(0.25), most);
    }

    #[test]
    fn one_number_that_is_not_finite_is_found(numel in 1..2000_usize, at: usize, bad in 0..3_usize, seed: u64) {
        let mut x = values("any", numel, seed);
        for isa in Isa::available() {
            prop_assert!(all_finite_with(isa, &x));
        }
        x[at % numel] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][bad];
        for isa in Isa::available() {
            prop_assert!(!all_finite_with(isa, &x));
        }
    }
}

/// Enough values that a sample is drawn, that it misleads, and that candidates exceed their room.
#[test]
fn many_numbers_of_every_kind() {
    for kind in KINDS {
        let (x, error) = (values(kind, 40_007, 5), values("ordinary", 40_007, 6));
        for count in [0, 1, 1000, 39_900] {
            check_top_k(kind, &x, &error, count);
        }
    }
}

/// The sample sees small values only, and nearly all large ones lie between its rows.
#[test]
fn a_sample_that_misleads_costs_time_only() {
    let numel = 1 << 20;
    let mut x = vec![1.0_f32; numel];
    x[..100].fill(3.0);
    x[numel - 5000..].fill(2.0);
    for count in [1000, 10_000] {
        check_top_k("misleading", &x, &vec![0.5; numel], count);
    }
}

#[test]
fn the_least_of_the_largest_and_what_is_not_zero() {
    let mut selection = Selection::default();
    for kind in KINDS {
        let x = values(kind, 5000, 3);
        for count in [1, 50, 5000] {
            let least = largest(&x, count).iter().map(|&at| x[at as usize].abs()).fold(f32::MAX, f32::min);
            assert_eq!(kth_magnitude(&x, count, &mut selection), least, "{kind}");
        }
        nonzero(&x, &mut selection);
        let expected: Vec<i32> = (0..5000).filter(|&at| magnitude(x[at as usize]) != 0).collect();
        check(kind, &selection, &expected, &x, None);
    }
}
