"""A worker's training step under an order of the gradients' transfers, on a virtual clock.

    profile = [Gradient(numbytes, ready_s, forward_s) for ...]   # by layer; or tweed.simulate.step_order
    step = iterate(Credit(), profile, Wire(rate=125e6, message_s=50e-6, turn_s=1e-3))
    step.seconds, step.waiting_s

The backward pass gives gradients in bursts. They go to a server in pieces, one after the other, as the order
says; each comes back summed as soon as it has arrived. The next forward pass needs layer after layer.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, NamedTuple

from tweed.errors import UsageError
from tweed.order.base import AllOffered, Ended, Event, Offered, Order, Send
from tweed.order.pieces import pieces


class Gradient(NamedTuple):
    """A layer's part of a step: bytes of its gradient, when that is there in the backward pass, and how long
    its forward pass takes."""

    numbytes: int
    ready_s: float
    forward_s: float


@dataclass(frozen=True, slots=True)
class Wire:
    """The link to the server, the same both ways.

    Args:
      rate: bytes per second, each way.
      message_s: what each message costs beside its bytes.
      turn_s: from the arrival of a piece to its acknowledgement here, and to the start of its answer.
      answered: a piece comes back, with as many bytes; False: it is summed when it has arrived, see `ring`.
      joined: a piece that is sent before the one ahead of it has left belongs to the same message, as bytes
        of a stream do; False: each piece is a message.
    """

    rate: float
    message_s: float = 0.0
    turn_s: float = 0.0
    answered: bool = field(default=True, kw_only=True)
    joined: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if self.rate <= 0 or self.message_s < 0 or self.turn_s < 0:
            raise UsageError(f"{self!r}: the rate is to be above 0, and no time below")

    def seconds(self, numbytes: int, behind: bool = False) -> float:
        """How long a piece occupies it, one way; `behind` another one, it may join that one's message."""
        return (0.0 if behind and self.joined else self.message_s) + numbytes / self.rate


def ring(wire: Wire, ranks: int) -> Wire:
    """An all-reduce over a ring of such links, as one link: all ranks send at once, and nothing is answered.

    A piece takes `2 * (ranks - 1)` rounds, of one message and half a turn each; together these send
    `2 * (ranks - 1) / ranks` of its bytes. Rounds of different pieces take turns without a gap.

    Raises: UsageError for fewer than two ranks.

    Example:
      >>> ring(Wire(300.0, message_s=0.1), ranks=4).seconds(100)
      1.1
    """
    if ranks < 2:
        raise UsageError(f"a ring of {ranks} ranks sends nothing; give at least 2")
    rounds = 2 * (ranks - 1)
    return replace(
        wire,
        rate=wire.rate * ranks / rounds,
        message_s=wire.message_s * rounds,
        turn_s=wire.turn_s * rounds / 2,
        answered=False,
    )


class Crossing(NamedTuple):
    """A piece on its way to the server."""

    key: Hashable
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Iteration:
    """What a step took.

    Attributes:
      seconds: from the start of the backward pass to the end of the next forward pass.
      waiting_s: of these, those without arithmetic.
      crossings: of all pieces, in the order in which they were sent.
    """

    seconds: float
    waiting_s: float
    crossings: tuple[Crossing, ...]


@dataclass(slots=True)
class _Run:
    """A step in progress: what happens next, and until when each way of the link is taken."""

    order: Order[Any]
    wire: Wire
    state: Any
    events: list[tuple[float, int, Event]] = field(default_factory=list)
    numbers: count[int] = field(default_factory=count)
    offered: dict[Hashable, tuple[int, int]] = field(default_factory=dict)  # layer and bytes
    up_s: float = -math.inf
    down_s: float = -math.inf
    back_s: dict[int, float] = field(default_factory=dict)  # when all of a layer was back
    crossings: list[Crossing] = field(default_factory=list)

    def add(self, at_s: float, event: Event) -> None:
        heapq.heappush(self.events, (at_s, next(self.numbers), event))

    def go(self) -> None:
        """All that happens at one time is told to the order; then it decides."""
        while self.events:
            now = self.events[0][0]
            while self.events and self.events[0][0] <= now:
                event = heapq.heappop(self.events)[2]
                if isinstance(event, Offered):
                    self.offered[event.transfer.key] = event.transfer.layer, event.transfer.numbytes
                self.state = self.order.handle(event, self.state, now)
            while (decision := self._poll(now)) is not None:
                self._send(decision, now)

    def _poll(self, now: float) -> Send | None:
        decision, self.state = self.order.poll(self.state, now)
        if decision is None or isinstance(decision, Send):
            return decision
        raise UsageError(
            f"{self.order!r} drops {decision.key!r}, and a step needs every gradient: take another"
        )

    def _send(self, decision: Send, now: float) -> None:
        layer, numbytes = self.offered.pop(decision.key)
        begin_s = max(now, self.up_s)
        self.up_s = begin_s + self.wire.seconds(numbytes, behind=self.up_s >= now)
        self.crossings.append(Crossing(decision.key, begin_s, self.up_s))
        there_s = self.up_s + self.wire.turn_s
        self.back_s[layer] = there_s
        if self.wire.answered:
            behind = self.down_s >= there_s
            self.down_s = max(self.down_s, there_s) + self.wire.seconds(numbytes, behind)
            self.back_s[layer] = self.down_s
        self.add(there_s, Ended(decision.key))


def iterate(
    order: Order[Any],
    profile: Sequence[Gradient],
    wire: Wire,
    *,
    piece_bytes: int = 200_000,
    measured: float = 1.0,
) -> Iteration:
    """One step of a worker: its backward pass, the exchange, and the next forward pass.

    Args:
      order: of the pieces; see `tweed.order`.
      profile: the layers, in the order of the forward pass.
      piece_bytes: of a piece; a very large number leaves tensors whole.
      measured: what the order is told of the link's rate, as a share of it.

    Raises: UsageError if the order drops a piece, or lets one wait for ever.
    Cost: some 20 microseconds for each piece.

    Example:
      >>> from tweed.order import FirstIn
      >>> iterate(FirstIn(), (Gradient(100, 2.0, 1.0),), Wire(100.0)).seconds
      5.0
    """
    run = _Run(order, wire, order.start())
    for layer in reversed(range(len(profile))):
        gradient = profile[layer]
        for piece in pieces(layer, gradient.numbytes, most_bytes=piece_bytes, rate=measured * wire.rate):
            run.add(gradient.ready_s, Offered(piece))
    backward_s = max(gradient.ready_s for gradient in profile)
    run.add(backward_s, AllOffered())
    run.go()
    if run.offered:
        raise UsageError(
            f"{order!r} never sends {len(run.offered)} pieces, such as {next(iter(run.offered))!r}"
        )
    now = backward_s
    for layer, gradient in enumerate(profile):
        now = max(now, run.back_s.get(layer, 0.0)) + gradient.forward_s
    arithmetic_s = backward_s + sum(gradient.forward_s for gradient in profile)
    return Iteration(now, now - arithmetic_s, tuple(run.crossings))


def planned(
    order: Order[Any], profile: Sequence[Gradient], wire: Wire, *, piece_bytes: int = 200_000
) -> tuple[Hashable, ...]:
    """The pieces in the order in which they are sent, for `tweed.order.Listed`: one rank's profile for all.

    Args and Raises: as `iterate`.
    """
    return tuple(one.key for one in iterate(order, profile, wire, piece_bytes=piece_bytes).crossings)
