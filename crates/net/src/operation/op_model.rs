//! An operation's end under loom: whoever sleeps until it ends wakes.

use std::sync::Arc;

use loom::thread;

use super::*;
use crate::model;

#[test]
fn who_waits_for_the_end_sees_it() {
    model(|| {
        let op = Arc::new(Op::new(Vec::new()));
        let sleepers = [0, 1].map(|_| {
            let op = Arc::clone(&op);
            thread::spawn(move || {
                while !op.is_ended() {
                    op.sleep(Duration::from_secs(1));
                }
                assert_eq!(op.source(), 7);
            })
        });
        assert!(op.end(Ok(()), Some(7)).is_none(), "nobody asked to be called");
        sleepers.into_iter().for_each(|sleeper| sleeper.join().expect("it ends"));
    });
}
