//! The search for the path's packet size.

use std::time::Duration;

use tweed_proto::ltp::mtu::Search;

const NOW: Duration = Duration::from_secs(1);

/// Probes until nothing is left to try, on a path that carries `mtu`.
fn search(search: &mut Search, mtu: u32) -> u32 {
    for _ in 0..100 {
        match search.probe(NOW) {
            Some(size) if size <= mtu => search.acked(size),
            Some(_) => search.lost_probe(NOW),
            None => return search.size(),
        }
    }
    panic!("probes for ever");
}

#[test]
fn finds_the_largest_size_of_the_table_that_fits() {
    for (mtu, ceiling, found) in [
        (1200, 65_000, 1200),
        (1400, 65_000, 1200),
        (1452, 65_000, 1452),
        (9000, 65_000, 8952),
        (65_507, 65_000, 65_000),
        (65_507, 30_000, 30_000),
        (65_507, 1300, 1300),
    ] {
        assert_eq!(search(&mut Search::new(1200, ceiling), mtu), found, "{mtu} {ceiling}");
    }
}

#[test]
fn a_size_that_failed_is_tried_again_after_pauses_that_double() {
    let mut path = Search::new(1200, 65_000);
    assert_eq!(search(&mut path, 1452), 1452);
    let mut now = NOW;
    for pause in [1, 2, 4, 8].map(Duration::from_secs) {
        assert_eq!(path.probe(now + pause - Duration::from_nanos(1)), None);
        now += pause;
        for _ in 0..3 {
            assert_eq!(path.probe(now), Some(8952));
            path.lost_probe(now);
        }
    }
}

#[test]
fn a_black_hole_falls_back_and_random_loss_does_not() {
    let mut path = Search::new(1200, 65_000);
    search(&mut path, 8952);
    for _ in 0..1000 {
        assert!(!path.lost(NOW, 8952));
        path.acked(8952);
        assert!(!path.lost(NOW, 1200), "a small packet says nothing about large ones");
    }
    assert!((1..100).any(|_| path.lost(NOW, 8952)));
    assert_eq!(path.size(), 1200);
    assert!((1..100).all(|_| !path.lost(NOW, 1200)));
}
