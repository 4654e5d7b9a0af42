//! Pinned drafts: a link sends in the order of the steps.

use tweed_schedule::{Collective, Draft, Schedule, Send};

#[test]
fn a_send_waits_for_the_one_before_it_on_its_first_link() {
    // An all-gather of two pieces each over a line of three.
    let sends =
        [(2, 1, 2, 1), (0, 0, 1, 0), (1, 0, 1, 1), (3, 1, 2, 0), (0, 1, 0, 2), (1, 1, 2, 3), (0, 1, 2, 2)];
    let back = [(1, 1, 0, 3), (0, 2, 1, 4), (1, 2, 1, 5), (2, 1, 0, 4), (3, 1, 0, 5)];
    let sends =
        sends.into_iter().chain(back).map(|(step, src, dst, chunk)| Send::new(step, src, dst, chunk, false));
    let draft = Draft {
        name: "line".to_owned(),
        collective: Collective::AllGather,
        root: 0,
        ranks: 3,
        chunks: 6,
        sends: sends.collect(),
        topology: None,
    };
    let schedule = Schedule::new(draft.pinned()).expect("it is right");
    for (src, dst) in [(0, 1), (1, 2), (2, 1), (1, 0)] {
        let link: Vec<usize> = (0..schedule.sends().len())
            .filter(|&at| (schedule.sends()[at].src, schedule.sends()[at].dst) == (src, dst))
            .collect();
        assert!(schedule.sends()[link[0]].after.is_empty());
        for pair in link.windows(2) {
            let [before, after] = [pair[0], pair[1]].map(|at| &schedule.sends()[at]);
            assert_eq!(after.after.as_slice(), [pair[0] as u32]);
            assert!(before.step < after.step);
        }
    }
}
