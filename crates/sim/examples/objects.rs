//! Objects under many seeds of deaths, broken links and late arrivals: `objects FIRST COUNT [newcomers]`, where processes come, too; of a single
//! seed also what happens in it.
//! Prints what was wrong, and what was tried.

use tweed_sim::objects::{describe, scenario, verify, with_newcomers, Report};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let first: u64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(0);
    let count: u64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let setup = if arguments.next().is_some() { with_newcomers } else { scenario };
    if count == 1 {
        println!("{}", describe(setup(first)));
    }
    let (mut total, mut wrong) = (Report::default(), 0u64);
    for seed in first..first + count {
        match verify(&setup(seed)) {
            Ok(report) => total.add(report),
            Err(text) => {
                wrong += 1;
                if wrong <= 5 {
                    println!("seed {seed}: {text}");
                }
            }
        }
    }
    let Report { ended, lost, deaths, cuts, mixed, proven } = total;
    println!(
        "{count} seeds from {first}: {wrong} wrong; {deaths} deaths; {cuts} links broke; {ended} calls ended, {lost} could not"
    );
    println!("{mixed} sums of which ranges sum different ids; {proven} logs proven");
    std::process::exit(i32::from(wrong > 0));
}
