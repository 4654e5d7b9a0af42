//! Things come out when they are due, and in order.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tweed_emu::{target, Queue, Target, MAC_PREFIX};

proptest! {
    #[test]
    fn everything_comes_out_once_by_time_and_then_by_arrival(times in vec(1..50u64, 0..200)) {
        let mut queue = Queue::default();
        for (index, at) in times.iter().enumerate() {
            queue.push(Duration::from_millis(*at), (*at, index));
        }
        let mut out = Vec::new();
        while let Some(at) = queue.next_timeout() {
            prop_assert!(queue.pop(at - Duration::from_nanos(1)).is_none());
            out.extend(queue.pop(at));
        }
        let mut expected: Vec<_> = times.iter().copied().zip(0..).collect();
        expected.sort_unstable();
        prop_assert_eq!(out, expected);
    }

    #[test]
    fn any_bytes_have_a_target_among_the_hosts(bytes in vec(any::<u8>(), 0..40), hosts in 0..254usize) {
        match target(&bytes, hosts) {
            Target::Packet(host) | Target::Host(host) => prop_assert!(host < hosts),
            Target::All | Target::Group | Target::Nobody => {}
        }
    }
}

#[test]
fn hosts_are_known_by_their_addresses() {
    const IPV4: [u8; 2] = [8, 0];
    const ARP: [u8; 2] = [8, 6];
    let frame = |mac: &[u8], kind: [u8; 2]| [mac, &[0; 6], &kind].concat();
    let mac = |last: u8| [&MAC_PREFIX[..], &[last]].concat();
    assert_eq!(target(&frame(&mac(1), IPV4), 2), Target::Packet(0));
    assert_eq!(target(&frame(&mac(2), ARP), 2), Target::Host(1));
    assert_eq!(target(&frame(&mac(3), IPV4), 2), Target::Nobody);
    assert_eq!(target(&frame(&mac(0), IPV4), 2), Target::Nobody);
    assert_eq!(target(&frame(&[0xff; 6], ARP), 2), Target::All);
    assert_eq!(target(&frame(&[9; 6], IPV4), 2), Target::Nobody);
    assert_eq!(target(&frame(&[1, 0, 0x5e, 7, 7, 7], IPV4), 2), Target::Group);
    assert_eq!(target(&frame(&[1, 0, 0x5e, 7, 7, 7], ARP), 2), Target::Nobody);
    assert_eq!(target(&[0xff; 13], 2), Target::Nobody);
}
