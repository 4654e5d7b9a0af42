//! Two links and a network between them.

mod support;

use std::time::Duration;

use support::pair::{good, message, reliable, Fate, Pair, DELAY, LONG};
use tweed_proto::ltp::{Closing, Outgoing, Settings, Transmit};
use tweed_rng::Rng;

/// Loses one packet in so many, at random.
fn losing(seed: u64, one_in: usize) -> impl FnMut(usize, &Transmit) -> Fate {
    let mut rng = Rng::new(seed);
    move |_, _| if rng.index(one_in) == 0 { Vec::new() } else { vec![DELAY] }
}

#[test]
fn messages_arrive_whole_over_a_good_network() {
    let mut pair = Pair::new(&Default::default());
    let ids: Vec<_> =
        [0, 1, 4, 1000, 1_000_000].into_iter().map(|bytes| pair.send(0, message(bytes))).collect();
    assert!(pair.run(LONG, &mut good));
    for id in ids {
        assert_eq!(pair.ends[0].given[&id].delivered, Some(Vec::new()));
    }
}

#[test]
fn both_directions_fall_silent_once_all_is_said() {
    let mut pair = Pair::new(&Default::default());
    pair.send(0, message(100_000));
    pair.send(1, reliable(50_000));
    assert!(pair.run(LONG, &mut good));
    let mut steps = 0;
    while pair.step(LONG, &mut good) {
        steps += 1;
        assert!(steps < 100, "they go on talking");
    }
    assert_eq!(pair.next(), None);
}

#[test]
fn a_reliable_message_arrives_whole_whatever_is_lost() {
    for seed in 0..20 {
        let mut pair = Pair::new(&Default::default());
        pair.send(0, reliable(300_001));
        pair.send(1, reliable(100_000));
        assert!(pair.run(LONG, &mut losing(seed, 4)), "seed {seed} hangs");
    }
}

#[test]
fn a_lossy_message_closes_early_and_both_sides_agree() {
    let closing = Closing {
        fraction: 0.9,
        slack: Duration::from_millis(30),
        deadline: Some(Duration::from_millis(200)),
    };
    let mut cut = 0;
    for seed in 0..20 {
        let mut pair = Pair::new(&[(); 2].map(|()| Settings { closing, seed, ..Settings::default() }));
        for round in 0..10 {
            let critical = vec![0..100, 5000..5001, 299_000..300_000];
            pair.send(0, Outgoing { round, critical, ..message(300_000) });
            assert!(pair.run(LONG, &mut losing(seed * 10 + u64::from(round), 10)), "seed {seed} hangs");
            pair.now += DELAY;
        }
        cut += pair.ends[0].given.values().filter(|given| given.delivered != Some(Vec::new())).count();
    }
    assert!(cut > 0, "all of 200 messages arrived whole");
}

#[test]
fn nothing_is_cut_where_nothing_is_lost() {
    let mut pair = Pair::new(&Default::default());
    for round in 0..100 {
        // Each takes another time: estimates grow, phases change.
        let id = pair.send(0, Outgoing { round, ..message(200_000) });
        assert!(pair.run(LONG * (round + 1), &mut good));
        assert_eq!(pair.ends[0].given[&id].delivered, Some(Vec::new()), "round {round}");
        if round % 10 == 9 {
            let slowest = pair.ends[1].link.metrics().coming_threshold;
            assert!(slowest.is_some());
            pair.ends[1].link.end_epoch(slowest);
        }
    }
}
