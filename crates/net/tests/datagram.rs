//! The UDP driver over loopback: whole messages, whatever the seal, the kernel's help and the peer's address.

mod desk;

use std::net::UdpSocket;

use desk::{check, introduce, noise, pair, through, two, until, whole, Side, HOST};
use tweed_net::ltp::{Cipher, DatagramOptions, PacketMessage, Refused};

fn options(cipher: Cipher) -> DatagramOptions {
    DatagramOptions { cipher, ..DatagramOptions::default() }
}

/// Sends messages of all kinds of lengths both ways at once, and checks each byte.
fn exchange(sides: &[Side; 2], rounds: u64) {
    let lengths = [0, 4, 1000, 1152, 1156, 70_000, 1 << 20, 3 << 20];
    let bodies: Vec<Vec<u8>> =
        (0..rounds).flat_map(|i| lengths.map(|len| noise(i * 100 + len as u64, len))).collect();
    for (ticket, body) in bodies.iter().enumerate() {
        sides[0].send(1, whole(ticket as u8, body), body, ticket as u64);
        sides[1].send(0, whole(ticket as u8, body), body, ticket as u64);
    }
    for (side, peer) in [(&sides[0], 1), (&sides[1], 0)] {
        let mut came: Vec<PacketMessage> = bodies.iter().map(|_| side.desk.packet_message(peer)).collect();
        came.sort_by_key(|packet_message| packet_message.tag[0]);
        for (ticket, (packet_message, body)) in came.iter().zip(&bodies).enumerate() {
            assert_eq!(packet_message.tag, [ticket as u8; 48]);
            assert!(packet_message.body == *body, "message {ticket} of {} bytes differs", body.len());
            assert_eq!(packet_message.missing, []);
            assert_eq!(side.desk.delivered(peer, ticket as u64), []);
        }
    }
}

#[test]
fn many_messages_cross_in_both_directions() {
    for cipher in [Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305, Cipher::Clear] {
        let sides = pair(&options(cipher));
        exchange(&sides, 5);
        for (side, peer) in [(&sides[0], 1), (&sides[1], 0)] {
            assert_eq!(side.datagrams.refused(), Refused::default(), "{cipher:?}");
            assert!(side.datagrams.metrics(peer).expect("they have met").received_packets > 0);
        }
    }
}

#[test]
fn without_segmentation_or_receive_offload_it_works_as_well() {
    let plain = DatagramOptions { offload: false, ..DatagramOptions::default() };
    let offload = DatagramOptions::default();
    for both in [[&plain, &plain], [&plain, &offload], [&offload, &plain]] {
        let sides = both.map(Side::open);
        introduce(&sides[0], 1, &sides[1], 0);
        exchange(&sides, 2);
    }
}

#[test]
fn ciphers_may_differ_by_direction() {
    let sides = [Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305].map(|cipher| Side::open(&options(cipher)));
    introduce(&sides[0], 1, &sides[1], 0);
    exchange(&sides, 1);
}

#[test]
fn packets_become_as_large_as_loopback_carries() {
    let sides = pair(&DatagramOptions::default());
    let body = noise(1, 1 << 20);
    let payload = || sides[0].datagrams.metrics(1).expect("they have met").payload;
    until("packets are of 65,000 bytes", || {
        check(&sides[0], 1, &sides[1], 0, &body);
        payload() == 65_000
    });
    check(&sides[0], 1, &sides[1], 0, &body);
}

#[test]
fn one_socket_serves_many_peers() {
    let hub = Side::open(&DatagramOptions::default());
    let others = [(); 8].map(|()| Side::open(&DatagramOptions::default()));
    let bodies: Vec<Vec<u8>> = (0..8).map(|seed| noise(seed, 300_000)).collect();
    for (number, other) in others.iter().enumerate() {
        introduce(&hub, number, other, 100 + number);
        other.send(100 + number, whole(number as u8, &bodies[number]), &bodies[number], 1);
        hub.send(number, whole(number as u8, &bodies[number]), &bodies[number], 1);
    }
    for (number, other) in others.iter().enumerate() {
        assert!(hub.desk.packet_message(number).body == bodies[number], "from {number}");
        assert!(other.desk.packet_message(100 + number).body == bodies[number], "to {number}");
        assert_eq!(hub.desk.delivered(number, 1), []);
        assert_eq!(other.desk.delivered(100 + number, 1), []);
    }
}

#[test]
fn packets_that_are_faster_than_the_invitation_are_taken() {
    let sides = two(&DatagramOptions::default());
    let (to_one, to_other) = (sides[0].datagrams.invite(1), sides[1].datagrams.invite(0));
    let body = noise(1, 100_000);
    sides[0].send(1, whole(3, &body), &body, 3);
    sides[0].datagrams.accept(1, HOST, &to_other).expect("a good invitation");
    until("packets have come", || sides[1].datagrams.metrics(0).is_some_and(|f| f.received_packets > 0));
    sides[1].datagrams.accept(0, HOST, &to_one).expect("a good invitation");
    assert!(sides[1].desk.packet_message(0).body == body);
    assert_eq!(sides[0].desk.delivered(1, 3), []);
}

#[test]
fn the_address_of_a_peer_is_learnt_from_its_packets() {
    let sides = two(&DatagramOptions::default());
    let nobody =
        UdpSocket::bind((HOST, 0)).expect("a socket opens").local_addr().expect("it is bound").port();
    let (to_one, to_other) = (sides[0].datagrams.invite(1), sides[1].datagrams.invite(0));
    sides[1].datagrams.accept(0, HOST, &through(to_one, nobody)).expect("a good invitation");
    sides[0].datagrams.accept(1, HOST, &to_other).expect("a good invitation");
    exchange(&sides, 1);
}

#[test]
fn a_restarted_peer_takes_the_place_of_the_old() {
    let [one, old] = pair(&DatagramOptions::default());
    let body = noise(1, 200_000);
    check(&one, 1, &old, 0, &body);
    let new = Side::open(&DatagramOptions::default());
    introduce(&one, 1, &new, 0);
    old.send(0, whole(1, &body), &body, 1);
    check(&one, 1, &new, 0, &body);
    check(&new, 0, &one, 1, &body);
    until("the old one is a stranger", || one.datagrams.refused().strange > 0);
    assert!(!old.desk.has_delivered(0, 1));
    old.datagrams.cancel(0, 1);
}

#[test]
fn invitations_that_do_not_fit_are_refused() {
    let sealed = Side::open(&DatagramOptions::default());
    let clear = Side::open(&options(Cipher::Clear));
    let (good, bad) = (clear.datagrams.invite(0), sealed.datagrams.invite(0));
    let wrong = [
        (sealed.datagrams.accept(0, HOST, &good), "the other does not"),
        (clear.datagrams.accept(0, HOST, &bad), "the other does not"),
        (sealed.datagrams.accept(0, HOST, &bad[1..]), "bytes"),
        (sealed.datagrams.accept(5, HOST, &bad), "not invited"),
    ];
    for (result, word) in wrong {
        let error = result.expect_err("it is refused");
        assert!(error.contains(word) && error.contains("rank"), "{error}");
    }
    let [one, other] = pair(&DatagramOptions::default());
    let again = one.datagrams.accept(1, HOST, &other.datagrams.invite(7));
    assert!(again.expect_err("it is refused").contains("come before"));
}
