//! What sorted values come to.

use std::cmp::Ordering;
use std::ops::{Add, Div, Sub};

/// A float32 or float64.
pub trait Number:
    Copy + PartialOrd + Add<Output = Self> + Sub<Output = Self> + Div<Output = Self> + Send + Sync
{
    /// The value zero.
    const ZERO: Self;
    /// Exact up to 2^24.
    fn from_count(count: usize) -> Self;
    /// An order of all values, also of those that are no number.
    fn order(&self, other: &Self) -> Ordering;
}

impl Number for f32 {
    const ZERO: f32 = 0.0;
    fn from_count(count: usize) -> f32 {
        count as f32
    }
    fn order(&self, other: &f32) -> Ordering {
        self.total_cmp(other)
    }
}

impl Number for f64 {
    const ZERO: f64 = 0.0;
    fn from_count(count: usize) -> f64 {
        count as f64
    }
    fn order(&self, other: &f64) -> Ordering {
        self.total_cmp(other)
    }
}

/// Which of a number's values count. `f` of `n` may be anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The one in the middle, or the mean of the two.
    Median,
    /// The mean without the `f` lowest and the `f` highest.
    TrimmedMean,
    /// The mean of the `n - f` nearest to the median.
    MeanAroundMedian,
    /// The mean of the `n - f` nearest to the trimmed mean.
    Phocas,
    /// The mean of the `n - 2 f` nearest to the median.
    Bulyan,
}

impl Rule {
    /// The rules by name.
    pub fn named(name: &str) -> Option<Rule> {
        match name {
            "median" => Some(Rule::Median),
            "trimmed_mean" => Some(Rule::TrimmedMean),
            "mean_around_median" => Some(Rule::MeanAroundMedian),
            "phocas" => Some(Rule::Phocas),
            "bulyan" => Some(Rule::Bulyan),
            _ => None,
        }
    }

    /// The result of sorted rows, at least one and more than `2 * hostile`; each lane by itself.
    #[inline(always)]
    pub(super) fn of<T: Number, const WIDTH: usize>(self, rows: &[[T; WIDTH]], hostile: usize) -> [T; WIDTH] {
        let keep = rows.len() - hostile;
        match self {
            Rule::Median => median(rows),
            Rule::TrimmedMean => mean(&rows[hostile..keep]),
            Rule::MeanAroundMedian => mean_around(median(rows), rows, keep),
            Rule::Phocas => mean_around(mean(&rows[hostile..keep]), rows, keep),
            Rule::Bulyan => mean_around(median(rows), rows, keep - hostile),
        }
    }
}

#[inline(always)]
fn median<T: Number, const WIDTH: usize>(rows: &[[T; WIDTH]]) -> [T; WIDTH] {
    let middle = rows.len() / 2;
    match rows.len() % 2 {
        1 => rows[middle],
        _ => mean(&rows[middle - 1..=middle]),
    }
}

#[inline(always)]
fn mean<T: Number, const WIDTH: usize>(rows: &[[T; WIDTH]]) -> [T; WIDTH] {
    let (mut total, count) = ([T::ZERO; WIDTH], T::from_count(rows.len()));
    for row in rows {
        for (total, &value) in total.iter_mut().zip(row) {
            *total = *total + value;
        }
    }
    total.map(|total| total / count)
}

/// The mean of the `keep` values nearest to `centre`; of two as near the lower one. They lie side by side. Only they are
/// added: what is far away may be large enough to hide all others.
#[inline(always)]
fn mean_around<T: Number, const WIDTH: usize>(
    centre: [T; WIDTH],
    rows: &[[T; WIDTH]],
    keep: usize,
) -> [T; WIDTH] {
    let (mut first, one) = ([T::ZERO; WIDTH], T::from_count(1));
    // The window goes on as long as what it gains is nearer than what it loses, and then never again.
    for (lost, gained) in rows.iter().zip(&rows[keep..]) {
        for lane in 0..WIDTH {
            let nearer = gained[lane] - centre[lane] < centre[lane] - lost[lane];
            first[lane] = first[lane] + if nearer { one } else { T::ZERO };
        }
    }
    let (mut total, count) = ([T::ZERO; WIDTH], T::from_count(keep));
    for (at, row) in rows.iter().enumerate() {
        let this = T::from_count(at);
        for lane in 0..WIDTH {
            let counts = first[lane] <= this && this < first[lane] + count;
            total[lane] = total[lane] + if counts { row[lane] } else { T::ZERO };
        }
    }
    total.map(|total| total / count)
}
