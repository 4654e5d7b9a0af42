//! Forks of the process that runs the test.

use std::os::unix::net::UnixStream;

use super::*;
use crate::link::shared_memory::Arena;

/// Runs `inside` in a forked child and returns its exit code.
fn in_child(inside: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child calls no more than it is given, and ends without running destructors.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let code = inside();
        // SAFETY: ends the process.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: the child is ours.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        -libc::WTERMSIG(status)
    }
}

#[test]
fn a_child_has_its_own_copy_of_what_users_hold() {
    let arena = Arena::new().expect("a memfd can be made");
    let block = arena.lend(3 * 4096).expect("there is room");
    // SAFETY: the block is ours, and as long as that.
    let bytes = unsafe { std::slice::from_raw_parts_mut(block, 3 * 4096) };
    (bytes[0], bytes[8192]) = (7, 9);
    let code = in_child(|| {
        let same = bytes[0] == 7 && bytes[4096] == 0 && bytes[8192] == 9;
        bytes.fill(1);
        i32::from(!same)
    });
    assert_eq!((code, bytes[0], bytes[8192]), (0, 7, 9));
}

#[test]
fn a_child_cannot_touch_what_the_engine_holds() {
    let arena = Arena::new().expect("a memfd can be made");
    let offset = arena.take(4096).expect("there is room");
    let staging = arena.mapping.at(offset, 4096).expect("it lies within");
    // SAFETY: the block is ours.
    let code = in_child(|| unsafe {
        staging.write_volatile(1);
        0
    });
    // SAFETY: as above.
    assert_eq!((code, unsafe { staging.read() }), (-libc::SIGSEGV, 0));
}

#[test]
fn a_connection_ends_with_the_process_although_its_child_lives() {
    let _arena = Arena::new().expect("a memfd can be made");
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    shut_in_children(&ours);
    let descriptor = ours.as_raw_fd();
    let before = identity(descriptor);
    let code = in_child(|| i32::from(identity(descriptor) == before));
    assert_eq!(code, 0, "the child still has the socket");
    assert_eq!(
        in_child(|| i32::from(identity(theirs.as_raw_fd()).is_none())),
        0,
        "the other end was not registered"
    );
}

#[test]
fn a_stranger_with_the_number_of_a_closed_socket_stays_open() {
    let _arena = Arena::new().expect("a memfd can be made");
    let (ours, _theirs) = UnixStream::pair().expect("a pair of sockets");
    shut_in_children(&ours);
    let number = ours.as_raw_fd();
    drop(ours);
    let (stranger, _other) = UnixStream::pair().expect("a pair of sockets");
    // SAFETY: a free number, or one that another test of this process has taken meanwhile and may lose.
    unsafe { libc::fcntl(stranger.as_raw_fd(), libc::F_DUPFD, number) };
    let expected = identity(stranger.as_raw_fd());
    assert_eq!(in_child(|| i32::from(identity(stranger.as_raw_fd()) != expected)), 0);
}

#[test]
fn what_a_child_frees_stays_the_parents() {
    let arena = Arena::new().expect("a memfd can be made");
    let block = arena.lend(4096).expect("there is room");
    // SAFETY: the block is ours.
    unsafe { block.write(7) };
    let code = in_child(|| i32::from(arena.free(block)));
    // SAFETY: as above.
    assert_eq!((code, unsafe { block.read() }), (0, 7), "the child has freed it");
    assert!(arena.free(block));
}
