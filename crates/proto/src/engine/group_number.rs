//! What names a group in messages.
//!
//! # Theory of operation
//!
//! Two processes share one link for all groups of both, and the link outlives them: members that come and go make a new
//! group for each of their epochs, over the links that stand. So what is under way of an old group comes while a newer one
//! works, and a message must say whose it is. A message has 56 bits for that, all that its record leaves beside the kind;
//! a value that goes in packets carries its message with it (`ltp::Outgoing::tag`), and so the same bits.
//!
//! | bits | of the group of an epoch | of any other |
//! |---|---|---|
//! | 0..24 | the number of the epoch, modulo 2^24 | hash |
//! | 24..56 | hash | hash |
//!
//! The hash is of the group's name and of chance (`torch/rendezvous.py`), so groups differ unless chance is against them, once
//! in 2^32 or in 2^56 pairs. For groups of two epochs chance has no part in it: whatever their hashes, a message of the
//! one is none of the other, unless 2^24 epochs lie between them. Then it would have been on its way for months, as an
//! epoch takes a tenth of a second and more; and the hashes would still have to be equal.

use std::fmt;

const BITS: u32 = 56;
const EPOCH_BITS: u32 = 24;

/// The number of a group: the same at all its ranks, and of no other group; see the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupNumber(u64);

impl GroupNumber {
    /// In a message that is about no group.
    pub const NONE: GroupNumber = GroupNumber(0);

    /// The number of a group with this hash, of an epoch or of none: as many lower bits of the hash as there is room for.
    pub const fn new(hash: u64, epoch: Option<u64>) -> GroupNumber {
        match epoch {
            Some(epoch) => GroupNumber::from_bits((hash << EPOCH_BITS) | (epoch % (1 << EPOCH_BITS))),
            None => GroupNumber::from_bits(hash),
        }
    }

    /// The number with these bits, as [`GroupNumber::bits`] has them; what is above is left out.
    pub const fn from_bits(bits: u64) -> GroupNumber {
        GroupNumber(bits % (1 << BITS))
    }

    /// The bits of the number, which is below 2^56.
    pub const fn bits(self) -> u64 {
        self.0
    }
}

impl fmt::Display for GroupNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:014x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn groups_of_two_epochs_differ_whatever_their_hashes(one: u64, other: u64, epoch: u64, on in 1u64..1 << 24) {
            let later = Some(epoch.wrapping_add(on));
            prop_assert_ne!(GroupNumber::new(one, Some(epoch)), GroupNumber::new(other, later));
        }

        #[test]
        fn groups_of_one_epoch_differ_by_32_bits_and_others_by_56(hash: u64, bit in 0..56, epoch: u64) {
            let other = hash ^ 1u64 << bit;
            prop_assert_ne!(GroupNumber::new(hash, None), GroupNumber::new(other, None));
            let [one, other] = [hash, other].map(|hash| GroupNumber::new(hash, Some(epoch)));
            prop_assert_eq!(one != other, bit < 32);
        }

        #[test]
        fn a_number_is_its_56_bits(hash: u64, epoch: Option<u64>) {
            let number = GroupNumber::new(hash, epoch);
            prop_assert_eq!(number.bits() >> BITS, 0);
            prop_assert_eq!(GroupNumber::from_bits(number.bits() | 0xff << BITS), number);
        }
    }
}
