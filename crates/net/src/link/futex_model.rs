//! The kernel's futex as loom sees it: one lock over all words, under which a word is compared and sleepers are woken.
//!
//! No time passes here: who sleeps and is not woken sleeps forever, and loom reports a deadlock.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use loom::sync::{Condvar, Mutex};

use crate::sync::atomic::AtomicU32;

/// Who sleeps: on which word, and for which bits.
#[derive(Default)]
struct Sleepers {
    next: u32,
    asleep: Vec<(u32, usize, u32)>,
}

loom::lazy_static! {
    static ref KERNEL: (Mutex<Sleepers>, Condvar) = (Mutex::new(Sleepers::default()), Condvar::new());
}

/// Waits, as the real one does; nothing interrupts it.
pub(crate) fn wait(word: &AtomicU32, expected: u32, bits: u32, _timeout: Option<Duration>) -> bool {
    let mut sleepers = KERNEL.0.lock().expect("no thread panics");
    if word.load(SeqCst) != expected {
        return true;
    }
    let me = sleepers.next;
    sleepers.next += 1;
    sleepers.asleep.push((me, address(word), bits));
    while sleepers.asleep.iter().any(|&(who, _, _)| who == me) {
        sleepers = KERNEL.1.wait(sleepers).expect("no thread panics");
    }
    true
}

/// Wakes, as the real one does.
pub(crate) fn wake(word: &AtomicU32, bits: u32) {
    let mut sleepers = KERNEL.0.lock().expect("no thread panics");
    sleepers.asleep.retain(|&(_, on, of)| on != address(word) || of & bits == 0);
    KERNEL.1.notify_all();
}

fn address(word: &AtomicU32) -> usize {
    std::ptr::from_ref(word) as usize
}
