//! The UDP driver over loopback: whole messages both ways, whatever the seal and the kernel's help.

mod desk;

use desk::{noise, pair, whole, Side};
use tweed_net::datagram::{Cipher, DatagramOptions, Parcel};

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
        let mut came: Vec<Parcel> = bodies.iter().map(|_| side.desk.parcel(peer)).collect();
        came.sort_by_key(|parcel| parcel.tag[0]);
        for (ticket, (parcel, body)) in came.iter().zip(&bodies).enumerate() {
            assert_eq!(parcel.tag, [ticket as u8; 48]);
            assert!(parcel.body == *body, "message {ticket} of {} bytes differs", body.len());
            assert_eq!(parcel.missing, []);
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
            assert_eq!(side.datagrams.refused(), Default::default(), "{cipher:?}");
            assert!(side.datagrams.figures(peer).expect("they have met").received_packets > 0);
        }
    }
}
