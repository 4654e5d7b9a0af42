use proptest::prelude::*;

use super::*;

const RULES: [Rule; 5] =
    [Rule::Median, Rule::TrimmedMean, Rule::MeanAroundMedian, Rule::Phocas, Rule::Bulyan];

/// The rule by its definition, one value after the other.
fn plain(rule: Rule, f: usize, mut values: Vec<f64>) -> f64 {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    values.sort_by(f64::total_cmp);
    let (n, middle) = (values.len(), values.len() / 2);
    let median = if n % 2 == 1 { values[middle] } else { mean(&values[middle - 1..=middle]) };
    let trimmed = mean(&values[f..n - f]);
    let around = |centre: f64, far: usize| {
        let mut nearest = values.clone();
        nearest.sort_by(|a, b| (a - centre).abs().total_cmp(&(b - centre).abs()).then(a.total_cmp(b)));
        let mut nearest = nearest[..n - far].to_vec();
        nearest.sort_by(f64::total_cmp);
        mean(&nearest)
    };
    match rule {
        Rule::Median => median,
        Rule::TrimmedMean => trimmed,
        Rule::MeanAroundMedian => around(median, f),
        Rule::Phocas => around(trimmed, f),
        Rule::Bulyan => around(median, 2 * f),
    }
}

/// Rows of any numbers, or of few different ones, as rows that are mostly zeros have.
fn rows(count: usize, numel: usize) -> impl Strategy<Value = Vec<Vec<f64>>> {
    let any = proptest::collection::vec(-1e6..1e6_f64, numel);
    let few = proptest::collection::vec((-3..=3_i8).prop_map(f64::from), numel);
    prop_oneof![proptest::collection::vec(any, count), proptest::collection::vec(few, count)]
}

fn slices(rows: &[Vec<f64>]) -> Vec<&[f64]> {
    rows.iter().map(Vec::as_slice).collect()
}

#[test]
fn a_network_sorts_whatever_comes() {
    // Zeros and ones suffice (Knuth 5.3.4, theorem Z).
    for rows in 1..=10_usize {
        let network = network::comparators(rows);
        for bits in 0..1_u32 << rows {
            let mut block: Vec<[f32; 1]> = (0..rows).map(|row| [(bits >> row & 1) as f32]).collect();
            network::sort(&mut block, &network);
            assert!(block.is_sorted(), "{rows} rows, {bits:b}: {block:?}");
        }
    }
}

#[test]
fn a_network_is_as_short_as_batcher_s() {
    let lengths: Vec<usize> = [1, 2, 3, 4, 8, 16, 20, 32].map(|n| network::comparators(n).len()).to_vec();
    assert_eq!(lengths, [0, 1, 3, 5, 19, 63, 97, 191]);
}

proptest! {
    #[test]
    fn the_order_of_rows_does_not_matter(found in rows(7, 70), turn in 1..7_usize) {
        let turned: Vec<Vec<f64>> = found[turn..].iter().chain(&found[..turn]).cloned().collect();
        for rule in RULES {
            let (mut one, mut other) = (vec![0.0; 70], vec![1.0; 70]);
            combine(rule, 2, &slices(&found), &[], &mut one);
            combine(rule, 2, &slices(&turned), &[], &mut other);
            prop_assert_eq!(&one, &other, "{:?}", rule);
        }
    }

    #[test]
    fn each_number_is_what_its_definition_says(
        (found, f) in (1..24_usize).prop_flat_map(|n| (rows(n, 70), 0..=(n - 1) / 2)),
    ) {
        for rule in RULES {
            let expected: Vec<f64> =
                (0..70).map(|at| plain(rule, f, found.iter().map(|row| row[at]).collect())).collect();
            for isa in Isa::available() {
                let mut out = vec![f64::NAN; 70];
                prop_assert!(combine_with(isa, rule, f, &slices(&found), &[], &mut out));
                prop_assert!(
                    out.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= 1e-9 * b.abs().max(1.0)),
                    "{rule:?} of {} rows, f={f}, {isa:?}", found.len(),
                );
            }
        }
    }

    #[test]
    fn instruction_sets_agree_to_the_bit(found in (1..12_usize).prop_flat_map(|n| rows(n, 130))) {
        let single: Vec<Vec<f32>> = found.iter().map(|row| row.iter().map(|&v| v as f32).collect()).collect();
        let single: Vec<&[f32]> = single.iter().map(Vec::as_slice).collect();
        for rule in RULES {
            let all: Vec<Vec<f32>> = Isa::available().map(|isa| {
                let mut out = vec![0.0; 130];
                combine_with(isa, rule, 2, &single, &[], &mut out);
                out
            }).collect();
            let bits: Vec<Vec<u32>> = all.iter().map(|out| out.iter().map(|v| v.to_bits()).collect()).collect();
            prop_assert!(bits.iter().all(|out| out == &bits[0]), "{rule:?}");
        }
    }

    #[test]
    fn what_is_missing_is_as_if_nobody_had_sent_it(
        (found, lost) in (2..9_usize).prop_flat_map(|n| {
            (rows(n, 67), proptest::collection::vec(proptest::collection::vec(0..2_u8, 67), n))
        }),
    ) {
        for rule in RULES {
            let missing: Vec<Option<&[u8]>> = lost.iter().map(|lost| Some(lost.as_slice())).collect();
            let mut out = vec![f64::NAN; 67];
            combine(rule, 2, &slices(&found), &missing, &mut out);
            for at in 0..67 {
                let present: Vec<f64> =
                    found.iter().zip(&lost).filter(|(_, lost)| lost[at] == 0).map(|(row, _)| row[at]).collect();
                let f = 2.min(present.len().saturating_sub(1) / 2);
                let expected = if present.is_empty() { 0.0 } else { plain(rule, f, present) };
                prop_assert!((out[at] - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{rule:?} at {at}");
            }
        }
    }
}

#[test]
fn a_hostile_minority_moves_nothing_far() {
    let (honest, huge) = ([1.0_f32, -2.0, 0.5, 1.5, 0.0], [f32::MAX, -f32::MAX]);
    let rows: Vec<Vec<f32>> = honest.iter().chain(&huge).map(|&v| vec![v; 100]).collect();
    let rows: Vec<&[f32]> = rows.iter().map(Vec::as_slice).collect();
    for rule in RULES {
        let mut out = vec![f32::NAN; 100];
        combine(rule, 2, &rows, &[], &mut out);
        assert!(out.iter().all(|v| (-2.0..=1.5).contains(v)), "{rule:?}: {}", out[0]);
    }
}

#[test]
fn what_is_nearest_is_found_among_equal_values() {
    let rows = [[0.0], [0.0], [2.0], [3.0], [10.0]];
    let rows: Vec<&[f64]> = rows.iter().map(|row| &row[..]).collect();
    let mut out = [0.0];
    combine(Rule::MeanAroundMedian, 2, &rows, &[], &mut out);
    assert!((out[0] - 5.0 / 3.0).abs() < 1e-12, "{}", out[0]);
}

#[test]
fn numbers_that_are_none_end_no_process() {
    let rows: Vec<[f32; 1]> =
        (0..40).map(|row| [if row % 3 == 0 { f32::NAN } else { (row * 7 % 11) as f32 }]).collect();
    let rows: Vec<&[f32]> = rows.iter().map(|row| &row[..]).collect();
    let missing: Vec<Option<&[u8]>> = (0..40).map(|row| (row == 1).then_some(&[1_u8][..])).collect();
    assert!(!combine(Rule::Phocas, 3, &rows, &missing, &mut [0.0]));
}

#[test]
fn what_is_not_finite_is_told_wherever_it_lies() {
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for at in [0, 63, 64, 99] {
            let mut rows = vec![vec![1.0_f32; 100]; 3];
            rows[1][at] = value;
            let rows: Vec<&[f32]> = rows.iter().map(Vec::as_slice).collect();
            for isa in Isa::available() {
                assert!(
                    !combine_with(isa, Rule::Median, 1, &rows, &[], &mut [0.0; 100]),
                    "{value} at {at}, {isa:?}"
                );
            }
        }
    }
}

#[test]
#[should_panic(expected = "all rows are as long as the result")]
fn a_short_row_is_refused() {
    combine(Rule::Median, 0, &[&[1.0_f32][..]], &[], &mut [0.0, 0.0]);
}
