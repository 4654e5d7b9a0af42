//! Whole engines under many seeds: `engines FIRST COUNT [SABOTAGE]`; of a single seed also
//! what happens in it. Prints what was wrong, and how often each fault came.

use std::collections::BTreeMap;

use tweed_sim::engines::{describe, run, Fault, Sabotage};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let first: u64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(0);
    let count: u64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(10_000);
    if count == 1 {
        println!("{}", describe(first));
    }
    let name = arguments.next();
    let sabotage = name.map(|name| {
        let found = Sabotage::ALL.into_iter().find(|sabotage| format!("{sabotage:?}") == name);
        found.unwrap_or_else(|| panic!("SABOTAGE is one of {:?}", Sabotage::ALL))
    });
    let (mut wrong, mut well, mut failed) = (0u64, 0u64, 0u64);
    let mut faults: BTreeMap<Fault, u64> = BTreeMap::new();
    for seed in first..first + count {
        match run(seed, sabotage) {
            Ok(report) => {
                well += report.well;
                failed += report.failed;
                report.faults.iter().for_each(|&fault| *faults.entry(fault).or_default() += 1);
            }
            Err(text) => {
                wrong += 1;
                if wrong <= 5 {
                    println!("seed {seed}: {text}");
                }
                if sabotage.is_some() {
                    println!("found after {} seeds", seed - first + 1);
                    return;
                }
            }
        }
    }
    println!("{count} seeds from {first}: {wrong} wrong; calls: {well} ended well, {failed} with an error; faults: {faults:?}");
    std::process::exit(i32::from(wrong > 0));
}
