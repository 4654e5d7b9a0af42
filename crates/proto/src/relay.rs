//! Through whom two ranks reach each other of which neither can call the other: a function of what all ranks know, so
//! that both ask the same third one, and pairs are spread over those that can do it.

/// The rank that carries what the ranks of `pair` send each other; `None` if no third one is called by both.
///
/// `calls(a, b)` says whether rank `a` can call rank `b`; it must be the same at all ranks.
pub fn choose(ranks: u32, pair: (u32, u32), calls: impl Fn(u32, u32) -> bool) -> Option<u32> {
    let (a, b) = pair;
    let both = |&rank: &u32| rank != a && rank != b && calls(a, rank) && calls(b, rank);
    let able: Vec<u32> = (0..ranks).filter(both).collect();
    // Sums of neighbouring pairs differ, so each of those that are able carries its share.
    able.get((a as usize + b as usize) % able.len().max(1)).copied()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn both_ends_ask_the_same_third_one() {
        let listens = |_, rank: u32| rank < 2;
        assert_eq!(choose(4, (2, 3), listens), choose(4, (3, 2), listens));
        assert!(choose(4, (2, 3), listens).is_some_and(|rank| rank < 2));
    }

    #[test]
    fn none_of_the_pair_carries_for_itself_and_who_is_cut_off_from_one_of_them_does_not() {
        assert_eq!(choose(3, (0, 1), |_, _| true), Some(2));
        assert_eq!(choose(2, (0, 1), |_, _| true), None);
        let cut = |a: u32, b: u32| (a.min(b), a.max(b)) != (1, 2);
        assert_eq!(choose(3, (0, 1), cut), None);
        assert_eq!(choose(4, (0, 1), cut), Some(3));
    }

    #[test]
    fn pairs_are_spread_over_those_that_are_able() {
        let mut carried = BTreeMap::<u32, u32>::new();
        let pairs = (4..12).flat_map(|a| (4..a).map(move |b| (a, b)));
        for pair in pairs {
            *carried.entry(choose(12, pair, |_, rank| rank < 4).expect("four are able")).or_default() += 1;
        }
        assert_eq!(carried.values().sum::<u32>(), 28);
        assert!(carried.len() == 4 && carried.values().all(|&count| (6..=8).contains(&count)), "{carried:?}");
    }
}
