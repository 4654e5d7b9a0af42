//! Which process keeps the directory's entry of an object.

use std::collections::BTreeSet;

use tweed_rng::mix;

use super::{ObjectId, Process};

/// The process, of those that live, that draws highest for this id (rendezvous hashing: Thaler and Ravishankar 1998). When
/// one goes or comes, only the ids that were or become its own move, and every process names the next one alike.
pub fn shard_of(object: ObjectId, processes: &BTreeSet<Process>) -> Option<Process> {
    let folded = mix((object.0 >> 64) as u64) ^ object.0 as u64;
    processes.iter().copied().max_by_key(|&process| mix(folded ^ mix(process)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_spread_and_only_those_of_the_dead_move() {
        let all: BTreeSet<Process> = (0..16).collect();
        let rest: BTreeSet<Process> = (0..16).filter(|&p| p != 5).collect();
        let mut each = [0u32; 16];
        for number in 0..16_000u128 {
            let object = ObjectId(number << 3);
            let (before, after) = (shard_of(object, &all).unwrap(), shard_of(object, &rest).unwrap());
            each[before as usize] += 1;
            assert!(before == after || before == 5);
        }
        assert!(each.iter().all(|&count| (800..1200).contains(&count)), "{each:?}");
        assert_eq!(shard_of(ObjectId(1), &BTreeSet::new()), None);
    }
}
