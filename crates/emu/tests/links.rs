//! What becomes of packets: laws over drawn links, and shares over many packets.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tweed_emu::{Direction, Directions, Fate, Links};

const HOSTS: usize = 3;
const MANY: u32 = 200_000;

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

fn any_way() -> impl Strategy<Value = Direction> {
    let chances = (0..500_000u32, 0..500_000u32, 0..500_000u32);
    (0..50_000u64, 0..50_000u64, chances, 1.0..20.0f64).prop_map(|(delay_us, jitter, chances, burst)| {
        let (reorder_ppm, duplicate_ppm, loss_ppm) = chances;
        Direction { delay_us, jitter_us: jitter.min(delay_us), reorder_ppm, duplicate_ppm, loss_ppm, burst }
    })
}

fn any_ways() -> impl Strategy<Value = Directions> {
    (vec(any_way(), HOSTS), vec(any_way(), HOSTS)).prop_map(|(up, down)| Directions { up, down })
}

/// Packets: what time passed since the one before, who sends, to whom.
fn any_packets() -> impl Strategy<Value = Vec<(u64, usize, usize)>> {
    vec((0..3_000u64, 0..HOSTS, 0..HOSTS), 1..200)
}

fn alike(direction: Direction) -> Directions {
    Directions { up: vec![direction; HOSTS], down: vec![Direction::default(); HOSTS] }
}

/// What becomes of many packets from host 0 to host 1, one each 100 µs.
fn fates(directions: Directions, seed: u64) -> Vec<Fate> {
    let mut links = Links::new(directions, seed);
    (0..MANY).map(|index| links.decide(us(100) * index, 0, 1)).collect()
}

fn share(fates: &[Fate], what: impl Fn(&Fate) -> bool) -> f64 {
    fates.iter().filter(|fate| what(fate)).count() as f64 / fates.len() as f64
}

proptest! {
    #[test]
    fn packets_that_are_not_held_back_keep_their_order(directions in any_ways(), later in any_ways(),
                                                       packets in any_packets(), seed: u64) {
        let mut links = Links::new(directions, seed);
        let mut now = Duration::ZERO;
        let mut last = BTreeMap::new();
        for (index, (passed, from, to)) in packets.iter().enumerate() {
            if index == packets.len() / 2 {
                links.change(later.clone());
            }
            now += us(*passed);
            if let Fate::Passes { at, held_back: false, .. } = links.decide(now, *from, *to) {
                let before = last.insert((*from, *to), at);
                prop_assert!(before.is_none_or(|before| before <= at));
            }
        }
    }

    #[test]
    fn a_packet_takes_at_least_the_delay_less_the_jitter(directions in any_ways(), packets in any_packets(), seed: u64) {
        let mut links = Links::new(directions.clone(), seed);
        let mut now = Duration::ZERO;
        for (passed, from, to) in packets {
            now += us(passed);
            if let Fate::Passes { at, .. } = links.decide(now, from, to) {
                let (up, down) = (directions.up[from], directions.down[to]);
                prop_assert!(at >= now + us(up.delay_us - up.jitter_us + down.delay_us - down.jitter_us));
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_fates(directions in any_ways(), packets in any_packets(), seed: u64) {
        let mut twins = [Links::new(directions.clone(), seed), Links::new(directions, seed)];
        let mut now = Duration::ZERO;
        for (passed, from, to) in packets {
            now += us(passed);
            let [one, other] = twins.each_mut().map(|links| links.decide(now, from, to));
            prop_assert_eq!(one, other);
        }
    }

    #[test]
    fn without_chances_each_packet_arrives_once_and_after_exactly_the_delay(delay_us in 0..1_000_000u64, seed: u64) {
        let mut links = Links::new(alike(Direction { delay_us, ..Direction::default() }), seed);
        let fate = links.decide(us(7), 2, 0);
        prop_assert_eq!(fate, Fate::Passes { at: us(7 + delay_us), held_back: false, again: false });
    }
}

#[test]
fn loss_has_the_share_and_the_bursts_that_are_asked_for() {
    for (loss_ppm, burst) in [(10_000, 4.0), (30_000, 1.0), (200_000, 10.0)] {
        let fates = fates(alike(Direction { loss_ppm, burst, ..Direction::default() }), 1);
        let bursts = fates.windows(2).filter(|two| two[0] != Fate::Lost && two[1] == Fate::Lost).count();
        let lost = share(&fates, |fate| *fate == Fate::Lost);
        let mean = lost * f64::from(MANY) / bursts as f64;
        assert!((lost / (f64::from(loss_ppm) / 1e6) - 1.0).abs() < 0.1, "{lost} of {loss_ppm} ppm lost");
        assert!((mean / burst - 1.0).abs() < 0.1, "bursts of {mean}, not {burst}");
    }
}

#[test]
fn copies_and_overtaken_packets_have_their_shares() {
    let direction =
        Direction { delay_us: 5_000, reorder_ppm: 20_000, duplicate_ppm: 10_000, ..Direction::default() };
    let fates = fates(alike(direction), 2);
    let copies = share(&fates, |fate| matches!(fate, Fate::Passes { again: true, .. }));
    let late = share(&fates, |fate| matches!(fate, Fate::Passes { held_back: true, .. }));
    assert!((copies - 0.01).abs() < 0.001, "{copies}");
    assert!((late - 0.02).abs() < 0.0015, "{late}");
}

#[test]
fn a_packet_that_is_held_back_is_overtaken_by_2_ms_at_most() {
    let direction = Direction { delay_us: 5_000, reorder_ppm: 500_000, ..Direction::default() };
    for (index, fate) in (0..).zip(fates(alike(direction), 3)) {
        let Fate::Passes { at, held_back, .. } = fate else { panic!("nothing is lost here") };
        let on_time = us(100) * index + us(5_000);
        assert!(if held_back { at - on_time < us(2_000) } else { at == on_time });
    }
}

#[test]
fn jitter_spreads_the_delay_evenly_where_packets_are_far_apart() {
    let mut links =
        Links::new(alike(Direction { delay_us: 10_000, jitter_us: 4_000, ..Direction::default() }), 4);
    let delays: Vec<Duration> = (0..10_000u32)
        .map(|index| {
            let now = us(100_000) * index;
            let Fate::Passes { at, .. } = links.decide(now, 0, 1) else { panic!("nothing is lost here") };
            at - now
        })
        .collect();
    let mean = delays.iter().sum::<Duration>() / delays.len() as u32;
    assert!(delays.iter().all(|delay| (us(6_000)..=us(14_000)).contains(delay)));
    assert!(mean.abs_diff(us(10_000)) < us(100), "{mean:?}");
}

#[test]
fn the_sender_and_the_receiver_both_add_their_delay() {
    let mut directions = alike(Direction { delay_us: 1_000, ..Direction::default() });
    directions.up[0].delay_us = 20_000;
    directions.down[1].delay_us = 300;
    let mut links = Links::new(directions, 5);
    let mut due = |from, to| match links.decide(Duration::ZERO, from, to) {
        Fate::Passes { at, .. } => at,
        Fate::Lost => panic!("nothing is lost here"),
    };
    assert_eq!([due(0, 1), due(1, 0), due(2, 1)], [us(20_300), us(1_000), us(1_300)]);
}

#[test]
fn lateness_stays_far_below_the_shortest_delay() {
    let grain = |delay_us| Links::new(alike(Direction { delay_us, ..Direction::default() }), 0).grain();
    assert_eq!([grain(0), grain(80), grain(50_000)], [us(0), us(10), us(100)]);
}

fn group_fates(directions: Directions) -> Vec<Vec<(usize, Fate)>> {
    let mut links = Links::new(directions, 5);
    (0..MANY).map(|index| links.decide_group(us(100) * index, 0)).collect()
}

#[test]
fn a_multicast_packet_crosses_the_senders_uplink_once() {
    let mut directions = alike(Direction { delay_us: 500, jitter_us: 100, ..Direction::default() });
    directions.up[0] =
        Direction { loss_ppm: 100_000, burst: 1.0, jitter_us: 100, delay_us: 500, ..Direction::default() };
    let fates = group_fates(directions);
    assert!(fates.iter().all(|copies| copies.iter().map(|(to, _)| *to).eq(1..HOSTS)));
    assert!(
        fates.iter().all(|copies| copies.iter().all(|(_, fate)| *fate == copies[0].1)),
        "one loss, one delay"
    );
    let lost = fates.iter().filter(|copies| copies[0].1 == Fate::Lost).count() as f64 / f64::from(MANY);
    assert!((lost - 0.1).abs() < 0.01, "{lost}");
}

#[test]
fn each_receivers_downlink_has_its_own_copy() {
    let mut directions = alike(Direction::default());
    directions.down[1] = Direction { loss_ppm: 200_000, burst: 1.0, ..Direction::default() };
    directions.down[2] = Direction { delay_us: 700, ..Direction::default() };
    let fates = group_fates(directions);
    let lost = |to: usize| fates.iter().filter(|copies| copies[to - 1].1 == Fate::Lost).count();
    assert!((lost(1) as f64 / f64::from(MANY) - 0.2).abs() < 0.01);
    assert_eq!(lost(2), 0);
    let due = us(700);
    assert_eq!(fates[0][1], (2, Fate::Passes { at: due, held_back: false, again: false }));
}
