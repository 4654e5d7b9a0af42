//! What a driver sets.

/// Counts and times of a [`Node`](super::Node); times are in ticks of its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Fewer members wait for others.
    pub min_members: usize,
    /// More are not let in.
    pub max_members: usize,
    /// Between two heartbeats to the same member.
    pub heartbeat: u64,
    /// Who was not heard for so long is lost.
    pub silence: u64,
    /// After the first one that wants to join others have so long to come too.
    pub batch: u64,
    /// Between the first proposers; a ballot that is not decided within four of these is given up.
    pub stagger: u64,
    /// Who was lost for the second time may join again after this; it doubles each time.
    pub penalty: u64,
    /// An epoch that nobody is lost for holds from so many steps after the last one heard of.
    pub lead_steps: u64,
    /// The seed of the pauses after ballots that were outdone.
    pub seed: u64,
}

impl Settings {
    /// Settings for ticks of about 10 ms.
    pub fn new(min_members: usize, max_members: usize) -> Settings {
        Settings {
            min_members,
            max_members,
            heartbeat: 10,
            silence: 100,
            batch: 50,
            stagger: 5,
            penalty: 500,
            lead_steps: 2,
            seed: 0,
        }
    }
}
