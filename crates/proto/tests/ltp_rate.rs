//! Rate control over a bottleneck in virtual time: goodput, fairness, loss, and how it meets changes.

mod support;

use std::time::Duration;

use support::path::{Flow, Path, Window, World, PACKET};
use tweed_proto::ltp::rate::Rate;

/// More than any test sends.
const ENDLESS: u64 = 1 << 40;
/// Bytes of a packet on the wire.
const WIRE: f64 = PACKET as f64 + 48.0;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn ltp() -> Flow {
    Flow::new(Box::new(Rate::new()))
}

fn path(mbit: u64, rtt: Duration, loss: f64, queue: u64) -> Path {
    Path { bits: mbit * 1_000_000, rtt, loss, burst: 1.0, queue }
}

/// The share of the link's rate that the flow delivers from now on for `time`.
fn goodput(world: &mut World, flow: usize, time: Duration) -> f64 {
    let before = world.flows[flow].delivered;
    world.run(world.now + time);
    let packets = (world.flows[flow].delivered - before) as f64;
    packets * WIRE * 8.0 / time.as_secs_f64() / world.path.bits as f64
}

/// Runs until every flow has delivered all it was given.
fn finish(world: &mut World) -> Duration {
    let begin = world.now;
    while !world.flows.iter().all(Flow::done) {
        assert!(world.step(begin + ms(60_000)), "nothing moves any more");
    }
    world.now - begin
}

#[test]
fn random_loss_costs_no_rate() {
    for queue in [32, 100, 333, 1000] {
        for loss in [0.0, 0.001, 0.01, 0.03, 0.05] {
            let mut world = World::new(path(100, ms(40), loss, queue), 1, vec![ltp()]);
            world.offer(0, ENDLESS);
            world.run(ms(1000));
            let share = goodput(&mut world, 0, ms(5000)) / (1.0 - loss);
            assert!(share > 0.95, "queue {queue}, loss {loss}: {share:.3} of what the link lets through");
        }
    }
}

#[test]
fn heavy_loss_and_bursts_cost_no_rate() {
    for (rtt, queue) in [(ms(1), 100), (ms(40), 100), (ms(40), 333), (ms(150), 1000)] {
        for (loss, burst) in [(0.03, 5.0), (0.03, 20.0), (0.1, 1.0), (0.1, 5.0), (0.1, 20.0), (0.2, 1.0)] {
            let mut world = World::new(Path { burst, ..path(100, rtt, loss, queue) }, 1, vec![ltp()]);
            world.offer(0, ENDLESS);
            world.run(ms(1000) + rtt * 20);
            let share = goodput(&mut world, 0, ms(5000)) / (1.0 - loss);
            // A round of 1 ms at this rate is not longer than two such bursts.
            let least = if rtt == ms(1) && burst * loss > 1.0 { 0.65 } else { 0.85 };
            assert!(
                share > least,
                "{rtt:?}, queue {queue}, loss {loss} by {burst}: {share:.3} of what the link lets through"
            );
        }
    }
}

#[test]
fn an_unknown_link_is_filled_within_a_few_round_trips() {
    for (mbit, rtt) in [(100, ms(40)), (1000, ms(10)), (500, ms(1))] {
        let mut world = World::new(path(mbit, rtt, 0.0, 4000), 1, vec![ltp()]);
        world.offer(0, ENDLESS);
        world.run(rtt * 6);
        let share = goodput(&mut world, 0, rtt * 10);
        assert!(share > 0.9, "{mbit} Mbit/s, {rtt:?}: {share:.3}");
    }
}

#[test]
fn a_message_every_second_starts_at_the_right_rate() {
    let mut world = World::new(path(100, ms(40), 0.0, 333), 1, vec![ltp()]);
    for message in 0..20 {
        world.offer(0, 300);
        let took = finish(&mut world);
        // 36 ms on the wire, one round trip, and acknowledgements that wait for company.
        assert!(message == 0 || took < ms(80), "message {message} took {took:?}");
        world.run(world.now + ms(1000));
    }
    assert_eq!(world.flows[0].overflowed, 0);
}

#[test]
fn short_messages_at_first_do_not_end_the_start_up() {
    let mut world = World::new(path(100, ms(40), 0.0, 333), 1, vec![ltp()]);
    for _ in 0..20 {
        world.offer(0, 4);
        finish(&mut world);
    }
    world.offer(0, 2000);
    let took = finish(&mut world);
    // 240 ms on the wire, and the round trips in which the rate doubles.
    assert!(took < ms(240 + 6 * 40), "{took:?}");
}

#[test]
fn messages_shorter_than_a_round_trip_do_not_lower_the_estimate() {
    let mut world = World::new(path(100, ms(40), 0.0, 333), 1, vec![ltp()]);
    world.offer(0, 2000);
    finish(&mut world);
    for _ in 0..50 {
        world.run(world.now + ms(200));
        world.offer(0, 20);
        finish(&mut world);
    }
    world.run(world.now + ms(200));
    world.offer(0, 2000);
    let took = finish(&mut world);
    assert!(took < ms(240 + 40 + 20), "{took:?}");
}

#[test]
fn the_rate_follows_the_link_down_and_up() {
    let mut world = World::new(path(100, ms(40), 0.001, 333), 1, vec![ltp()]);
    world.offer(0, ENDLESS);
    world.run(ms(2000));
    world.path.bits = 20_000_000;
    world.run(ms(4000));
    let (sent, lost) = (world.flows[0].sent, world.flows[0].overflowed);
    let low = goodput(&mut world, 0, ms(3000));
    let overflow = (world.flows[0].overflowed - lost) as f64 / (world.flows[0].sent - sent) as f64;
    assert!(low > 0.95 && overflow < 0.02, "down: {low:.3} of the link, {overflow:.3} lost");
    world.path.bits = 100_000_000;
    world.run(world.now + ms(4000));
    let high = goodput(&mut world, 0, ms(2000));
    assert!(high > 0.9, "up: {high:.3}");
}

#[test]
fn a_second_without_a_path_costs_little_more_than_the_second() {
    let mut world = World::new(path(100, ms(40), 0.001, 333), 1, vec![ltp()]);
    world.offer(0, ENDLESS);
    world.run(ms(2000));
    world.cut = true;
    world.run(ms(3000));
    world.cut = false;
    world.run(ms(3000) + ms(40) * 8);
    let share = goodput(&mut world, 0, ms(1000));
    assert!(share > 0.9, "{share:.3}");
}

/// Times of 60 rounds in which 8 senders push 690 packets each, after 15 rounds to learn, and the share that the queue
/// dropped meanwhile.
fn incast(path: Path) -> (Vec<Duration>, f64) {
    let mut world = World::new(path, 7, (0..8).map(|_| ltp()).collect());
    let count = |world: &World, of: fn(&Flow) -> u64| world.flows.iter().map(of).sum::<u64>() as f64;
    let (mut times, mut before) = (Vec::new(), (0.0, 0.0));
    for round in 0..75 {
        if round == 15 {
            before = (count(&world, |flow| flow.sent), count(&world, |flow| flow.overflowed));
        }
        (0..8).for_each(|flow| world.offer(flow, 690));
        times.push(finish(&mut world));
        world.run(world.now + ms(5));
    }
    let sent = count(&world, |flow| flow.sent) - before.0;
    let mut times = times.split_off(15);
    times.sort();
    (times, (count(&world, |flow| flow.overflowed) - before.1) / sent)
}

#[test]
fn eight_senders_into_a_short_queue_finish_together_and_near_the_links_bound() {
    // Round trip, queue, times of the bound (bytes over the rate, and a round trip), share lost.
    let rows = [
        (Duration::from_micros(100), 16, 1.15, 0.22),
        (Duration::from_micros(100), 32, 1.15, 0.17),
        (Duration::from_micros(100), 64, 1.15, 0.10),
        (ms(1), 16, 1.3, 0.17),
        (ms(1), 32, 1.3, 0.15),
        (ms(1), 64, 1.3, 0.12),
        (ms(40), 32, 1.6, 0.04),
        (ms(40), 64, 1.6, 0.03),
    ];
    for (rtt, queue, most, most_lost) in rows {
        let (times, lost) = incast(path(500, rtt, 0.0, queue));
        let bound = 8.0 * 690.0 * WIRE * 8.0 / 500e6 + rtt.as_secs_f64();
        let (middle, tail) = (times[times.len() / 2].as_secs_f64(), times[times.len() - 1].as_secs_f64());
        let seen =
            format!("{rtt:?}, queue {queue}: {:.2} of the bound, tail {:.2}", middle / bound, tail / middle);
        assert!(middle / bound < most && tail / middle < 1.6 && lost < most_lost, "{seen}, {lost:.3} lost");
    }
}

#[test]
fn endless_senders_into_a_short_queue_get_fair_shares() {
    // At 0.1 ms a share is a fraction of a packet, and windows are of whole ones.
    for (rtt, queue, fair) in [(Duration::from_micros(100), 32, 0.7), (ms(1), 32, 0.8), (ms(1), 64, 0.9)] {
        let mut world = World::new(path(500, rtt, 0.0, queue), 3, (0..8).map(|_| ltp()).collect());
        (0..8).for_each(|flow| world.offer(flow, ENDLESS));
        world.run(ms(2000));
        let before: Vec<u64> = world.flows.iter().map(|flow| flow.delivered).collect();
        world.run(ms(7000));
        let shares: Vec<f64> =
            world.flows.iter().zip(before).map(|(flow, before)| (flow.delivered - before) as f64).collect();
        let sum: f64 = shares.iter().sum();
        let jain = sum * sum / 8.0 / shares.iter().map(|share| share * share).sum::<f64>();
        let used = sum * WIRE * 8.0 / 5.0 / 500e6;
        assert!(
            jain > fair && used > 0.97,
            "{rtt:?}, queue {queue}: Jain's index {jain:.3}, {used:.3} of the link"
        );
    }
}

#[test]
fn cubic_beside_it_keeps_a_share_and_so_does_it() {
    // Queues of one or two round trips' worth. Into half a one, cubic's share is some 10 to 20 %.
    for (mbit, rtt, queue) in [(100, ms(10), 83), (100, ms(10), 166), (500, ms(1), 82), (100, ms(40), 666)] {
        let flows = vec![ltp(), Flow::new(Box::new(Window::cubic()))];
        let mut world = World::new(path(mbit, rtt, 0.0, queue), 3, flows);
        (0..2).for_each(|flow| world.offer(flow, ENDLESS));
        world.run(ms(30_000));
        let [ours, theirs] = [0, 1].map(|flow| world.flows[flow].delivered as f64);
        let share = ours / (ours + theirs);
        assert!((0.2..0.8).contains(&share), "{mbit} Mbit/s, {rtt:?}, queue {queue}: {share:.3}");
    }
}

#[test]
fn cubic_in_a_deep_queue_does_not_starve_it() {
    // Four round trips' worth. Who began with a short round trip must not hold cubic's queue for its own.
    for (mbit, rtt, queue) in
        [(100, ms(20), 666), (100, ms(10), 333), (100, ms(40), 1333), (500, ms(10), 1666)]
    {
        for cubic_at in [ms(0), ms(5000)] {
            let flows = vec![ltp(), Flow::new(Box::new(Window::cubic()))];
            let mut world = World::new(path(mbit, rtt, 0.0, queue), 3, flows);
            world.offer(0, ENDLESS);
            world.run(cubic_at);
            world.offer(1, ENDLESS);
            let before = world.flows[0].delivered;
            world.run(cubic_at + ms(12_000));
            let (ours, theirs) =
                ((world.flows[0].delivered - before) as f64, world.flows[1].delivered as f64);
            let share = ours / (ours + theirs);
            assert!(
                (0.34..0.8).contains(&share),
                "{mbit} Mbit/s, {rtt:?}, cubic after {cubic_at:?}: {share:.3}"
            );
        }
    }
}

#[test]
fn senders_that_have_emptied_a_path_fill_it_again() {
    // The second begins in the first one's queue, so both look for the round trip of the empty path after a while.
    let mut world = World::new(path(500, ms(1), 0.0, 12_500), 3, vec![ltp(), ltp()]);
    for flow in 0..2 {
        world.offer(flow, ENDLESS);
        world.run(world.now + ms(37));
    }
    let delivered = |world: &World| world.flows.iter().map(|flow| flow.delivered).sum::<u64>();
    world.run(ms(12_000));
    let before = delivered(&world);
    world.run(ms(17_000));
    let used = (delivered(&world) - before) as f64 * WIRE * 8.0 / 5.0 / 500e6;
    assert!(used > 0.95, "{used:.3} of the link");
}

#[test]
fn endless_senders_do_not_keep_a_deep_queue_full() {
    // Each begins in the queue of those before it. Three tenths of a second fit into it.
    for (mbit, rtt, senders) in [(100, ms(20), 2), (100, ms(20), 8), (500, ms(1), 8), (500, ms(40), 8)] {
        let queue = mbit * 25;
        let mut world = World::new(path(mbit, rtt, 0.0, queue), 3, (0..senders).map(|_| ltp()).collect());
        for flow in 0..senders {
            world.offer(flow, ENDLESS);
            world.run(world.now + ms(37));
        }
        world.run(ms(25_000));
        let longest = (0..50).map(|_| {
            world.run(world.now + ms(100));
            world.flows[0].rtt
        });
        let longest = longest.max().expect("some are looked at");
        assert!(longest < rtt * 7, "{mbit} Mbit/s, {rtt:?}, {senders} senders: {longest:?}");
    }
}
