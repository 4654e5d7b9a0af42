//! Members under many seeds of faults: `members FIRST COUNT`; of a single seed also what happens in it.
//! Prints what was wrong, and what was tried. `members traffic`: what members say to each other, by their number.

use tweed_sim::members::{describe, traffic, verify, Report};

fn main() {
    if std::env::args().nth(1).as_deref() == Some("traffic") {
        for members in [4, 8, 16, 32, 64, 128, 256] {
            let found = traffic(members);
            println!(
                "{members} members: {:.0} bytes/s each, {:.0} bytes for a loss",
                found.quiet, found.loss
            );
        }
        return;
    }
    let mut arguments = std::env::args().skip(1);
    let first: u64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(0);
    let count: u64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(100_000);
    if count == 1 {
        println!("{}", describe(first));
    }
    let (mut total, mut wrong) = (Report::default(), 0u64);
    for seed in first..first + count {
        match verify(seed) {
            Ok(report) => total.add(report),
            Err(text) => {
                wrong += 1;
                if wrong <= 5 {
                    println!("seed {seed}: {text}");
                }
            }
        }
    }
    let Report { epochs, kills, waiting, messages } = total;
    println!(
        "{count} seeds from {first}: {wrong} wrong; {epochs} epochs, {kills} kills, {messages} messages"
    );
    println!("{waiting} runs end with too few voters or members, which wait");
    std::process::exit(i32::from(wrong > 0));
}
