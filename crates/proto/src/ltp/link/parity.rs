//! Parity of messages, which leaves behind their first passes.
//!
//! # Theory of operation
//!
//! What is lost early in a first pass is sent again while the rest of it leaves, and costs no time. What is lost within its
//! last round trip would cost another one. So where the path loses packets, and as soon as nothing else waits to be sent,
//! parity shards leave for those messages whose first pass has ended within the last round trip, in turns: one burst of
//! losses then meets several messages. How many follows from the loss, so that one message in a hundred lacks one. They
//! wait for window and pace as all else does. One that is lost is not sent again: by then what it stood for has been.

use std::collections::VecDeque;
use std::time::Duration;

use super::tail::Weather;
use crate::ltp::outgoing::UNIT;
use crate::ltp::packet::RepairHead;
use crate::ltp::repair::{Code, MOST_SHARDS};

#[derive(Clone, Copy, Debug)]
struct Next {
    head: RepairHead,
    until: Duration,
}

/// What parity is to leave.
#[derive(Debug, Default)]
pub(super) struct ParityQueue {
    messages: VecDeque<Next>,
}

impl ParityQueue {
    /// The first pass of a message ends. True if parity of it is to follow.
    pub(super) fn push(
        &mut self,
        now: Duration,
        (message, round, total): (u32, u32, u32),
        packet: u32,
        weather: &Weather,
    ) -> bool {
        let Some(code) = code(total, packet, weather) else { return false };
        let until = now + weather.rtt;
        self.messages.retain(|next| next.until > now && next.head.message != message);
        self.messages.push_back(Next { head: RepairHead { message, round, code, index: 0 }, until });
        true
    }

    /// Something may be to leave.
    pub(super) fn waits(&self) -> bool {
        !self.messages.is_empty()
    }

    /// The next parity shard of a message that is `wanted`.
    pub(super) fn take(&mut self, now: Duration, wanted: impl Fn(&RepairHead) -> bool) -> Option<RepairHead> {
        self.messages.retain(|next| next.until > now && wanted(&next.head));
        let Next { head, until } = self.messages.pop_front()?;
        let index = head.index + 1;
        if index < head.code.parity {
            self.messages.push_back(Next { head: RepairHead { index, ..head }, until });
        }
        Some(head)
    }
}

/// How a message is coded whose packets hold so many bytes of it; `None` if it is not.
fn code(total: u32, packet: u32, weather: &Weather) -> Option<Code> {
    let shard = u16::try_from(packet / UNIT * UNIT).ok().filter(|&shard| shard > 0)?;
    let code = Code { total, shard, parity: 0 };
    let shards = code.shards();
    let parity = if shards <= MOST_SHARDS { parity(weather, shards) } else { 0 };
    (parity > 0).then_some(Code { parity, ..code })
}

/// How many parity shards one message of so many shards takes.
fn parity(weather: &Weather, shards: u32) -> u8 {
    let (loss, burst) = (weather.loss.min(MOST_LOSS), weather.burst.max(1.0));
    if loss < LEAST_LOSS {
        return 0;
    }
    let lost = f64::from(shards) * loss;
    let spread = (lost * (1.0 - loss) * burst).sqrt();
    let wanted = (lost + RARE * spread + burst - 1.0) / (1.0 - loss);
    wanted.ceil().clamp(1.0, f64::from(shards / 2).max(1.0)) as u8
}

/// Below it, most messages lose nothing.
const LEAST_LOSS: f64 = 0.003;

/// More is reckoned as so much; and parity is at most half of a message anyway.
const MOST_LOSS: f64 = 0.3;

/// So many standard deviations more than the mean number of losses come once in a hundred cases.
const RARE: f64 = 2.33;

#[cfg(test)]
mod tests {
    use super::*;

    fn weather(loss: f64, burst: f64) -> Weather {
        Weather { loss, burst, rtt: Duration::from_millis(40) }
    }

    #[test]
    fn as_many_parity_shards_as_the_loss_asks_for() {
        let each = |loss: f64| parity(&weather(loss, 1.0), 46);
        assert_eq!([0.0, 0.002, 0.01, 0.03, 0.1, 0.2].map(each), [0, 0, 3, 5, 11, 20]);
        assert_eq!(parity(&weather(0.03, 20.0), 46), 23);
        assert_eq!(parity(&weather(0.01, 1.0), 1), 1);
    }

    #[test]
    fn messages_take_turns_for_a_round_trip() {
        let (mut queue, weather) = (ParityQueue::default(), weather(0.01, 1.0));
        let at = Duration::from_millis;
        assert!(queue.push(at(0), (1, 0, 65_536), 1420, &weather));
        assert!(queue.push(at(5), (2, 0, 65_536), 1420, &weather));
        assert!(!queue.push(at(5), (3, 0, 65_536), 100, &weather), "it has too many shards");
        let mut next =
            |now, over| queue.take(at(now), |head| head.message != over).map(|h| (h.message, h.index));
        assert_eq!([next(6, 0), next(6, 0), next(6, 0)], [Some((1, 0)), Some((2, 0)), Some((1, 1))]);
        assert_eq!(next(6, 2), Some((1, 2)));
        assert_eq!(next(6, 2), None);
        assert!(queue.push(at(10), (4, 0, 65_536), 1420, &weather));
        assert_eq!(queue.take(at(50), |_| true), None);
        assert!(!queue.waits());
    }
}
