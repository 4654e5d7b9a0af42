//! Where a rank's process is, and what the system lets us see of it.

use tweed_proto::late::{Activity, Process, RankStatus};

use crate::process::state;

/// Where a rank lives.
pub(crate) struct PeerStatus {
    /// All but `process`, which changes.
    pub(crate) rank_status: RankStatus,
    /// The network namespace of the peer.
    pub(crate) network: String,
    /// It runs on this machine.
    pub(crate) same_boot: bool,
}

impl PeerStatus {
    /// The status as it is at this moment.
    pub(crate) fn rank_status(&self) -> RankStatus {
        let process =
            if self.same_boot { look_at(self.rank_status.pid, &self.network) } else { Process::Unseen };
        RankStatus { process, ..self.rank_status.clone() }
    }
}

/// Looks at another process of this machine. Its network namespace must be the one that its descriptor gives: behind the same
/// number there may be another process, in another namespace of numbers.
fn look_at(pid: u32, network: &str) -> Process {
    let known = std::fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|p| p.as_os_str() == network);
    match state(&pid.to_string()).filter(|_| known) {
        Some('T' | 't') => Process::Stopped,
        Some(_) => Process::Alive,
        None => Process::Unseen,
    }
}

/// What this process's main thread does.
pub(crate) fn activity() -> Activity {
    match state("self") {
        Some('R') => Activity::Computes,
        Some('D') => Activity::Disk,
        Some('S') => Activity::Sleeps,
        _ => Activity::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_seen_at_work() {
        assert_eq!(look_at(std::process::id(), &crate::process::namespace("net")), Process::Alive);
        assert!(matches!(activity(), Activity::Sleeps | Activity::Computes));
    }

    #[test]
    fn a_number_that_may_be_another_process_is_not_looked_at() {
        assert_eq!(look_at(std::process::id(), "net:[1]"), Process::Unseen);
    }
}
