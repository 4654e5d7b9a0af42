//! Files that are mapped, kept and used again, in one process and in forks of it.

use std::os::unix::fs::MetadataExt;

use super::*;

fn first(of: &Mapped) -> u8 {
    // SAFETY: nobody writes it meanwhile.
    unsafe { of.start.as_ptr().read() }
}

#[test]
fn what_is_mapped_stays_and_what_is_written_there_is_ones_own() {
    let made = Mapped::make(10).expect("a file is made");
    // SAFETY: nobody else has it.
    unsafe { made.start.as_ptr().write(7) };
    let (pid, id) = (std::process::id(), made.id());
    let read = [(); 2].map(|()| Mapped::open(pid, id, 10).expect("it is opened"));
    // SAFETY: as above.
    unsafe { read[0].start.as_ptr().write(8) };
    let passed_on = Mapped::open(pid, read[1].id(), 10).expect("a neighbour passes it on");
    drop(made);
    assert_eq!((first(&read[0]), first(&read[1]), first(&passed_on)), (8, 7, 7));
    assert!(Mapped::open(pid, id, 10).is_err(), "its maker has it no more");
}

#[test]
fn what_its_maker_writes_later_is_seen() {
    let made = Mapped::make(2 * PAGE).expect("a file is made");
    let read = Mapped::open(std::process::id(), made.id(), 2 * PAGE as u64).expect("it is opened");
    assert_eq!(first(&read), 0, "a page that was read before it was written");
    // SAFETY: nobody else writes it.
    unsafe { made.start.as_ptr().write(7) };
    assert_eq!(first(&read), 7);
}

#[test]
fn what_is_not_the_memory_that_was_named_is_not_opened() {
    let (made, pid) = (Mapped::make(10).expect("a file is made"), std::process::id());
    let other = [1, 1 << 100].map(|bit| FileId { tag: made.id().tag ^ bit, ..made.id() });
    let null = File::open("/dev/null").expect("it is there");
    let null = FileId { descriptor: null.as_raw_fd() as u32, ..made.id() };
    assert!(other.iter().all(|&other| Mapped::open(pid, other, 10).is_err()));
    assert!(Mapped::open(pid, null, 0).is_err());
    assert!(Mapped::open(pid, made.id(), 1 << 20).is_err(), "it is not that long");
}

#[test]
fn others_may_read_it_and_nobody_cuts_it_off() {
    let made = Mapped::make(PAGE).expect("a file is made");
    assert_eq!(made.file.metadata().expect("it is known").mode() & 0o7777, MODE);
    assert!(made.file.set_len(0).is_err());
    // SAFETY: nobody else has it.
    assert!(unsafe { made.write(1, &[5; 7]) });
    // SAFETY: as above.
    assert_eq!(unsafe { std::slice::from_raw_parts(made.start.as_ptr(), 3) }, [0, 5, 5]);
    let read = Mapped::open(std::process::id(), made.id(), PAGE as u64).expect("it is opened");
    // SAFETY: as above.
    assert!(!unsafe { read.write(1, &[6; 7]) });
}

fn opened(made: &Mapped) -> Mapped {
    Mapped::open(std::process::id(), made.id(), 10).expect("it is opened")
}

#[test]
fn what_is_still_read_holds_no_other_object() {
    let mut made = Mapped::make(10).expect("a file is made");
    let read = [(); 2].map(|()| opened(&made));
    assert!(made.retire() && !made.renew());
    let [one, other] = read;
    assert!(one.retire() && !made.renew());
    drop(other);
    assert!(made.renew() && made.renew(), "nobody has been told of it in between");
    let _one = opened(&made);
    assert!(!made.renew());
}

#[test]
fn who_was_told_of_it_and_comes_too_late_reads_no_other_object() {
    let mut made = Mapped::make(10).expect("a file is made");
    let (before, mut kept) = (made.id(), opened(&made));
    assert!(kept.retire() && made.renew());
    assert!(Mapped::open(std::process::id(), before, 10).is_err());
    assert!(!kept.reopen(before));
    assert!(made.renew(), "who comes too late holds nothing");
    assert!(kept.reopen(made.id()) && !made.renew());
    assert_eq!(kept.id().tag, made.id().tag, "a neighbour passes it on");
}

#[test]
fn what_is_kept_shows_what_is_written_next() {
    let mut made = Mapped::make(3 * PAGE).expect("a file is made");
    let mut kept = opened(&made);
    assert_eq!((first(&kept), kept.retire(), made.retire(), made.renew()), (0, true, true, true));
    // SAFETY: nobody has it.
    assert!(!unsafe { made.write(0, &[7]) }, "its pages are there, and a copy is faster");
    // SAFETY: as above.
    unsafe { made.start.as_ptr().write(7) };
    assert!(kept.reopen(made.id()));
    assert_eq!(first(&kept), 7);
}

#[test]
fn a_mapping_with_pages_of_its_own_is_not_kept() {
    let made = Mapped::make(3 * PAGE).expect("a file is made");
    let (read, spoilt) = (opened(&made), opened(&made));
    assert_eq!((first(&read), first(&spoilt)), (0, 0));
    // SAFETY: nobody else has it.
    unsafe { spoilt.start.as_ptr().add(2 * PAGE).write(8) };
    assert!(read.retire() && !spoilt.retire());
}

#[test]
fn a_mapping_that_got_pages_of_its_own_while_nobody_read_is_not_reopened() {
    let mut made = Mapped::make(3 * PAGE).expect("a file is made");
    let mut kept = opened(&made);
    assert!(kept.retire() && made.renew());
    // SAFETY: nobody else has it. `mlockall` does as much.
    unsafe { kept.start.as_ptr().write_volatile(8) };
    assert!(!kept.reopen(made.id()) && made.renew());
}

#[test]
fn another_file_is_not_reopened() {
    let [made, other] = [(); 2].map(|()| Mapped::make(10).expect("a file is made"));
    let (mut kept, mut own) = (opened(&made), made);
    assert!(kept.retire() && !kept.reopen(other.id()));
    assert!(!own.reopen(own.id()) && !kept.renew(), "who made it writes it, and others do not");
}

#[test]
fn what_a_fork_holds_is_not_used_again() {
    let (mut made, idle) = (Mapped::make(10).expect("a file is made"), Mapped::make(10).expect("another"));
    let (read, mut kept) = (opened(&made), opened(&idle));
    assert!(kept.retire());
    let mut ends = [0; 2];
    // SAFETY: the child waits until the pipe's other end is closed, and ends without running destructors.
    let child = unsafe {
        libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC);
        libc::fork()
    };
    if child == 0 {
        // SAFETY: the child's own.
        unsafe {
            libc::close(ends[1]);
            libc::read(ends[0], [0u8; 1].as_mut_ptr().cast(), 1);
            libc::_exit(0);
        }
    }
    assert!(!read.retire() && !made.retire() && !idle.retire());
    drop(read);
    assert!(!made.renew(), "the child has what this process has read");
    assert!(kept.reopen(idle.id()) && kept.retire(), "that of which nobody read when it was forked is kept");
    // SAFETY: the child is ours.
    unsafe {
        for end in ends {
            libc::close(end);
        }
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    assert!(made.renew());
}

#[test]
fn a_fork_sees_what_was_there_and_what_it_writes_stays_its_own() {
    let made = Mapped::make(2 * PAGE).expect("a file is made");
    let read = Mapped::open(std::process::id(), made.id(), 2 * PAGE as u64).expect("it is opened");
    // SAFETY: nobody else has it.
    unsafe { made.start.as_ptr().write(7) };
    // SAFETY: the child makes plain system calls, and ends without running destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_right = first(&made) == 7 && first(&read) == 7;
        // SAFETY: the child's own.
        let is_shut = unsafe {
            made.start.as_ptr().write(1);
            read.start.as_ptr().write(2);
            libc::fcntl(made.id().descriptor as i32, libc::F_GET_SEALS) < 0
        };
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!is_right || !is_shut)) };
    }
    let mut status = 0;
    // SAFETY: the child is ours.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!((status, first(&made), first(&read)), (0, 7, 7));
}
