//! Which locks of a process are taken while which are held: if that has a circle, some interleaving waits for ever.
//!
//! The simulated engine does each turn at once, so a deadlock cannot come about by itself; the order is what is looked at.
//! The names are those of `tweed-net`, whose own checker looks at the same in debug builds.

/// A lock of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lock {
    Seat,
    Engine,
    Inbox,
    Endpoints,
    Pending,
    Directory,
}

const ALL: [Lock; 6] =
    [Lock::Seat, Lock::Engine, Lock::Inbox, Lock::Endpoints, Lock::Pending, Lock::Directory];

/// What was taken while each was held, as bits.
#[derive(Debug, Default)]
pub(super) struct LockOrder {
    taken: [u8; ALL.len()],
    /// Two locks that are taken in both orders, one way or another.
    pub(super) circle: Option<(Lock, Lock)>,
}

impl LockOrder {
    pub(super) fn note(&mut self, held: Lock, taken: Lock) {
        if self.taken[held as usize] & (1 << taken as u8) != 0 {
            return;
        }
        self.taken[held as usize] |= 1 << taken as u8;
        if self.reaches(taken, held) {
            self.circle = Some((held, taken));
        }
    }

    fn reaches(&self, from: Lock, to: Lock) -> bool {
        let mut seen = 1u8 << from as u8;
        for _ in ALL {
            let next = ALL.iter().filter(|&&lock| seen & (1 << lock as u8) != 0);
            seen |= next.fold(0, |all, &lock| all | self.taken[lock as usize]);
        }
        seen & (1 << to as u8) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_of_three_is_found() {
        let mut order = LockOrder::default();
        order.note(Lock::Pending, Lock::Engine);
        order.note(Lock::Engine, Lock::Endpoints);
        order.note(Lock::Engine, Lock::Inbox);
        assert_eq!(order.circle, None);
        order.note(Lock::Endpoints, Lock::Pending);
        assert_eq!(order.circle, Some((Lock::Endpoints, Lock::Pending)));
    }
}
