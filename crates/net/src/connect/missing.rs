//! Who is missing at a meeting, and what to do about it, in words.

use std::time::Instant;

use crate::connect::agreement::Way;
use crate::connect::descriptor::PeerDescriptor;
use crate::connect::meeting::Meeting;
use crate::framing::Refusal;
use tweed_proto::engine::EngineError;

/// So many are named; the others are counted.
const NAMED: usize = 8;

impl Meeting<'_> {
    /// Prints who has not been met yet; of those behind a wire, what a firewall would have to let through.
    pub(super) fn warn(&self, missing: &[usize]) {
        let names: Vec<String> = missing.iter().take(NAMED).map(|&rank| self.name(rank)).collect();
        let more = missing.len().saturating_sub(names.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let left = self.deadline.saturating_duration_since(Instant::now()).as_secs();
        let (group, own) = (self.known.group, &self.connector.descriptor);
        let far = missing.iter().copied().find(|&rank| own.is_far(&self.known.descriptors[rank]));
        let advice = far.map_or_else(String::new, |rank| format!(". {}", self.advice(rank)));
        crate::stderr::print_line(&format!(
            "tweed: group {group:?}: rank {} on {} ({}) still has no link to {}{more}{advice}. It gives up in {left} s at \
             the latest",
            self.known.rank,
            own.host,
            own.place(),
            names.join(", "),
        ));
    }

    /// What to type where calls do not come through between this process and that one.
    fn advice(&self, rank: usize) -> String {
        let (own, other) = (&self.connector.descriptor, &self.known.descriptors[rank]);
        if let Way::Through(third) = self.way(rank) {
            return format!("Does it run, and can it call {} too?", self.name(third));
        }
        let open = |to: &PeerDescriptor, from: &PeerDescriptor| {
            let (to_port, host) = (to.tcp?, &to.host);
            let from = from.tcp.map_or_else(|| "any".to_owned(), |address| address.ip().to_string());
            let port = to_port.port();
            Some(format!("on {host}: sudo ufw allow proto tcp from {from} to any port {port}"))
        };
        let lines: Vec<String> = [open(other, own), open(own, other)].into_iter().flatten().collect();
        let ports = match self.connector.options.ports.is_any() {
            true => {
                "; ports are others at each start, unless all hosts have TWEED_PORTS=29600-29699 or the like"
            }
            false => "",
        };
        format!(
            "Is it still running? If a firewall is between, let one of them in: {}{ports}",
            lines.join(", or ")
        )
    }

    fn place(&self, descriptor: &PeerDescriptor) -> String {
        match self.connector.descriptor.shares_memory_with(descriptor) {
            true => format!("process {}", descriptor.pid),
            false => descriptor.place(),
        }
    }

    fn name(&self, rank: usize) -> String {
        let descriptor = &self.known.descriptors[rank];
        format!("rank {rank} on {} ({})", descriptor.host, self.place(descriptor))
    }

    /// By whom it would be reached, if not directly.
    fn through(&self, rank: usize) -> String {
        match self.way(rank) {
            Way::Through(third) => format!(" through {}, which hands on what the two send", self.name(third)),
            _ => String::new(),
        }
    }

    pub(super) fn unreachable(&self, missing: usize, why: &Refusal) -> EngineError {
        let (group, name) = (self.known.group, self.name(missing));
        let descriptor = &self.known.descriptors[missing];
        let text = match why {
            Refusal::Ended => {
                let pid = descriptor.pid;
                return EngineError::PeerLost(format!(
                    "group {group:?}: {name} is gone: its process {pid} ended before the group was made. See its own output, \
                     and start it anew"
                ));
            }
            Refusal::Interrupted => {
                let text = format!("group {group:?}: interrupted while it waited for {name}");
                return EngineError::Aborted(text);
            }
            _ => {
                let (rank, host) = (self.known.rank, &self.connector.descriptor.host);
                let through = self.through(missing);
                format!(
                    "group {group:?}: {name} cannot be reached from rank {rank} on {host}{through}: {why}"
                )
            }
        };
        if why.is_final() {
            return EngineError::Usage(text);
        }
        if matches!(why, Refusal::System(_)) {
            return EngineError::PeerLost(text); // it is no fault of the other
        }
        if !self.connector.descriptor.is_far(descriptor) {
            return EngineError::PeerLost(format!("{text}. Is it still running?"));
        }
        if let (Refusal::NoRoute, Some(address)) = (why, descriptor.tcp) {
            let host = &self.connector.descriptor.host;
            return EngineError::PeerLost(format!(
                "{text}. On {host}: `ip route get {}` shows what the kernel knows, `ip -brief address` whether an interface \
                 is down; TWEED_HOST of both must be addresses that reach each other",
                address.ip()
            ));
        }
        let turned = self.turn.is_some() && self.way(missing) == Way::Direct;
        let both = matches!(why, Refusal::Unanswered | Refusal::Silent) && turned;
        let both = if both { ", and calls the other way do not come through either" } else { "" };
        EngineError::PeerLost(format!("{text}{both}. {}", self.advice(missing)))
    }
}
