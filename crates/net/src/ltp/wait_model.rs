//! The waker under loom: a caller that leaves work and wakes the thread, in all interleavings.

use std::sync::Arc;

use loom::thread;

use super::*;
use crate::model;
use crate::sync::atomic::AtomicU32;

const NONE: RawFd = -1;

/// A thread that works and sleeps, and what callers have left for it.
struct Worker {
    waker: Waker,
    work: AtomicU32,
}

impl Worker {
    fn new() -> Arc<Worker> {
        let waker = Waker::new().expect("nothing of the kernel's is needed");
        Arc::new(Worker { waker, work: AtomicU32::new(0) })
    }

    fn caller(self: &Arc<Self>) -> thread::JoinHandle<()> {
        let worker = Arc::clone(self);
        thread::spawn(move || {
            worker.work.fetch_add(1, SeqCst);
            worker.waker.wake();
        })
    }

    /// Sleeps until so much work has come.
    fn run(&self, wanted: u32) {
        while self.work.load(SeqCst) < wanted {
            self.waker.sleep(NONE, false, None);
        }
    }
}

#[test]
fn a_thread_wakes_for_what_two_callers_leave() {
    model(|| {
        let worker = Worker::new();
        let callers = [worker.caller(), worker.caller()];
        worker.run(2);
        callers.into_iter().for_each(|caller| caller.join().expect("it ends"));
    });
}

/// Whenever the signal comes, with timers and packets that end sleeps meanwhile: a thread with nothing to do comes to rest.
#[test]
fn no_signal_stays_behind() {
    model(|| {
        let worker = Worker::new();
        let caller = worker.caller();
        worker.waker.sleep(NONE, false, Some(Duration::ZERO));
        caller.join().expect("it ends");
        (0..2).for_each(|_| worker.waker.sleep(NONE, false, Some(Duration::ZERO)));
        assert!(!worker.waker.event.is_signalled(), "no sleep will last");
    });
}
