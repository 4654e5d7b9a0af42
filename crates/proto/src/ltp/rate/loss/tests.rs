//! Rounds over a path that loses by itself, in bursts or not.

use tweed_rng::Rng;

use super::*;

const PACKET: u64 = 1452;
/// Packets of a round: 100 Mbit/s at 40 ms.
const ROUND: u64 = 333;

/// A path that loses by itself, in bursts of this mean length (Gilbert 1960).
struct Path {
    loss: f64,
    burst: f64,
    losing: bool,
    rng: Rng,
}

impl Path {
    fn new(loss: f64, burst: f64) -> Path {
        Path { loss, burst, losing: false, rng: Rng::new(3) }
    }

    /// One round over it.
    fn round(&mut self, watch: &mut Watch, queued: bool) -> Verdict {
        for _ in 0..ROUND {
            let before = self.losing;
            let leave = 1.0 / self.burst;
            self.losing = self.rng.bernoulli(match before {
                _ if self.burst == 1.0 => self.loss,
                true => 1.0 - leave,
                false => self.loss * leave / (1.0 - self.loss),
            });
            match self.losing {
                true => watch.add(0, PACKET, u64::from(!before)),
                false => watch.add(PACKET, 0, 0),
            }
        }
        watch.end_round(PACKET, queued, true)
    }
}

fn settle(path: &mut Path, watch: &mut Watch) {
    for _ in 0..40 {
        path.round(watch, false);
    }
}

fn overflows(verdicts: &[Verdict]) -> usize {
    verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Overflow(_))).count()
}

#[test]
fn loss_of_the_path_is_learnt_whatever_it_is() {
    for loss in [0.0, 0.001, 0.03, 0.1, 0.2, 0.28] {
        for burst in [1.0, 5.0, 20.0] {
            // Of eight rounds, so many with a queue of our own.
            for queued in [0, 2] {
                let (mut path, mut watch) = (Path::new(loss, burst), Watch::new());
                let mut rounds = |count: u32| -> Vec<Verdict> {
                    (0..count).map(|at| path.round(&mut watch, at % 8 < queued)).collect()
                };
                let (early, later) = (rounds(40), rounds(400));
                let seen = format!("{loss} by {burst}, queued {queued}");
                assert!(overflows(&early) <= 4, "{seen}: {} at first", overflows(&early));
                assert!(overflows(&later) <= 24, "{seen}: {} of 400", overflows(&later));
                let ambient = watch.ambient();
                assert!((ambient - loss).abs() < 0.01 + 0.6 * loss, "{seen}: found {ambient}");
            }
        }
    }
}

#[test]
fn loss_that_goes_away_is_an_overflow_and_changes_nothing() {
    let (mut path, mut watch) = (Path::new(0.01, 1.0), Watch::new());
    settle(&mut path, &mut watch);
    let known = watch.ambient();
    for _ in 0..50 {
        path.loss = 0.12;
        assert!(matches!(path.round(&mut watch, true), Verdict::Overflow(excess) if excess > 0.04));
        path.loss = 0.01;
        // What is found lost in the next round was sent before.
        (0..4).for_each(|_| assert_eq!(path.round(&mut watch, false), Verdict::Usual));
    }
    assert!((watch.ambient() - known).abs() < 0.01);
}

#[test]
fn loss_that_stays_is_not_fought() {
    let (mut path, mut watch) = (Path::new(0.0, 1.0), Watch::new());
    settle(&mut path, &mut watch);
    path.loss = 0.15;
    let verdicts: Vec<Verdict> = (0..4).map(|_| path.round(&mut watch, false)).collect();
    assert!(matches!(verdicts[0], Verdict::Overflow(_)));
    assert!(verdicts.contains(&Verdict::Innocent), "{verdicts:?}");
    assert!((watch.ambient() - 0.15).abs() < 0.05);
}

#[test]
fn only_what_is_always_lost_is_made_up_for() {
    let (mut path, mut watch) = (Path::new(0.2, 1.0), Watch::new());
    assert_eq!(watch.steady(), 0.0, "nothing is known");
    settle(&mut path, &mut watch);
    assert!((0.1..0.2).contains(&watch.steady()), "{}", watch.steady());
    path.loss = 0.0;
    path.round(&mut watch, false);
    assert_eq!(watch.steady(), 0.0, "a slow turn without loss");
}

#[test]
fn what_is_lost_while_a_long_queue_is_empty_is_the_paths_own() {
    for loss in [0.1, 0.2] {
        let (mut path, mut watch) = (Path::new(loss, 1.0), Watch::new());
        path.round(&mut watch, true);
        watch.saw_queue();
        path.round(&mut watch, false);
        path.round(&mut watch, false);
        // Rounds with a queue are no trial.
        let verdicts: Vec<Verdict> = (0..8).map(|_| path.round(&mut watch, true)).collect();
        assert_eq!(overflows(&verdicts), 0, "{loss}: {:.3}", watch.ambient());
        assert!((watch.ambient() - loss).abs() < 0.05, "{loss}: {:.3}", watch.ambient());
    }
}
