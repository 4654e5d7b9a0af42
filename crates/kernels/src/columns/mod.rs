//! Of each number of a buffer, what the values of many senders come to when some of them may be anything.
//!
//! A block of numbers is sorted side by side, a row per sender, and a [`Rule`] reads the sorted rows. Sorting takes no
//! branches, so it costs the same whatever hostile senders send.

mod network;
mod rules;
#[cfg(test)]
mod tests;

pub use rules::{Number, Rule};

use crate::isa::Isa;

/// Numbers that are sorted side by side.
const WIDTH: usize = 64;

/// Leaves in `out` what `rule` makes of the `rows`, number by number; zero where no row has a value. Returns whether all
/// values are finite: if not, what is left in `out` means nothing.
///
/// * `hostile`: how many rows may be anything; taken as less than half of the values that a number has.
/// * `rows`: a sender's values each, as many as `out` has.
/// * `missing`: nothing, or for each row nothing or a byte per number, not zero where the row has no value.
///
/// The result depends on the values alone, but for the sign of a zero: not on the order of rows, the instruction set, or how
/// a buffer is cut.
///
/// Cost: each row is read once, and each value is compared some `log² n / 2` times for `n` rows. Where a row has no value, 64
/// numbers around it are sorted one by one, many times slower.
///
/// # Panics
/// If there are no rows, one is not as long as `out`, or `missing` is neither empty nor one for each row.
pub fn combine<T: Number>(
    rule: Rule,
    hostile: usize,
    rows: &[&[T]],
    missing: &[Option<&[u8]>],
    out: &mut [T],
) -> bool {
    combine_with(Isa::best(), rule, hostile, rows, missing, out)
}

/// [`combine`] with the code of an instruction set that this CPU has.
fn combine_with<T: Number>(
    isa: Isa,
    rule: Rule,
    hostile: usize,
    rows: &[&[T]],
    missing: &[Option<&[u8]>],
    out: &mut [T],
) -> bool {
    assert!(!rows.is_empty(), "there are no rows to combine");
    let lengths = rows.iter().map(|row| row.len()).chain(missing.iter().flatten().map(|m| m.len()));
    assert!(lengths.into_iter().all(|length| length == out.len()), "all rows are as long as the result");
    assert!(missing.is_empty() || missing.len() == rows.len(), "a mask, or none, for each row");
    let network = network::comparators(rows.len());
    let job = Combine { rule, hostile, rows, missing, network: &network, out };
    match isa {
        Isa::Baseline => job.run(),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this CPU has it.
        Isa::Avx2 => unsafe { avx2(job) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: likewise.
        Isa::Avx512 => unsafe { avx512(job) },
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2<T: Number>(job: Combine<'_, T>) -> bool {
    job.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,avx512f")]
fn avx512<T: Number>(job: Combine<'_, T>) -> bool {
    job.run()
}

struct Combine<'a, T> {
    rule: Rule,
    hostile: usize,
    rows: &'a [&'a [T]],
    missing: &'a [Option<&'a [u8]>],
    network: &'a [(usize, usize)],
    out: &'a mut [T],
}

impl<T: Number> Combine<'_, T> {
    #[inline(always)]
    fn run(self) -> bool {
        let mut block = vec![[T::ZERO; WIDTH]; self.rows.len()];
        let mut spoilt = [T::ZERO; WIDTH];
        for from in (0..self.out.len()).step_by(WIDTH) {
            let to = self.out.len().min(from + WIDTH);
            for (row, values) in block.iter_mut().zip(self.rows) {
                row[..to - from].copy_from_slice(&values[from..to]);
                #[expect(clippy::eq_op, reason = "a number less itself is zero, unless it is not finite")]
                for (spoilt, &value) in spoilt.iter_mut().zip(&*row) {
                    *spoilt = *spoilt + (value - value);
                }
            }
            if self.missing.iter().flatten().any(|lost| lost[from..to].iter().any(|&byte| byte != 0)) {
                for at in from..to {
                    self.out[at] = self.of_present(at);
                }
            } else {
                network::sort(&mut block, self.network);
                let found = self.of_sorted(&block);
                self.out[from..to].copy_from_slice(&found[..to - from]);
            }
        }
        spoilt.iter().all(|&spoilt| spoilt == T::ZERO)
    }

    #[inline(always)]
    fn of_sorted<const WIDTH: usize>(&self, rows: &[[T; WIDTH]]) -> [T; WIDTH] {
        self.rule.of(rows, self.hostile.min((rows.len() - 1) / 2))
    }

    /// The result at `at`, of the rows that have a value there.
    fn of_present(&self, at: usize) -> T {
        let lost = |lost: &Option<&[u8]>| lost.is_some_and(|lost| lost[at] != 0);
        let present = self.rows.iter().zip(self.missing).filter(|(_, missing)| !lost(missing));
        let mut column: Vec<[T; 1]> = present.map(|(row, _)| [row[at]]).collect();
        column.sort_unstable_by(|a, b| a[0].order(&b[0]));
        if column.is_empty() {
            T::ZERO
        } else {
            self.of_sorted(&column)[0]
        }
    }
}
