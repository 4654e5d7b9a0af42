//! The UDP driver on a bad network, with strangers on it, and with peers that go away.

mod desk;

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::ptr::null_mut;

use desk::relay::{Faults, Relay};
use desk::{check, introduce, noise, pair, two, until, whole, Side, HOST};
use tweed_net::ltp::{Cipher, DatagramOptions, Refused};
use tweed_proto::ltp::packet::VERSION;
use tweed_proto::ltp::Outgoing;

#[test]
fn whole_messages_survive_loss_duplication_reordering_and_corruption() {
    let mut refused = Vec::new();
    for seed in 0..6 {
        eprintln!("seed {seed}");
        let sides = two(&DatagramOptions { seed, ..DatagramOptions::default() });
        let relay = Relay::between(&sides, seed, Faults { lost: 30, twice: 30, late: 30, corrupt: 10 });
        for i in 0..4 {
            let body = noise(seed * 10 + i, 400_000);
            check(&sides[0], 1, &sides[1], 0, &body);
            check(&sides[1], 0, &sides[0], 1, &body);
        }
        refused.extend(sides.map(|side| side.datagrams.refused()));
        drop(relay);
    }
    // Of all seeds together: how many packets there are depends on timing, and one in a hundred is corrupt.
    let sum = |count: fn(&Refused) -> u64| refused.iter().map(count).sum::<u64>();
    assert!(sum(|r| r.replayed) > 0 && sum(|r| r.forged) > 0, "{refused:?}");
}

/// Nothing but packets is lost: what introduces two links to each other, and both directions of messages.
#[test]
fn links_begin_and_messages_arrive_where_every_third_packet_is_lost() {
    for seed in 0..4 {
        eprintln!("seed {seed}");
        let sides = two(&DatagramOptions { seed, ..DatagramOptions::default() });
        let relay = Relay::between(&sides, seed, Faults { lost: 300, ..Faults::default() });
        for bytes in [1, 1000, 200_000] {
            let body = noise(seed, bytes);
            check(&sides[0], 1, &sides[1], 0, &body);
            check(&sides[1], 0, &sides[0], 1, &body);
        }
        drop(relay);
    }
}

/// Of a lossy message, each side knows the same ranges to be missing; what is there is right, the rest is zero.
#[test]
fn both_sides_agree_on_what_is_missing() {
    for seed in 0..6 {
        eprintln!("seed {seed}");
        let mut options = DatagramOptions { seed, ..DatagramOptions::default() };
        options.closing.fraction = 0.5;
        options.closing.deadline = Some(std::time::Duration::from_millis(30));
        let sides = two(&options);
        let relay = Relay::between(&sides, seed, Faults { lost: 200, twice: 10, late: 50, corrupt: 10 });
        let bodies: Vec<Vec<u8>> = (0..8).map(|i| noise(seed * 10 + i, 1_000_000)).collect();
        for (i, body) in bodies.iter().enumerate() {
            let what =
                Outgoing { critical: vec![0..1000, 999_000..1_000_000], lossy: true, ..whole(i as u8, body) };
            sides[0].send(1, what, body, i as u64);
            let packet_message = sides[1].desk.packet_message(0);
            let delivered = sides[0].desk.delivered(1, i as u64);
            assert_eq!(delivered, packet_message.missing, "seed {seed}, message {i}");
            let mut expected = body.clone();
            for range in &packet_message.missing {
                assert!(range.start >= 1000 && range.end <= 999_000, "critical bytes are missing: {range:?}");
                expected[range.start as usize..range.end as usize].fill(0);
            }
            assert!(packet_message.body == expected, "seed {seed}: message {i} differs");
        }
        drop(relay);
    }
}

#[test]
fn packets_of_strangers_change_nothing_and_are_counted() {
    let sides = two(&DatagramOptions::default());
    let relay = Relay::between(&sides, 1, Faults::default());
    check(&sides[0], 1, &sides[1], 0, &noise(1, 100_000));
    let target = sides[1].address();
    let seen = relay.seen.lock().expect("no test panics with it").clone();
    let data = |(to, packet): &&(SocketAddr, Vec<u8>)| *to == target && packet[0] & 15 == 1;
    let (_, packet) = seen.iter().rev().find(data).expect("packets have passed");
    let changed = |at: usize| {
        let mut bytes = packet.clone();
        bytes[at] ^= 1;
        bytes
    };
    let (forged, strange) = ([changed(1), changed(8), changed(17), changed(packet.len() - 1)], changed(4));
    let truncated = [&packet[..packet.len() - 1], &packet[..31], &packet[..16]];
    let malformed = [&packet[..15], &[0xff; 100], &changed(0), &changed(2)];
    let stranger = UdpSocket::bind((HOST, 0)).expect("a socket opens");
    let shots = forged.iter().map(Vec::as_slice).chain(truncated).chain(malformed).chain([&*strange, packet]);
    for shot in shots {
        stranger.send_to(shot, target).expect("it leaves");
    }
    let counted = || sides[1].datagrams.refused();
    let expected = Refused { malformed: 4, strange: 1, forged: 7, replayed: 1, unsent: 0 };
    until("all have come", || counted().replayed + counted().forged + counted().malformed >= 12);
    assert_eq!(counted(), expected);
    check(&sides[0], 1, &sides[1], 0, &noise(2, 100_000));
    check(&sides[1], 0, &sides[0], 1, &noise(3, 100_000));
    stranger.set_nonblocking(true).expect("it can be set");
    let answer = stranger.recv_from(&mut [0; 2000]).expect_err("nobody answers a stranger");
    assert_eq!(answer.kind(), ErrorKind::WouldBlock);
}

/// Not even a link number protects then; but what makes no sense costs at most a packet of the number it bears.
#[test]
fn in_the_clear_nonsense_is_counted_and_ignored() {
    let options = DatagramOptions { cipher: Cipher::Clear, ..DatagramOptions::default() };
    let sides = two(&options);
    let to_other = introduce(&sides[0], 1, &sides[1], 0);
    check(&sides[0], 1, &sides[1], 0, &noise(1, 100_000));
    let mut packet = vec![VERSION << 4 | 1, 0, 0, 0];
    packet.extend_from_slice(&to_other[4..8]);
    packet.extend_from_slice(&1000u64.to_le_bytes());
    packet.extend_from_slice(&[0xff; 100]);
    let stranger = UdpSocket::bind((HOST, 0)).expect("a socket opens");
    stranger.send_to(&packet, sides[1].address()).expect("it leaves");
    until("it is counted", || sides[1].datagrams.refused().forged == 1);
    check(&sides[0], 1, &sides[1], 0, &noise(2, 100_000));
    check(&sides[1], 0, &sides[0], 1, &noise(3, 100_000));
}

/// Memory that can be taken away: who reads it then is killed.
struct Page {
    data: *mut u8,
    bytes: usize,
}

impl Page {
    fn new(bytes: usize) -> Page {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh mapping touches nothing that exists.
        let data = unsafe { libc::mmap(null_mut(), bytes, access, kind, -1, 0) };
        assert_ne!(data, libc::MAP_FAILED);
        Page { data: data.cast(), bytes }
    }

    fn forbid(&self) {
        // SAFETY: the range is ours, and nobody has a reference into it.
        assert_eq!(unsafe { libc::mprotect(self.data.cast(), self.bytes, libc::PROT_NONE) }, 0);
    }
}

fn begin(side: &Side, page: &Page, ticket: u64) {
    let what = Outgoing { bytes: page.bytes as u32, ..whole(1, &[]) };
    // SAFETY: the page stays mapped, and is readable until the message is given up.
    unsafe { side.datagrams.send(1, what, page.data, ticket) };
}

fn wait_for_bytes(side: &Side) {
    until("it is under way", || side.datagrams.metrics(0).is_some_and(|m| m.received_bytes > 100_000));
}

#[test]
fn after_cancel_the_memory_is_not_read() {
    let sides = pair(&DatagramOptions::default());
    for ticket in 0..10 {
        let page = Page::new(64 << 20);
        let before = sides[0].datagrams.metrics(1).map_or(0, |metrics| metrics.sent_bytes);
        begin(&sides[0], &page, ticket);
        until("it is under way", || {
            sides[0].datagrams.metrics(1).is_some_and(|metrics| metrics.sent_bytes > before + 100_000)
        });
        sides[0].datagrams.cancel(1, ticket);
        page.forbid();
        check(&sides[0], 1, &sides[1], 0, &noise(ticket, 100_000));
    }
}

#[test]
fn a_peer_dropped_in_the_middle_is_forgotten() {
    let sides = pair(&DatagramOptions::default());
    for ticket in 0..5 {
        let page = Page::new(64 << 20);
        begin(&sides[0], &page, ticket);
        wait_for_bytes(&sides[1]);
        sides[0].datagrams.drop_peer(1);
        page.forbid();
        assert_eq!(sides[0].datagrams.metrics(1), None);
        // Nothing is left to send to, and that is no error.
        begin(&sides[0], &page, 99);
        introduce(&sides[0], 1, &sides[1], 0);
        check(&sides[0], 1, &sides[1], 0, &noise(ticket, 100_000));
    }
}

#[test]
fn after_close_no_memory_is_read() {
    let sides = pair(&DatagramOptions::default());
    let page = Page::new(64 << 20);
    begin(&sides[0], &page, 1);
    wait_for_bytes(&sides[1]);
    sides[0].datagrams.close();
    page.forbid();
}
