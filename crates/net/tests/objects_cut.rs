//! Objects of processes whose links break: the sockets under them are shut, again and again. All sockets of this program are,
//! so this is its only test that has any.

use std::mem::ManuallyDrop;
use std::net::{Shutdown, TcpStream};
use std::os::fd::FromRawFd;
use std::sync::Arc;
use std::time::Duration;

use tweed_kernels::{DType, ReduceOp};
use tweed_net::{Costs, Mode, ObjectId, Objects, ObjectsOptions, Rule};

const PATIENCE: Duration = Duration::from_secs(20);
const SIZE: usize = 32 << 20;

fn open() -> Objects {
    let costs =
        Costs { latency: Duration::from_micros(50), rate: 1 << 30, message: Duration::from_micros(20) };
    Objects::open(ObjectsOptions {
        address: ([127, 0, 0, 1], 0).into(),
        secret: None,
        testbed: None,
        most_bytes: 1 << 30,
        wire_only: true,
        costs,
        silence: PATIENCE,
        patience: PATIENCE,
    })
    .unwrap()
}

/// Shuts all connected sockets. Returns how many there were.
fn cut_all() -> usize {
    let fds = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut cut = 0;
    for fd in fds.filter_map(|name| name.parse().ok()) {
        // SAFETY: nothing is closed here; what is no socket has no address.
        let socket = ManuallyDrop::new(unsafe { TcpStream::from_raw_fd(fd) });
        if socket.peer_addr().is_ok() {
            cut += usize::from(socket.shutdown(Shutdown::Both).is_ok());
        }
    }
    cut
}

fn put(at: &Objects, id: u128, value: u8) {
    let kind = (DType::U8, &[SIZE as u64][..]);
    at.put(ObjectId(id), kind, &[&vec![value; SIZE]], PATIENCE, &|| false).unwrap();
}

/// Cuts all links as often as more of an object has come, until all is here. Returns how often.
fn cut_while_it_comes(at: &Objects, id: u128) -> u64 {
    let (mut mark, mut cuts) = (0, 0);
    while mark < SIZE as u64 {
        let found = at.mark(ObjectId(id), mark, PATIENCE).unwrap();
        mark = found.unwrap_or_else(|| panic!("nothing of {id} has come")).1;
        if mark < SIZE as u64 && mark > 0 {
            cut_all();
            cuts += 1;
        }
    }
    cuts
}

fn bytes_of(at: &Objects, call: u64) -> Vec<u8> {
    let (number, result) = at.ended(PATIENCE).unwrap().remove(0);
    let finished = result.unwrap();
    assert_eq!(number, call);
    // SAFETY: all of it is there, and nobody writes it any more.
    unsafe { std::slice::from_raw_parts(finished.memory.address(), finished.memory.len()) }.to_vec()
}

#[test]
fn links_that_break_lose_no_process_and_bring_at_most_one_block_twice() {
    let all: Vec<Objects> = (0..3).map(|_| open()).collect();
    let descriptors: Vec<Vec<u8>> = all.iter().map(|one| one.descriptor().to_vec()).collect();
    all.iter().for_each(|one| assert_eq!(one.meet(&descriptors, &|| false).unwrap(), []));

    let twice = || all.iter().map(Objects::taken_twice).sum::<u64>();
    let call = all[1].get(ObjectId(1), Some(PATIENCE)).unwrap();
    put(&all[0], 1, 7);
    let cuts = cut_while_it_comes(&all[1], 1);
    assert!(bytes_of(&all[1], call).iter().all(|&byte| byte == 7));
    // Of each message that was on its way; a record of a link may be part of it.
    let most = cuts * 2 * (SIZE as u64 / 16 + (64 << 10));
    println!("a copy: {cuts} cuts, {} bytes came twice", twice());
    assert!(cuts > 0 && twice() <= most, "{cuts} cuts, {} bytes came twice", twice());

    (0..3).for_each(|one| put(&all[one], 10 + one as u128, one as u8 + 1));
    let ids: Arc<[ObjectId]> = (10..13).map(ObjectId).collect();
    let how = (ReduceOp::Sum, Mode::Whole, Rule::Measured);
    let sum = all[0].reduce(ObjectId(2), Arc::clone(&ids), 3, how, Some(PATIENCE)).unwrap();
    let copy = all[2].get(ObjectId(2), Some(PATIENCE)).unwrap();
    let cuts = cut_while_it_comes(&all[2], 2);
    println!("a sum and its copy: {cuts} cuts, {} bytes came twice", twice());
    assert!(bytes_of(&all[0], sum).iter().all(|&byte| byte == 6));
    assert!(bytes_of(&all[2], copy).iter().all(|&byte| byte == 6));

    assert!(cut_all() > 0);
    put(&all[2], 3, 9);
    let call = all[1].get(ObjectId(3), Some(PATIENCE)).unwrap();
    assert!(bytes_of(&all[1], call).iter().all(|&byte| byte == 9));
}
