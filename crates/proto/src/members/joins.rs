//! Who wants to join, and who has to wait before it may.

use std::collections::BTreeMap;

use super::{Member, Seat, Settings};
use crate::hub::Key;

/// So many are remembered.
const MOST: usize = 1024;
/// A penalty doubles so often at most.
const MOST_DOUBLINGS: u32 = 10;

#[derive(Clone, Debug)]
struct Waiting {
    member: Member,
    /// None: as a member.
    seat: Option<Seat>,
    asked: u64,
}

#[derive(Clone, Debug)]
struct Lost {
    times: u32,
    at: u64,
}

/// The requests to join; the module describes them.
#[derive(Clone, Debug, Default)]
pub struct Joins {
    waiting: BTreeMap<Key, Waiting>,
    lost: BTreeMap<Key, Lost>,
}

impl Joins {
    /// A process asks to be let in, as a member or in the place of a witness. Returns for how many ticks it should not ask
    /// again; 0: it waits to be let in.
    pub fn ask(&mut self, member: Member, seat: Option<Seat>, now: u64, settings: &Settings) -> u64 {
        let barred = self.barred(&member.key, now, settings);
        if barred > 0 {
            return barred;
        }
        let older = self.waiting.get(&member.key);
        if older.is_some_and(|older| older.member.incarnation > member.incarnation)
            || (older.is_none() && self.waiting.len() >= MOST)
        {
            return settings.penalty.max(1);
        }
        self.waiting.insert(member.key, Waiting { member, seat, asked: now });
        0
    }

    /// Whoever has not asked again for `silence` ticks does not want to join any more.
    pub(super) fn expire(&mut self, now: u64, settings: &Settings) {
        self.waiting.retain(|_, waiting| now - waiting.asked < settings.silence);
    }

    /// Who waits to be a member, by key.
    pub(super) fn members(&self) -> impl Iterator<Item = Member> + '_ {
        self.waiting.values().filter(|waiting| waiting.seat.is_none()).map(|waiting| waiting.member)
    }

    /// Who waits to be a witness, by key.
    pub(super) fn witnesses(&self) -> impl Iterator<Item = (Member, &Seat)> {
        self.waiting.values().filter_map(|waiting| Some((waiting.member, waiting.seat.as_ref()?)))
    }

    /// It is in, or will not be.
    pub(super) fn remove(&mut self, key: &Key) {
        self.waiting.remove(key);
    }

    /// A member was lost, not having left in good order.
    pub fn lost(&mut self, key: Key, now: u64) {
        if self.lost.len() >= MOST && !self.lost.contains_key(&key) {
            let oldest = self.lost.iter().min_by_key(|(_, lost)| lost.at).map(|(key, _)| *key);
            oldest.map(|key| self.lost.remove(&key));
        }
        let lost = self.lost.entry(key).or_insert(Lost { times: 0, at: now });
        *lost = Lost { times: lost.times + 1, at: now };
    }

    fn barred(&mut self, key: &Key, now: u64, settings: &Settings) -> u64 {
        let Some(lost) = self.lost.get(key) else { return 0 };
        let doublings = lost.times.saturating_sub(2).min(MOST_DOUBLINGS);
        let wait = if lost.times < 2 { 0 } else { settings.penalty << doublings };
        let age = now - lost.at;
        // Who stayed for long begins anew.
        if age > 4 * (settings.penalty << doublings) {
            self.lost.remove(key);
            return 0;
        }
        wait.saturating_sub(age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Member = Member { key: [1; 32], incarnation: 1 };

    #[test]
    fn who_is_lost_again_waits_twice_as_long_and_who_stays_is_forgiven() {
        let settings = Settings { penalty: 100, ..Settings::new(1, 8) };
        let (mut joins, mut waits) = (Joins::default(), Vec::new());
        for _ in 0..5 {
            joins.lost(A.key, 1000);
            waits.push(joins.ask(A, None, 1000, &settings));
        }
        assert_eq!(waits, [0, 100, 200, 400, 800]);
        assert_eq!(joins.ask(A, None, 1799, &settings), 1);
        assert_eq!(joins.ask(A, None, 1800, &settings), 0);
        assert_eq!(joins.ask(A, None, 1000 + 3201, &settings), 0);
        joins.lost(A.key, 5000);
        assert_eq!(joins.ask(A, None, 5000, &settings), 0);
    }

    #[test]
    fn of_a_process_that_was_started_twice_the_later_one_waits_to_be_let_in() {
        let settings = Settings::new(1, 8);
        let later = Member { incarnation: 2, ..A };
        let mut joins = Joins::default();
        assert_eq!(joins.ask(later, None, 1, &settings), 0);
        assert!(joins.ask(A, None, 2, &settings) > 0);
        assert_eq!(joins.members().collect::<Vec<_>>(), [later]);
    }
}
