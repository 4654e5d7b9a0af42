//! [`Cost`]: steps and bytes of a schedule, and an estimate of its time.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::record::{Schedule, Send};
use crate::{Hop, ScheduleError, Topology};

/// What a schedule costs for a buffer of a given size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// The number of different steps.
    pub steps: u32,
    /// Bytes that each rank sends.
    pub sent: Vec<u64>,
    /// Bytes that each rank receives.
    pub received: Vec<u64>,
    /// Bytes over each directed link that is used.
    pub links: BTreeMap<(u32, u32), u64>,
}

impl Schedule {
    /// Steps and bytes for a buffer of `bytes` (all chunks together).
    pub fn cost(&self, bytes: u64) -> Cost {
        let mut cost = self.cost_of(&self.sends, bytes);
        cost.steps = self.sends.chunk_by(|a, b| a.step == b.step).count() as u32;
        cost
    }

    /// A simple estimate of the time for `bytes`: the steps one after the other, each as long as its
    /// longest route's latency plus its busiest link or port. The engine overlaps steps and is faster
    /// where chunks can be cut finer.
    ///
    /// # Errors
    /// The schedule uses a link that `topology` lacks.
    pub fn time(&self, bytes: u64, topology: &Topology) -> Result<Duration, ScheduleError> {
        self.sends
            .chunk_by(|a, b| a.step == b.step)
            .map(|step| self.step_time(step, bytes, topology))
            .try_fold(Duration::ZERO, |total, step| Ok(total.saturating_add(step?)))
    }

    /// The bytes of one chunk when a buffer of `bytes` is cut as evenly as can be.
    pub fn chunk_bytes(&self, chunk: u32, bytes: u64) -> u64 {
        let end = |chunks: u32| u128::from(bytes) * u128::from(chunks) / u128::from(self.chunks);
        (end(chunk + 1) - end(chunk)) as u64
    }

    fn cost_of(&self, sends: &[Send], bytes: u64) -> Cost {
        let idle = vec![0; self.ranks as usize];
        let mut cost = Cost { sent: idle.clone(), received: idle, ..Cost::default() };
        for send in sends {
            let bytes = self.chunk_bytes(send.chunk, bytes);
            cost.sent[send.src as usize] += bytes;
            cost.received[send.dst as usize] += bytes;
            send.hops().for_each(|hop| *cost.links.entry(hop).or_default() += bytes);
        }
        cost
    }

    fn step_time(&self, step: &[Send], bytes: u64, topology: &Topology) -> Result<Duration, ScheduleError> {
        let cost = self.cost_of(step, bytes);
        let mut latency = Duration::ZERO;
        for send in step {
            latency = latency.max(route_latency(send, topology)?);
        }
        let links =
            cost.links.iter().filter_map(|(&(from, to), &bytes)| Some(topology.link(from, to)?.busy(bytes)));
        let ends = cost.sent.iter().chain(&cost.received);
        let ports = ends.filter_map(|&bytes| Some(topology.port()?.busy(bytes)));
        Ok(latency.saturating_add(links.chain(ports).max().unwrap_or_default()))
    }
}

fn route_latency(send: &Send, topology: &Topology) -> Result<Duration, ScheduleError> {
    send.hops().try_fold(Duration::ZERO, |total, (from, to)| {
        let link =
            topology.link(from, to).ok_or(ScheduleError::NoSuchLink { at: Hop::of(send), from, to })?;
        Ok(total.saturating_add(link.latency))
    })
}
