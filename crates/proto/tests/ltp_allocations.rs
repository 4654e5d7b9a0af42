//! DATA packets take no memory, at either side: only control packets, and growth now and then, do.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use tweed_proto::ltp::{Event, Header, Link, Outgoing, Settings, Transmit};

struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: it hands everything to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller keeps to the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps to the same contract.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn data_packets_take_no_memory() {
    let settings = || Settings { payload: 1452, payload_ceiling: 1452, ..Settings::default() };
    let mut links = [Link::new(settings()), Link::new(settings())];
    let what = Outgoing {
        round: 1,
        tag: [0; 48],
        bytes: 30_000_000,
        value: 4,
        critical: vec![],
        lossy: false,
        urgency: 0,
    };
    links[0].send(what);
    let body = [0; 1452];
    let (mut now, mut data, mut in_data) = (Duration::ZERO, 0_u64, 0_u64);
    loop {
        now += Duration::from_micros(100);
        for from in 0..2 {
            links[from].handle_timeout(now);
            loop {
                let before = COUNT.get();
                let Some(transmit) = links[from].poll_transmit(now) else { break };
                let header = Header::decode(&transmit.header(0)).expect("it was encoded");
                let to = &mut links[1 - from];
                if let Transmit::Control { body, .. } = &transmit {
                    to.handle(now, &header, body).expect("it is the other link's");
                    continue;
                }
                let Transmit::Data { len, .. } = transmit else { unreachable!() };
                let mut body = body;
                body[..16].copy_from_slice(&transmit.body_head().expect("it is DATA"));
                // One in fifty is lost, so that there are holes.
                if header.number % 50 != 7 {
                    to.handle(now, &header, &body[..16 + len as usize]).expect("it is the other link's");
                }
                data += 1;
                in_data += COUNT.get() - before;
            }
        }
        if let Some(Event::Delivered { .. }) = links[0].poll_event() {
            break;
        }
    }
    assert!(data > 20_000);
    assert!(in_data < 200, "{in_data} allocations in {data} DATA packets");
}
