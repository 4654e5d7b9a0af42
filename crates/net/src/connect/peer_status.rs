//! Where a rank's process is, and what the system lets us see of it.

use tweed_proto::late::{Activity, Process, Seat};

use crate::connect::descriptor::PeerDescriptor;
use crate::connect::process::state;

/// Where a rank lives.
pub(crate) struct PeerStatus {
    seat: Seat,
    network: String,
    same_boot: bool,
}

impl PeerStatus {
    /// Where `card` is, seen from `own`.
    pub(crate) fn of(card: &PeerDescriptor, own: &PeerDescriptor) -> PeerStatus {
        let link = match card {
            _ if card.uid == own.uid => "self".to_owned(),
            _ if own.shares_memory_with(card) => "shm".to_owned(),
            _ => format!("tcp {}", card.place()),
        };
        let seat = Seat { host: card.host.clone(), pid: card.pid, link, process: Process::Unseen };
        PeerStatus { seat, network: card.network.clone(), same_boot: card.boot == own.boot }
    }

    /// As it is at this moment.
    pub(crate) fn seat(&self) -> Seat {
        let process = if self.same_boot { look_at(self.seat.pid, &self.network) } else { Process::Unseen };
        Seat { process, ..self.seat.clone() }
    }
}

/// Looks at another process of this machine. Its network namespace must be the one its card gives: behind the same
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
    use crate::connect::descriptor::network_id;

    #[test]
    fn this_process_is_seen_at_work() {
        assert_eq!(look_at(std::process::id(), &network_id()), Process::Alive);
        assert!(matches!(activity(), Activity::Sleeps | Activity::Computes));
    }

    #[test]
    fn a_number_that_may_be_another_process_is_not_looked_at() {
        assert_eq!(look_at(std::process::id(), "net:[1]"), Process::Unseen);
    }
}
