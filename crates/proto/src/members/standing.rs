//! Where a process stands, for people.

use std::fmt;

/// Where a process stands; see [`Node::standing`](super::Node::standing).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is a member (or a witness), and nothing has to change.
    Settled,
    /// There is to be another epoch, and it can be agreed.
    Changing,
    /// There is to be another epoch, and there cannot be one now.
    Waiting(Why),
    /// It has asked to be let in.
    Joining,
    /// It was let in once, and is not in the last epoch.
    Evicted,
    /// It has left in good order.
    Left,
}

/// Why a member waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Too few of those who decide are heard.
    NoQuorum {
        /// How many voters are heard.
        heard: usize,
        /// How many voters there are.
        voters: usize,
    },
    /// There would be fewer members than the minimum.
    TooFew {
        /// So many there would be.
        members: usize,
        /// So many there must be.
        min: usize,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::NoQuorum { heard, voters } => write!(
                f,
                "{heard} of the {voters} that decide on the next epoch are heard, and more than half are needed (or half with the \
                 lowest key): others may go on without this side"
            ),
            Why::TooFew { members, min } => {
                write!(f, "{members} members are here, and there must be {min}")
            }
        }
    }
}
