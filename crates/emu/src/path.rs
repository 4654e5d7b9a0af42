//! Frames under way: judged, copied and kept until they are due. Pure.

use std::time::Duration;

use crate::frame::{target, Target};
use crate::links::{Fate, Links};
use crate::queue::Queue;
use crate::settings::Counts;
use crate::socket::HEADER;

/// What it holds at most, in bytes; what comes then is dropped and counted as overrun.
const MOST_HELD: usize = 512 << 20;

/// What is sent later than this after it was due counts as late.
const LATE: Duration = Duration::from_millis(1);

/// A frame for the port of a host, with its header.
#[derive(Debug)]
pub(crate) struct QueuedFrame {
    pub(crate) to: usize,
    pub(crate) frame: Vec<u8>,
}

/// All frames that are under way.
pub(crate) struct Path {
    pub(crate) links: Links,
    /// What was done to packets, by sender.
    pub(crate) counts: Vec<Counts>,
    /// Buffers to be used again.
    pub(crate) spare: Vec<Vec<u8>>,
    /// How many were given back late.
    pub(crate) late: u64,
    queue: Queue<QueuedFrame>,
    held: usize,
}

impl Path {
    pub(crate) fn new(links: Links, hosts: usize) -> Path {
        let counts = vec![Counts::default(); hosts];
        Path { links, counts, spare: Vec::new(), late: 0, queue: Queue::default(), held: 0 }
    }

    /// Takes a copy of a frame, behind its header, that came from a host at `now`.
    pub(crate) fn admit(&mut self, now: Duration, from: usize, frame: &[u8]) {
        let hosts = self.counts.len();
        match target(frame.get(HEADER..).unwrap_or_default(), hosts) {
            Target::Nobody => {}
            Target::Host(to) => self.post(now, (from, to), frame),
            Target::All => {
                (0..hosts).filter(|to| *to != from).for_each(|to| self.post(now, (from, to), frame));
            }
            Target::Packet(to) => {
                let fate = self.links.decide(now, from, to);
                self.carry_out(fate, (from, to), frame);
            }
            Target::Group => {
                for (to, fate) in self.links.decide_group(now, from) {
                    self.carry_out(fate, (from, to), frame);
                }
            }
        }
    }

    /// Counts what becomes of a packet, and keeps it until it is due.
    fn carry_out(&mut self, fate: Fate, (from, to): (usize, usize), frame: &[u8]) {
        let counts = &mut self.counts[from];
        counts.packets += 1;
        match fate {
            Fate::Lost => counts.lost += 1,
            Fate::Passes { at, held_back, again } => {
                counts.reordered += u64::from(held_back);
                counts.duplicated += u64::from(again);
                (0..=u32::from(again)).for_each(|_| self.post(at, (from, to), frame));
            }
        }
    }

    fn post(&mut self, at: Duration, (from, to): (usize, usize), frame: &[u8]) {
        if self.held > MOST_HELD {
            self.counts[from].overrun += 1;
            return;
        }
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(frame);
        self.held += copy.len();
        self.queue.push(at, QueuedFrame { to, frame: copy });
    }

    /// The next frame that is due at `now`. Its buffer should come back to `spare`.
    pub(crate) fn pop(&mut self, now: Duration) -> Option<QueuedFrame> {
        let due = self.queue.next_timeout()?;
        let queued = self.queue.pop(now)?;
        self.late += u64::from(now > due + LATE);
        self.held -= queued.frame.len();
        Some(queued)
    }

    /// When the next frame is due.
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        self.queue.next_timeout()
    }
}
